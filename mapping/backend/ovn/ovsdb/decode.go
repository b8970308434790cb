package ovsdb

import (
	"bytes"
	"hash/maphash"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Visitor is shown the rows that a call selects, while the answer arrives. Its
// functions run on the goroutine of the connection. A Visitor may be used by several
// calls of one connection.
type Visitor struct {
	// Row is shown a row. It returns whether it keeps the row; a row that it does not
	// keep is used again for the next.
	Row func(Row) (kept bool)
	// Link is shown a link, before the row that holds it.
	Link  func(Link)
	words words
}

// read reads an array of rows of a table.
func (v *Visitor) read(in *jsontext.Decoder, t *Table) error {
	d := &decoder{Decoder: in, table: t, Visitor: v}
	return d.rows()
}

// decoder reads rows of a table (RFC 7047, section 5.1). A value that does not have
// the column's type is left out, so that one unexpected value does not end the
// connection. Invalid JSON is an error.
type decoder struct {
	*jsontext.Decoder
	*Visitor
	table *Table
	plain []byte // buffer for a string while it is unquoted
	links []Link // of the row that is read: its UUID may come last
}

// rows reads an array of rows.
func (d *decoder) rows() error {
	r := d.table.Row("")
	return array(d.Decoder, func() error {
		if d.PeekKind() != '{' {
			return d.SkipValue()
		}
		if err := d.row(r); err != nil {
			return err
		}
		if d.Row(r) {
			r = d.table.Row("")
		} else {
			r.clear()
		}
		return nil
	})
}

// row reads a row into an empty one, and shows its links.
func (d *decoder) row(r Row) error {
	id := ""
	d.links = d.links[:0]
	err := object(d.Decoder, func(name []byte) error {
		if string(name) == "_uuid" {
			return d.strings(true, func(uuid string) { id = uuid })
		}
		if c := d.table.column(name); c != nil {
			return d.column(c, r)
		}
		return d.SkipValue()
	})
	r.setUUID(id)
	for _, l := range d.links {
		l.Parent = id
		d.Link(l)
	}
	return err
}

// column reads the value of a column; it keeps links apart.
func (d *decoder) column(c *Column, r Row) error {
	switch v := c.of(r).(type) {
	case *string:
		if d.PeekKind() == '"' {
			word, err := d.word()
			*v = word
			return err
		}
	case *bool:
		if kind := d.PeekKind(); kind == 't' || kind == 'f' {
			*v = kind == 't'
			return d.SkipValue()
		}
	case *int:
		if d.PeekKind() == '0' {
			return d.integer(v)
		}
	case **string:
		return d.strings(c.refers, func(s string) { *v = &s })
	case **int:
		if d.PeekKind() == '0' { // none is an empty set
			*v = new(int)
			return d.integer(*v)
		}
	case *[]string:
		return d.strings(c.refers, func(s string) {
			if c.link {
				d.links = append(d.links, Link{Table: d.table, Column: c, Child: s})
			} else {
				*v = append(*v, s)
			}
		})
	case *map[string]string:
		if *v == nil {
			*v = map[string]string{}
		}
		return d.pairs(*v)
	}
	return d.SkipValue()
}

// integer reads a number; it leaves out a number that is not an int.
func (d *decoder) integer(v *int) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(raw)); err == nil {
		*v = n
	}
	return nil
}

// strings reads a string, a UUID, or a set of either. If uuids is set it takes UUIDs
// only, else strings only.
func (d *decoder) strings(uuids bool, take func(string)) error {
	depth := d.StackDepth()
	switch d.PeekKind() {
	case '[':
	case '"':
		word, err := d.word()
		if err == nil && !uuids {
			take(word)
		}
		return err
	default:
		return d.SkipValue()
	}
	tag, err := d.tag()
	if err != nil {
		return err
	}
	switch kind := d.PeekKind(); {
	case tag == "uuid" && uuids && kind == '"':
		word, err := d.word()
		if err != nil {
			return err
		}
		take(word)
	case tag == "set" && kind == '[':
		err := array(d.Decoder, func() error { return d.strings(uuids, take) })
		if err != nil {
			return err
		}
	}
	return d.leave(depth)
}

// pairs reads a map of strings.
func (d *decoder) pairs(into map[string]string) error {
	depth := d.StackDepth()
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	tag, err := d.tag()
	if err == nil && tag == "map" && d.PeekKind() == '[' {
		err = array(d.Decoder, func() error { return d.pair(into) })
	}
	if err != nil {
		return err
	}
	return d.leave(depth)
}

// pair reads one pair of a map.
func (d *decoder) pair(into map[string]string) error {
	depth := d.StackDepth()
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	var words [2]string
	for i := range words {
		if d.PeekKind() != '"' {
			return d.leave(depth)
		}
		word, err := d.word()
		if err != nil {
			return err
		}
		words[i] = word
	}
	into[words[0]] = words[1]
	return d.leave(depth)
}

// tag reads the beginning of an array and its first string, which names the type of
// the value ("uuid", "set" or "map"). It returns "" if the first value is not a string.
func (d *decoder) tag() (string, error) {
	if _, err := d.ReadToken(); err != nil {
		return "", err
	}
	if d.PeekKind() != '"' {
		return "", nil
	}
	return d.word()
}

// leave reads to the end of the value that began at a depth.
func (d *decoder) leave(depth int) error {
	for d.StackDepth() > depth {
		if more(d.Decoder) {
			if err := d.SkipValue(); err != nil {
				return err
			}
		} else if _, err := d.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}

// word reads a string.
func (d *decoder) word() (string, error) {
	v, err := d.ReadValue()
	if err != nil {
		return "", err
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return d.words.of(v[1 : len(v)-1]), nil
	}
	d.plain, err = jsontext.AppendUnquote(d.plain[:0], v)
	return d.words.of(d.plain), err
}

// words holds strings that were read lately, so that equal strings share memory.
type words [1 << 12]string

func (w *words) of(text []byte) string {
	slot := &w[maphash.Bytes(seed, text)%uint64(len(w))]
	if *slot != string(text) {
		*slot = string(text)
	}
	return *slot
}

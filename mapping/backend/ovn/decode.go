package ovn

import (
	"bytes"
	"hash/maphash"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder reads rows of a table (RFC 7047, section 5.1). What it can't read of a
// row is left empty: the row is damaged then, and nothing worse. What is no JSON
// is an error.
type decoder struct {
	*jsontext.Decoder
	table *table
	to    visitor
	words *words
	plain []byte // a string, while it is unquoted
	links []link // of the row that is read, whose UUID may come last
}

// rows reads an array of rows.
func (d *decoder) rows() error {
	r := d.table.empty("")
	return array(d.Decoder, func() error {
		if d.PeekKind() != '{' {
			return d.SkipValue()
		}
		if err := d.one(r); err != nil {
			return err
		}
		if d.to.row(d.table, r) {
			r = d.table.empty("")
		} else {
			d.table.clear(r)
		}
		return nil
	})
}

// one reads a row into an empty one, and shows its links.
func (d *decoder) one(r row) error {
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
	d.table.setUUID(r, id)
	for _, l := range d.links {
		l.parent = id
		d.to.link(l)
	}
	return err
}

// column reads the value of a column, links apart.
func (d *decoder) column(c *column, r row) error {
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
	case *[]string:
		return d.strings(c.refers, func(s string) {
			if c.link {
				d.links = append(d.links, link{column: c, child: s})
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

// integer reads a number; one that is none of int is left out.
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

// strings reads a string, a UUID, or a set of such: UUIDs alone, or none.
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

// tag reads the beginning of an array, and the string that says what it stands
// for; "" when it stands for nothing.
func (d *decoder) tag() (string, error) {
	if _, err := d.ReadToken(); err != nil {
		return "", err
	}
	if d.PeekKind() != '"' {
		return "", nil
	}
	return d.word()
}

// leave reads on until what was begun at a depth has ended.
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

// words remembers strings that were met lately, so that one that comes again and
// again has one memory.
type words [1 << 12]string

func (w *words) of(text []byte) string {
	slot := &w[maphash.Bytes(seed, text)%uint64(len(w))]
	if *slot != string(text) {
		*slot = string(text)
	}
	return *slot
}

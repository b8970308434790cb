package ovn

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// operation is one operation of a transaction, in the JSON of RFC 7047, section
// 5.2.
type operation struct {
	verb  verb
	table *table
	uuid  string // of the row
	json  []byte
}

type verb string

const (
	selectRows verb = "select"
	insertRow  verb = "insert"
	updateRow  verb = "update"
	mutateRow  verb = "mutate"
	deleteRow  verb = "delete"
)

// newInsert makes a row; it needs no column that has its default.
func newInsert(t *table, r row) operation {
	o := begin(insertRow, t, t.uuidOf(r))
	o.json = appendText(append(o.json, `,"uuid":`...), o.uuid)
	o.json = appendRow(append(o.json, `,"row":`...), t, r, false)
	return o.end()
}

// newUpdate sets all columns of a row, but links.
func newUpdate(t *table, r row) operation {
	o := begin(updateRow, t, t.uuidOf(r)).where()
	o.json = appendRow(append(o.json, `,"row":`...), t, r, true)
	return o.end()
}

func newDelete(t *table, uuid string) operation { return begin(deleteRow, t, uuid).where().end() }

// newSelect asks for the columns in use of all rows of a table that may be ours.
func newSelect(t *table, owner string) operation {
	o := begin(selectRows, t, "")
	o.json = append(o.json, `,"where":[`...)
	if t.marked {
		o.json = appendMap(append(o.json, `["external_ids","includes",`...), map[string]string{idOwner: owner})
		o.json = append(o.json, ']')
	}
	o.json = append(o.json, `],"columns":["_uuid"`...)
	for _, c := range t.columns {
		o.json = appendText(append(o.json, ','), c.name)
	}
	o.json = append(o.json, ']')
	return o.end()
}

// newMutation puts rows into columns of a row, and takes them out of it.
func newMutation(t *table, uuid string, columns map[string]*members) operation {
	o := begin(mutateRow, t, uuid).where()
	o.json = append(o.json, `,"mutations":`...)
	separator := byte('[')
	add := func(column, mutator string, uuids []string) {
		if len(uuids) == 0 {
			return
		}
		slices.Sort(uuids)
		o.json = appendText(append(o.json, separator, '['), column)
		o.json = append(o.json, `,"`+mutator+`",`...)
		o.json = append(appendSet(o.json, uuids, true), ']')
		separator = ','
	}
	for _, column := range sortedKeys(columns) {
		add(column, "delete", columns[column].out)
		add(column, "insert", columns[column].in)
	}
	o.json = append(o.json, ']')
	return o.end()
}

func begin(v verb, t *table, uuid string) operation {
	return operation{v, t, uuid, append(make([]byte, 0, 1024), `{"op":"`+string(v)+`","table":"`+t.name+`"`...)}
}

// where has the operation be about the row.
func (o operation) where() operation {
	o.json = append(o.json, `,"where":[["_uuid","==",`...)
	o.json = append(appendUUID(o.json, o.uuid), "]]"...)
	return o
}

func (o operation) end() operation {
	o.json = append(o.json, '}')
	return o
}

// appendRow appends the row's columns; those that have their default only if
// asked to.
func appendRow(b []byte, t *table, r row, defaults bool) []byte {
	b = append(b, '{')
	first := true
	for _, c := range t.columns {
		if c.link || !defaults && c.isDefault(r) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(b, c.name), ':')
		b = c.append(b, r)
	}
	return append(b, '}')
}

// append appends the value that a row has in the column.
func (c *column) append(b []byte, r row) []byte {
	switch v := c.of(r).(type) {
	case *string:
		return appendText(b, *v)
	case *bool:
		if *v {
			return append(b, "true"...)
		}
		return append(b, "false"...)
	case *int:
		return strconv.AppendInt(b, int64(*v), 10)
	case **string:
		if *v == nil {
			return appendSet(b, nil, c.refers)
		}
		return appendSet(b, []string{**v}, c.refers)
	case *[]string:
		return appendSet(b, *v, c.refers)
	case *map[string]string:
		return appendMap(b, *v)
	}
	return append(b, "null"...)
}

func appendSet(b []byte, set []string, uuids bool) []byte {
	b = append(b, `["set",[`...)
	for i, s := range set {
		if i > 0 {
			b = append(b, ',')
		}
		if uuids {
			b = appendUUID(b, s)
		} else {
			b = appendText(b, s)
		}
	}
	return append(b, "]]"...)
}

func appendMap(b []byte, m map[string]string) []byte {
	b = append(b, `["map",[`...)
	first := true
	for k, v := range m {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(append(b, '['), k), ',')
		b = append(appendText(b, v), ']')
	}
	return append(b, "]]"...)
}

func appendUUID(b []byte, uuid string) []byte {
	return append(appendText(append(b, `["uuid",`...), uuid), ']')
}

// appendText appends a string; what is no UTF-8 in it is replaced.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

package ovsdb

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Operation is one operation of a transaction, in the JSON of RFC 7047, section 5.2.
type Operation struct {
	Verb  Verb
	Table *Table // nil for Wait and Increment
	UUID  string // of the row; empty for Select, Wait and Increment
	json  []byte
}

// Verb is the kind of an Operation.
type Verb string

// The verbs.
const (
	Select Verb = "select"
	Insert Verb = "insert"
	Update Verb = "update"
	Mutate Verb = "mutate"
	Delete Verb = "delete"
	Wait   Verb = "wait"
	// Increment is a mutation of all rows.
	Increment Verb = "increment"
)

// NewSelect returns the operation that selects the columns in use of all rows of a
// table; if the table has external_ids and there are pairs, of those that include the pairs.
func NewSelect(t *Table, ids map[string]string) Operation {
	o := begin(Select, t, "")
	o.json = append(o.json, `,"where":[`...)
	if t.ExternalIDs && len(ids) > 0 {
		o.json = appendMap(append(o.json, `["external_ids","includes",`...), ids)
		o.json = append(o.json, ']')
	}
	o.json = append(o.json, `],"columns":["_uuid"`...)
	for _, c := range t.columns {
		o.json = appendText(append(o.json, ','), c.Name)
	}
	o.json = append(o.json, ']')
	return o.end()
}

// NewWait returns the operation that fails at once, with the error TimedOut, unless
// the table has a row with this UUID whose external_ids include the given pairs, and
// no other row whose external_ids do.
func NewWait(table, uuid string, ids map[string]string) Operation {
	b := []byte(`{"op":"wait","table":"` + table + `","timeout":0,"until":"==","columns":["_uuid"],"where":[["external_ids","includes",`)
	b = append(appendMap(b, ids), `]],"rows":[{"_uuid":`...)
	return Operation{Verb: Wait, json: append(appendUUID(b, uuid), "}]}"...)}
}

// ServerDatabase is the database with which a server describes itself (ovsdb-server(5)).
const ServerDatabase = "_Server"

// NewWaitRole returns the operation on ServerDatabase that fails at once, with the error TimedOut, unless the
// server has a role in the cluster of the database: "leader" or "connected".
func NewWaitRole(database, role string) Operation {
	return Operation{Verb: Wait, json: []byte(`{"op":"wait","table":"Database","timeout":0,"until":"==","columns":["name"],"where":[["name","==","` + database +
		`"],["` + role + `","==",true]],"rows":[{"name":"` + database + `"}]}`)}
}

// TimedOut is the Error of the Result of a wait that fails.
const TimedOut = "timed out"

// newInsert inserts a row with the columns that do not have their default.
func newInsert(r Row) Operation {
	o := begin(Insert, r.Table, r.UUID())
	o.json = appendText(append(o.json, `,"uuid":`...), o.UUID)
	o.json = appendRow(append(o.json, `,"row":`...), r, false)
	return o.end()
}

// newUpdate sets all columns of a row except links.
func newUpdate(r Row) Operation {
	o := begin(Update, r.Table, r.UUID()).where()
	o.json = appendRow(append(o.json, `,"row":`...), r, true)
	return o.end()
}

func newDelete(t *Table, uuid string) Operation { return begin(Delete, t, uuid).where().end() }

// newMutation removes members from link columns of a row, and then adds members.
func newMutation(t *Table, uuid string, columns map[string]*members) Operation {
	o := begin(Mutate, t, uuid).where()
	o.json = append(o.json, `,"mutations":`...)
	separator := byte('[')
	add := func(column *Column, mutator string, set []string) {
		if len(set) == 0 {
			return
		}
		slices.Sort(set)
		o.json = appendText(append(o.json, separator, '['), column.Name)
		o.json = append(o.json, `,"`+mutator+`",`...)
		o.json = append(appendSet(o.json, set, column.refers), ']')
		separator = ','
	}
	for _, c := range t.columns {
		if changed := columns[c.Name]; changed != nil {
			add(c, "delete", changed.remove)
			add(c, "insert", changed.add)
		}
	}
	o.json = append(o.json, ']')
	return o.end()
}

// NewIncrement returns the operation that adds one to an integer column of the rows of a table, which must not be negative.
func NewIncrement(table, column string) Operation {
	return Operation{Verb: Increment, json: []byte(`{"op":"mutate","table":"` + table + `","where":[["` + column + `",">=",0]],"mutations":[["` + column + `","+=",1]]}`)}
}

func begin(v Verb, t *Table, uuid string) Operation {
	return Operation{v, t, uuid, append(make([]byte, 0, 1024), `{"op":"`+string(v)+`","table":"`+t.Name+`"`...)}
}

// where limits the operation to its row.
func (o Operation) where() Operation {
	o.json = append(o.json, `,"where":[["_uuid","==",`...)
	o.json = append(appendUUID(o.json, o.UUID), "]]"...)
	return o
}

func (o Operation) end() Operation {
	o.json = append(o.json, '}')
	return o
}

// appendRow appends the row's columns except links. It leaves out columns that have
// their default, unless defaults is set.
func appendRow(b []byte, r Row, defaults bool) []byte {
	b = append(b, '{')
	first := true
	for _, c := range r.Table.columns {
		if c.link || !defaults && c.isDefault(r) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(b, c.Name), ':')
		b = c.append(b, r)
	}
	return append(b, '}')
}

// append appends the row's value in the column.
func (c *Column) append(b []byte, r Row) []byte {
	switch v := c.of(r).(type) {
	case *string:
		return appendText(b, *v)
	case *bool:
		return strconv.AppendBool(b, *v)
	case *int:
		return strconv.AppendInt(b, int64(*v), 10)
	case **string:
		if *v == nil {
			return appendSet(b, nil, c.refers)
		}
		return appendSet(b, []string{**v}, c.refers)
	case **int:
		if *v == nil {
			return appendSet(b, nil, false)
		}
		return strconv.AppendInt(b, int64(**v), 10)
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

// appendText appends a string, and replaces invalid UTF-8 in it.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

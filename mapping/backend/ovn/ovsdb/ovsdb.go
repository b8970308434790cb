// Package ovsdb is a client for the rows of one OVSDB database (RFC 7047). A Conn
// sends transactions without waiting for the answers to earlier ones, and decodes
// the selected rows while the answer arrives, so that no answer is ever held in
// memory as a whole. Rows are Go structs whose fields carry an ovsdb tag, as
// libovsdb's modelgen generates them. A Transaction holds the operations that turn
// one RowSet into another.
//
// A Conn can also follow one table, and keeps nothing of it.
//
// The package does not know which database it talks to, what a row means or who
// owns it. It neither reconnects nor repeats a transaction: the caller opens another
// Conn.
package ovsdb

import (
	"reflect"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Database is the part of a database's schema that is in use. It must not be
// changed, and several goroutines may use it.
type Database struct {
	Name   string
	Tables []*Table
	byType map[reflect.Type]*Table
}

// NewDatabase returns the database of a schema, with the given tables. The fields of
// a table's struct are the columns in use. links names, by table, the columns whose
// members a Transaction adds and removes one by one; it sets other columns as a whole.
func NewDatabase(schema ovsdb.DatabaseSchema, tables []TableType, links map[string][]string) *Database {
	d := &Database{Name: schema.Name, byType: map[reflect.Type]*Table{}}
	for _, tt := range tables {
		t := newTable(tt, schema.Table(tt.Name), links[tt.Name])
		d.Tables = append(d.Tables, t)
		d.byType[t.kind] = t
	}
	return d
}

// TableType names a table and the Go type of its rows.
type TableType struct {
	Name string
	Zero any // a struct of that type
}

// Table returns the table of a name; it panics if the database has none.
func (d *Database) Table(name string) *Table {
	for _, t := range d.Tables {
		if t.Name == name {
			return t
		}
	}
	panic("ovsdb: no table " + name)
}

// NewRowSet returns an empty set of the database's rows.
func (d *Database) NewRowSet() *RowSet { return &RowSet{database: d} }

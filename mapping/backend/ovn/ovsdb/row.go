package ovsdb

import (
	"hash/maphash"
	"reflect"
	"slices"
)

// Row is a row of a table. The zero Row is none.
type Row struct {
	Table *Table
	// Value is a pointer to a struct of the table's type. Its link columns are empty.
	Value any
}

// UUID returns the row's UUID.
func (r Row) UUID() string { return reflect.ValueOf(r.Value).Elem().Field(r.Table.uuid).String() }

func (r Row) setUUID(uuid string) {
	reflect.ValueOf(r.Value).Elem().Field(r.Table.uuid).SetString(uuid)
}

// ExternalIDs returns the row's external_ids; nil if the table has no such column.
func (r Row) ExternalIDs() map[string]string {
	for _, c := range r.Table.columns {
		if c.Name == "external_ids" {
			return *c.of(r).(*map[string]string)
		}
	}
	return nil
}

// Columns returns the columns that do not have their default, by name. A value is a
// string, a bool, an int, a []string or a map[string]string. Links are left out.
func (r Row) Columns() map[string]any {
	out := map[string]any{}
	for _, c := range r.Table.columns {
		if !c.isDefault(r) {
			out[c.Name] = reflect.Indirect(reflect.ValueOf(r.Value).Elem().Field(c.field)).Interface()
		}
	}
	return out
}

// clear empties the row, and keeps the memory of its sets and maps.
func (r Row) clear() {
	r.setUUID("")
	for _, c := range r.Table.columns {
		c.clear(r)
	}
}

// same reports whether two rows of one UUID are equal.
func (r Row) same(other Row) bool {
	return !slices.ContainsFunc(r.Table.columns, func(c *Column) bool { return !c.same(r, other) })
}

// Sum is a hash of rows and links that can be added: two sets of rows and links are
// equal if their sums are. So rows can be compared in any order, and need not be kept.
// Sums of two processes cannot be compared.
type Sum uint64

// element is one value in a row: one string of a set or one pair of a map. Without a
// column it is the existence of the row.
type element struct {
	column          *Column
	row, key, value string
}

var seed = maphash.MakeSeed()

func (e element) sum() Sum { return Sum(maphash.Comparable(seed, e)) }

// Sum returns the sum of the row, without links.
func (r Row) Sum() Sum {
	e := element{row: r.UUID()}
	all := e.sum()
	for _, c := range r.Table.columns {
		e.column = c
		all += c.sum(r, e)
	}
	return all
}

// Link is one member of a column of a row, its parent: another row, or a string.
type Link struct {
	Table  *Table  // the parent's
	Column *Column // of Table
	Parent string  // UUID
	Child  string  // UUID of a row or, if the column has strings, the string
}

// Sum returns the sum of the link.
func (l Link) Sum() Sum { return element{column: l.Column, row: l.Parent, key: l.Child}.sum() }

// RowSet is a set of rows and links of one database.
type RowSet struct {
	Rows     []Row
	Links    []Link
	database *Database
}

// Add adds a row, given as a pointer to the struct of its table. It sorts the row's
// sets.
func (s *RowSet) Add(value any) {
	s.AddRow(Row{s.database.byType[reflect.TypeOf(value).Elem()], value})
}

// AddRow adds a row, and sorts the row's sets.
func (s *RowSet) AddRow(r Row) {
	for _, c := range r.Table.columns {
		if set, ok := c.of(r).(*[]string); ok {
			slices.Sort(*set)
		}
	}
	s.Rows = append(s.Rows, r)
}

// Link adds a link to child, a row or a string, from a link column of the row parent.
func (s *RowSet) Link(table, parent, column, child string) {
	t := s.database.Table(table)
	l := Link{t, t.column([]byte(column)), parent, child}
	if !slices.Contains(s.Links, l) {
		s.Links = append(s.Links, l)
	}
}

// Get returns the row of a UUID; ok is false if there is none.
func (s *RowSet) Get(uuid string) (r Row, ok bool) {
	i := slices.IndexFunc(s.Rows, func(r Row) bool { return r.UUID() == uuid })
	if i < 0 {
		return Row{}, false
	}
	return s.Rows[i], true
}

// Sum returns the sum of all rows and links.
func (s *RowSet) Sum() (all Sum) {
	for _, r := range s.Rows {
		all += r.Sum()
	}
	for _, l := range s.Links {
		all += l.Sum()
	}
	return all
}

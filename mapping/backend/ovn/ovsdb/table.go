package ovsdb

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Table is a table with the columns in use.
type Table struct {
	Name string
	// Root reports whether rows live until they are deleted. A row of another table
	// lives while a row refers to it (RFC 7047, section 3.2, "isRoot").
	Root bool
	// ExternalIDs reports whether the table has a column external_ids.
	ExternalIDs bool

	kind    reflect.Type // the struct
	uuid    int          // field of the struct
	columns []*Column
}

// Column is a column in use.
type Column struct {
	Name  string
	field int
	// refers: the strings of the column are UUIDs of rows.
	refers bool
	// link: the column is changed by member.
	link bool
}

func newTable(tt TableType, schema *ovsdb.TableSchema, links []string) *Table {
	t := &Table{Name: tt.Name, Root: schema.IsRoot, kind: reflect.TypeOf(tt.Zero)}
	for i := range t.kind.NumField() {
		switch tag := t.kind.Field(i).Tag.Get("ovsdb"); tag {
		case "_uuid":
			t.uuid = i
		default:
			of := schema.Column(tag).TypeObj
			t.columns = append(t.columns, &Column{
				Name: tag, field: i, link: slices.Contains(links, tag), refers: of != nil && of.Key.Type == ovsdb.TypeUUID,
			})
			t.ExternalIDs = t.ExternalIDs || tag == "external_ids"
		}
	}
	return t
}

// Row returns a new row that has a UUID and no other column.
func (t *Table) Row(uuid string) Row {
	r := Row{t, reflect.New(t.kind).Interface()}
	r.setUUID(uuid)
	return r
}

// column returns a column by its name in JSON; nil when it is not in use.
func (t *Table) column(name []byte) *Column {
	for _, c := range t.columns {
		if c.Name == string(name) {
			return c
		}
	}
	return nil
}

// of returns a pointer to the row's value: a *string, *bool, *int, **string or **int for an
// optional column, *[]string for a set or *map[string]string.
func (c *Column) of(r Row) any {
	return reflect.ValueOf(r.Value).Elem().Field(c.field).Addr().Interface()
}

// clear gives the column its default, and keeps the memory of a set or map.
func (c *Column) clear(r Row) {
	switch v := c.of(r).(type) {
	case *string:
		*v = ""
	case *bool:
		*v = false
	case *int:
		*v = 0
	case **string:
		*v = nil
	case **int:
		*v = nil
	case *[]string:
		*v = (*v)[:0]
	case *map[string]string:
		clear(*v)
	}
}

// isDefault reports whether the row has the value that an insert gives the column.
func (c *Column) isDefault(r Row) bool {
	switch v := c.of(r).(type) {
	case *string:
		return *v == ""
	case *bool:
		return !*v
	case *int:
		return *v == 0
	case **string:
		return *v == nil
	case **int:
		return *v == nil
	case *[]string:
		return len(*v) == 0
	case *map[string]string:
		return len(*v) == 0
	}
	return true
}

// same reports whether two rows have the same value in the column; sets are sorted.
func (c *Column) same(a, b Row) bool {
	switch v := c.of(a).(type) {
	case *string:
		return *v == *c.of(b).(*string)
	case *bool:
		return *v == *c.of(b).(*bool)
	case *int:
		return *v == *c.of(b).(*int)
	case **string:
		return sameOptional(*v, *c.of(b).(**string))
	case **int:
		return sameOptional(*v, *c.of(b).(**int))
	case *[]string:
		return slices.Equal(*v, *c.of(b).(*[]string))
	case *map[string]string:
		return maps.Equal(*v, *c.of(b).(*map[string]string))
	}
	return true
}

func sameOptional[V comparable](a, b *V) bool { return a == b || a != nil && b != nil && *a == *b }

// sum returns the sum of what the column adds to an element.
func (c *Column) sum(r Row, e element) (all Sum) {
	switch v := c.of(r).(type) {
	case *string:
		if e.key = *v; *v != "" {
			all = e.sum()
		}
	case *bool:
		if *v {
			all = e.sum()
		}
	case *int:
		if e.key = strconv.Itoa(*v); *v != 0 {
			all = e.sum()
		}
	case **string:
		if *v != nil {
			e.key = **v
			all = e.sum()
		}
	case **int:
		if *v != nil {
			e.key = strconv.Itoa(**v)
			all = e.sum()
		}
	case *[]string:
		for _, e.key = range *v {
			all += e.sum()
		}
	case *map[string]string:
		for e.key, e.value = range *v {
			all += e.sum()
		}
	}
	return all
}

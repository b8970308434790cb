package ovn

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// row is a row: a pointer to a struct of package nb. Its sets are sorted, its
// empty sets and maps nil, so that reflect.DeepEqual compares it; its columns
// that hold links are nil.
type row any

// table is what is known of a table: the columns in use, and where a struct of
// package nb has them.
type table struct {
	name    string
	kind    reflect.Type // of the struct
	uuid    int          // field
	columns []column
	// marked: rows carry external_ids. Those of other tables are ours if the
	// group that they would be of has them.
	marked bool
	// root: rows live until they are deleted. Others live while a parent
	// refers to them.
	root bool
}

type column struct {
	name   string
	field  int
	schema *ovsdb.ColumnSchema
	// link: the column's members are rows of various groups, so it is changed
	// member by member.
	link bool
}

// linkColumns are the columns that hold links.
var linkColumns = map[[2]string]bool{
	{nb.LogicalSwitchTable, "ports"}:             true,
	{nb.LogicalRouterTable, "ports"}:             true,
	{nb.LogicalRouterTable, "static_routes"}:     true,
	{nb.LoadBalancerGroupTable, "load_balancer"}: true,
}

// tables are the tables that rows of ours are in, tablesByType and
// tablesByName the same by type of row and by name, schema what OVN says of them.
var (
	tables = []*table{
		newTable(nb.LogicalSwitchTable, nb.LogicalSwitch{}, true),
		newTable(nb.LogicalSwitchPortTable, nb.LogicalSwitchPort{}, false),
		newTable(nb.LogicalRouterTable, nb.LogicalRouter{}, true),
		newTable(nb.LogicalRouterPortTable, nb.LogicalRouterPort{}, false),
		newTable(nb.LogicalRouterStaticRouteTable, nb.LogicalRouterStaticRoute{}, false),
		newTable(nb.LoadBalancerTable, nb.LoadBalancer{}, true),
		newTable(nb.LoadBalancerGroupTable, nb.LoadBalancerGroup{}, true),
		newTable(nb.DHCPOptionsTable, nb.DHCPOptions{}, true),
		newTable(nb.StaticMACBindingTable, nb.StaticMACBinding{}, true),
	}
	tablesByType = func() map[reflect.Type]*table {
		byType := map[reflect.Type]*table{}
		for _, t := range tables {
			byType[t.kind] = t
		}
		return byType
	}()
	tablesByName = func() map[string]*table {
		byName := map[string]*table{}
		for _, t := range tables {
			byName[t.name] = t
		}
		return byName
	}()
	schema = nb.Schema()
)

func newTable(name string, zero any, root bool) *table {
	t := &table{name: name, kind: reflect.TypeOf(zero), root: root}
	columns := schema.Table(name)
	for i := range t.kind.NumField() {
		switch tag := t.kind.Field(i).Tag.Get("ovsdb"); tag {
		case "_uuid":
			t.uuid = i
		default:
			t.columns = append(t.columns, column{
				name: tag, field: i, schema: columns.Column(tag), link: linkColumns[[2]string{name, tag}],
			})
			t.marked = t.marked || tag == "external_ids"
		}
	}
	return t
}

func tableOf(r row) *table { return tablesByType[reflect.TypeOf(r).Elem()] }

func (t *table) uuidOf(r row) string { return reflect.ValueOf(r).Elem().Field(t.uuid).String() }

// idsOf are the row's external_ids.
func (t *table) idsOf(r row) map[string]string {
	if !t.marked {
		return nil
	}
	return reflect.ValueOf(r).Elem().FieldByName("ExternalIDs").Interface().(map[string]string)
}

// empty is a row that has its UUID alone.
func (t *table) empty(uuid string) row {
	v := reflect.New(t.kind)
	v.Elem().Field(t.uuid).SetString(uuid)
	return v.Interface()
}

// names lists the columns in use, for a select.
func (t *table) names() []string {
	names := []string{"_uuid"}
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return names
}

// wire is the row as an insert or an update sends it, without links; an insert
// needs no column that has its default.
func (t *table) wire(r row, defaults bool) (ovsdb.Row, error) {
	v := reflect.ValueOf(r).Elem()
	out := ovsdb.Row{}
	for _, c := range t.columns {
		native := v.Field(c.field).Interface()
		if c.link || !defaults && ovsdb.IsDefaultValue(c.schema, native) {
			continue
		}
		value, err := ovsdb.NativeToOvs(c.schema, native)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", t.name, c.name, err)
		}
		out[c.name] = value
	}
	return out, nil
}

// parse reads a row as a select returns it, and its links. A column that can't
// be read is left empty: the row is damaged then, and nothing worse.
func (t *table) parse(in ovsdb.Row) (row, []link) {
	id, _ := in["_uuid"].(ovsdb.UUID)
	r := t.empty(id.GoUUID)
	v := reflect.ValueOf(r).Elem()
	var links []link
	for _, c := range t.columns {
		value, found := in[c.name]
		if !found {
			continue
		}
		native, err := ovsdb.OvsToNative(c.schema, value)
		if err != nil || reflect.TypeOf(native) != v.Field(c.field).Type() {
			continue
		}
		if c.link {
			for _, child := range native.([]string) {
				links = append(links, link{t, id.GoUUID, c.name, child})
			}
			continue
		}
		v.Field(c.field).Set(reflect.ValueOf(native))
	}
	return t.normal(r), links
}

// normal sorts the row's sets, and makes empty ones nil.
func (t *table) normal(r row) row {
	v := reflect.ValueOf(r).Elem()
	for _, c := range t.columns {
		f := v.Field(c.field)
		switch f.Kind() {
		case reflect.Map, reflect.Slice:
			if f.Len() == 0 {
				f.SetZero()
			} else if set, ok := f.Interface().([]string); ok {
				slices.Sort(set)
			}
		}
	}
	return r
}

// link says that a column of a parent has a row as a member.
type link struct {
	table  *table
	parent string
	column string
	child  string
}

// rowSet is a set of rows by UUID, and the links to them.
type rowSet struct {
	rows  map[string]row
	links map[link]struct{}
}

func newRowSet() rowSet {
	return rowSet{map[string]row{}, map[link]struct{}{}}
}

// add puts a row into the set.
func (s rowSet) add(r row) {
	t := tableOf(r)
	s.rows[t.uuidOf(r)] = t.normal(r)
}

// link puts a link to a row into the set.
func (s rowSet) link(parentTable, parent, column, child string) {
	s.links[link{tablesByName[parentTable], parent, column, child}] = struct{}{}
}

func (s rowSet) empty() bool { return len(s.rows) == 0 && len(s.links) == 0 }

func sameRow(a, b row) bool { return reflect.DeepEqual(a, b) }

func (s rowSet) equal(other rowSet) bool {
	return reflect.DeepEqual(s, other)
}

// anyIDs are external_ids of the set, of whichever row has a given key first in
// order of UUIDs.
func (s rowSet) anyIDs() map[string]string {
	all := map[string]string{}
	for _, uuid := range sortedKeys(s.rows) {
		r := s.rows[uuid]
		for k, v := range tableOf(r).idsOf(r) {
			if _, found := all[k]; !found {
				all[k] = v
			}
		}
	}
	return all
}

// get returns the row of a UUID as type T.
func get[T any](s rowSet, uuid string) (*T, bool) {
	r, ok := s.rows[uuid].(*T)
	return r, ok
}

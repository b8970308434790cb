package ovn

import (
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// row is a row: a pointer to a struct of package nb, whose columns that hold
// links are empty.
type row any

// table is what is known of a table: the columns in use, and where a struct of
// package nb has them.
type table struct {
	name    string
	kind    reflect.Type // of the struct
	uuid    int          // field
	columns []*column
	// marked: rows carry external_ids. Those of other tables are ours if the
	// group that they would be of has them.
	marked bool
	// root: rows live until they are deleted. Others live while a parent
	// refers to them.
	root bool
}

type column struct {
	table *table
	name  string
	field int
	// refers: its strings are UUIDs of rows.
	refers bool
	// link: the column's members are rows of various groups, so it is changed
	// member by member.
	link bool
}

// linkColumns are the columns that hold links.
var linkColumns = map[[2]string]bool{
	{nb.LogicalSwitchTable, "ports"}:             true,
	{nb.LogicalSwitchTable, "acls"}:              true,
	{nb.LogicalRouterTable, "ports"}:             true,
	{nb.LogicalRouterTable, "static_routes"}:     true,
	{nb.LogicalRouterTable, "policies"}:          true,
	{nb.LoadBalancerGroupTable, "load_balancer"}: true,
}

// tables are the tables that rows of ours are in, tablesByType and
// tablesByName the same by type of row and by name.
var (
	tables = []*table{
		newTable(nb.LogicalSwitchTable, nb.LogicalSwitch{}, true),
		newTable(nb.LogicalSwitchPortTable, nb.LogicalSwitchPort{}, false),
		newTable(nb.ACLTable, nb.ACL{}, false),
		newTable(nb.LogicalRouterTable, nb.LogicalRouter{}, true),
		newTable(nb.LogicalRouterPortTable, nb.LogicalRouterPort{}, false),
		newTable(nb.LogicalRouterStaticRouteTable, nb.LogicalRouterStaticRoute{}, false),
		newTable(nb.LogicalRouterPolicyTable, nb.LogicalRouterPolicy{}, false),
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
)

// readOrder are the tables in the order in which they are read: what rows are
// compared with, and what their groups look up, comes before them. The switch
// ports, which are most of all, are read while the server works on the rest.
var readOrder = tablesOf(
	nb.LoadBalancerGroupTable, nb.StaticMACBindingTable, nb.LogicalRouterTable, nb.LogicalSwitchTable, nb.LogicalSwitchPortTable,
	nb.LogicalRouterPortTable, nb.LogicalRouterStaticRouteTable, nb.LogicalRouterPolicyTable, nb.ACLTable,
	nb.LoadBalancerTable, nb.DHCPOptionsTable,
)

func tablesOf(names ...string) (all []*table) {
	for _, name := range names {
		all = append(all, tablesByName[name])
	}
	return all
}

func newTable(name string, zero any, root bool) *table {
	t := &table{name: name, kind: reflect.TypeOf(zero), root: root}
	columns := nb.Schema().Table(name)
	for i := range t.kind.NumField() {
		switch tag := t.kind.Field(i).Tag.Get("ovsdb"); tag {
		case "_uuid":
			t.uuid = i
		default:
			of := columns.Column(tag).TypeObj
			t.columns = append(t.columns, &column{
				table: t, name: tag, field: i, link: linkColumns[[2]string{name, tag}],
				refers: of != nil && of.Key.Type == ovsdb.TypeUUID,
			})
			t.marked = t.marked || tag == "external_ids"
		}
	}
	return t
}

func tableOf(r row) *table { return tablesByType[reflect.TypeOf(r).Elem()] }

func (t *table) setUUID(r row, uuid string) { reflect.ValueOf(r).Elem().Field(t.uuid).SetString(uuid) }

func (t *table) uuidOf(r row) string { return reflect.ValueOf(r).Elem().Field(t.uuid).String() }

func uuidOf(r row) string { return tableOf(r).uuidOf(r) }

// idsOf are the row's external_ids.
func (t *table) idsOf(r row) map[string]string {
	for _, c := range t.columns {
		if c.name == "external_ids" {
			return *c.of(r).(*map[string]string)
		}
	}
	return nil
}

// empty is a row that has its UUID alone.
func (t *table) empty(uuid string) row {
	r := reflect.New(t.kind).Interface()
	t.setUUID(r, uuid)
	return r
}

// clear makes a row an empty one that keeps the memory of its sets and maps.
func (t *table) clear(r row) {
	t.setUUID(r, "")
	for _, c := range t.columns {
		c.clear(r)
	}
}

// column returns a column by its name in JSON; nil when it is not in use.
func (t *table) column(name []byte) *column {
	for _, c := range t.columns {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

// of is a pointer to the row's value: a *string, *bool, *int, **string for what is
// optional, *[]string for a set or *map[string]string.
func (c *column) of(r row) any { return reflect.ValueOf(r).Elem().Field(c.field).Addr().Interface() }

func (c *column) clear(r row) {
	switch v := c.of(r).(type) {
	case *string:
		*v = ""
	case *bool:
		*v = false
	case *int:
		*v = 0
	case **string:
		*v = nil
	case *[]string:
		*v = (*v)[:0]
	case *map[string]string:
		clear(*v)
	}
}

// isDefault reports whether the row has in the column what an insert gives it.
func (c *column) isDefault(r row) bool {
	switch v := c.of(r).(type) {
	case *string:
		return *v == ""
	case *bool:
		return !*v
	case *int:
		return *v == 0
	case **string:
		return *v == nil
	case *[]string:
		return len(*v) == 0
	case *map[string]string:
		return len(*v) == 0
	}
	return true
}

// same reports whether two rows have the same in the column; sets are sorted.
func (c *column) same(a, b row) bool {
	switch v := c.of(a).(type) {
	case *string:
		return *v == *c.of(b).(*string)
	case *bool:
		return *v == *c.of(b).(*bool)
	case *int:
		return *v == *c.of(b).(*int)
	case **string:
		w := *c.of(b).(**string)
		return *v == w || *v != nil && w != nil && **v == *w
	case *[]string:
		return slices.Equal(*v, *c.of(b).(*[]string))
	case *map[string]string:
		return maps.Equal(*v, *c.of(b).(*map[string]string))
	}
	return true
}

// sameRow reports whether two rows of one UUID are the same.
func sameRow(a, b row) bool {
	return !slices.ContainsFunc(tableOf(a).columns, func(c *column) bool { return !c.same(a, b) })
}

// sum stands for rows and links: what is read is what is wanted if the sums of
// both are the same. So rows need not be kept to be compared, and may come in any
// order. Sums add up; they are of this process alone.
type sum uint64

// element is one thing that a row says: one string of a set, one pair of a map;
// the existence of the row, without a column.
type element struct {
	column          *column
	row, key, value string
}

var seed = maphash.MakeSeed()

func (e element) sum() sum { return sum(maphash.Comparable(seed, e)) }

// sumOf is the sum of a row.
func (t *table) sumOf(r row) sum {
	e := element{row: t.uuidOf(r)}
	all := e.sum()
	for _, c := range t.columns {
		e.column = c
		all += c.sumOf(r, e)
	}
	return all
}

// sumOf is the sum of what the column adds to an element.
func (c *column) sumOf(r row, e element) (all sum) {
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

// link says that a column of a parent has a row as a member.
type link struct {
	column        *column
	parent, child string
}

func (l link) sum() sum { return element{column: l.column, row: l.parent, key: l.child}.sum() }

// rowSet is a set of rows, and the links to them.
type rowSet struct {
	rows  []row
	links []link
}

// add puts a row into the set, and sorts the row's sets.
func (s *rowSet) add(r row) {
	for _, c := range tableOf(r).columns {
		if set, ok := c.of(r).(*[]string); ok {
			slices.Sort(*set)
		}
	}
	s.rows = append(s.rows, r)
}

// link puts a link to a row into the set.
func (s *rowSet) link(table, parent, column, child string) {
	l := link{tablesByName[table].column([]byte(column)), parent, child}
	if !slices.Contains(s.links, l) {
		s.links = append(s.links, l)
	}
}

// get returns the row of a UUID, nil when there is none.
func (s *rowSet) get(uuid string) row {
	for _, r := range s.rows {
		if uuidOf(r) == uuid {
			return r
		}
	}
	return nil
}

func (s *rowSet) sum() (all sum) {
	for _, r := range s.rows {
		all += tableOf(r).sumOf(r)
	}
	for _, l := range s.links {
		all += l.sum()
	}
	return all
}

// rowID is a row's UUID in short; of what is none, the zero value.
func rowID(text string) uuid.UUID {
	id, _ := uuid.Parse(text)
	return id
}

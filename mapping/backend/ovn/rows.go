package ovn

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Row is one row of the northbound database, as Write leaves it.
type Row struct {
	Table string `json:"table"`
	UUID  string `json:"uuid"`
	// Name is what people know the row by: its name or, in a table that has
	// none, what it is about; see naming.
	Name string `json:"name"`
	// Columns are those that do not have their default: each a string, a bool,
	// an int, a []string or a map[string]string. Sets are sorted. Rows of other tables are
	// referred to by UUID.
	Columns map[string]any `json:"columns"`
}

// naming lists the columns that name a row, where it is not "name".
var naming = map[string][]string{
	nb.DHCPOptionsTable:              {"cidr"},
	nb.LogicalRouterStaticRouteTable: {"ip_prefix", "output_port"},
	nb.LogicalRouterPolicyTable:      {"match"},
	nb.ACLTable:                      {"match"},
	nb.StaticMACBindingTable:         {"logical_port", "ip"},
}

// Rows are the rows that Write puts into an empty database for a model that is
// closed under references, sorted by table and name. They are made by what Write
// encodes with, and nothing is asked of any server. An empty owner is the
// default one of Config.
func Rows(m netvirt.Model, owner string) ([]Row, error) {
	cfg := Config{Owner: owner}
	cfg.setDefaults()
	ahead := newMirror(codec{cfg.Owner}).stage()
	for _, c := range netvirt.Diff(nil, m) {
		if err := ahead.apply(c); err != nil {
			return nil, fmt.Errorf("list northbound rows: %w", err)
		}
	}
	set := &rowSet{}
	for k, g := range ahead.groups {
		rows, _ := ahead.encode(k, g.objects, ahead.look)
		set.rows = append(set.rows, rows.rows...)
		set.links = append(set.links, rows.links...)
	}
	return set.list(), nil
}

// list is the set as rows for people, links included.
func (s *rowSet) list() []Row {
	members := map[link][]string{} // children by link without child
	for _, l := range s.links {
		in := link{column: l.column, parent: l.parent}
		members[in] = append(members[in], l.child)
	}
	all := make([]Row, 0, len(s.rows))
	for _, r := range s.rows {
		t := tableOf(r)
		one := Row{Table: t.name, UUID: t.uuidOf(r), Columns: t.values(r)}
		for _, c := range t.columns {
			if children := members[link{column: c, parent: one.UUID}]; len(children) > 0 {
				slices.Sort(children)
				one.Columns[c.name] = children
			}
		}
		one.Name = one.naming()
		all = append(all, one)
	}
	order := map[string]int{}
	for i, t := range tables {
		order[t.name] = i
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(cmp.Compare(order[a.Table], order[b.Table]), strings.Compare(a.Name, b.Name), strings.Compare(a.UUID, b.UUID))
	})
	return all
}

// naming is the row's name for people.
func (r Row) naming() string {
	columns := naming[r.Table]
	if columns == nil {
		columns = []string{"name"}
	}
	var words []string
	for _, c := range columns {
		if word, ok := r.Columns[c].(string); ok {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// values are the columns of a row that do not have their default, links left out.
func (t *table) values(r row) map[string]any {
	v := reflect.ValueOf(r).Elem()
	out := map[string]any{}
	for _, c := range t.columns {
		if c.isDefault(r) {
			continue
		}
		f := v.Field(c.field)
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		out[c.name] = f.Interface()
	}
	return out
}

package ovn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Row is one row of the northbound database after Write.
type Row struct {
	Table string `json:"table"`
	UUID  string `json:"uuid"`
	// Name is the row's name or, in a table without names, the columns that identify it
	// for people.
	Name string `json:"name"`
	// Columns holds the columns that do not have their default. A value is a string, a
	// bool, an int, a []string or a map[string]string. Sets are sorted. A reference is
	// the UUID of the row.
	Columns map[string]any `json:"columns"`
}

// naming lists the columns that identify a row for people, in tables without a column
// "name".
var naming = map[string][]string{
	nb.DHCPOptionsTable:              {"cidr"},
	nb.LogicalRouterStaticRouteTable: {"ip_prefix", "output_port"},
	nb.LogicalRouterPolicyTable:      {"match"},
	nb.NATTable:                      {"external_ip", "logical_ip"},
	nb.ACLTable:                      {"match"},
	nb.StaticMACBindingTable:         {"logical_port", "ip"},
}

// Written is a database after Write has written a model to it. It was empty before.
type Written struct{ ahead *stage }

// Preview writes a model with the encoding of Write, and connects to no server. It fails if an
// object refers to an object that is not in the model. An empty owner means the default
// of Config, and so does an empty layout.
func Preview(m netvirt.Model, owner string, layout Layout) (*Written, error) {
	cfg := Config{Owner: owner, Layout: layout}
	cfg.setDefaults()
	ahead := newMirror(codec.Codec{Owner: cfg.Owner, Layout: cfg.Layout}).stage()
	for _, s := range steps(netvirt.Diff(nil, m)) {
		if err := ahead.apply(s); err != nil {
			return nil, fmt.Errorf("list northbound rows: %w", err)
		}
	}
	return &Written{ahead}, nil
}

// Rows returns all rows, sorted by table and name.
func (w *Written) Rows() []Row {
	set := &ovsdb.RowSet{}
	for k, g := range w.ahead.groups {
		rows, _ := w.ahead.encode(k, g.objects, w.ahead.look)
		set.Rows = append(set.Rows, rows.Rows...)
		set.Links = append(set.Links, rows.Links...)
	}
	return list(set)
}

// Joined returns the UUIDs of the Port_Groups and Address_Sets that an interface is a member of.
func (w *Written) Joined(iface string) (joined []string) {
	k := netvirt.Key{Kind: netvirt.KindInterface, Name: iface}
	rows, _ := w.ahead.encode(k, w.ahead.group(k).objects, w.ahead.look)
	for _, l := range rows.Links {
		if l.Table.Name == nb.PortGroupTable || l.Table.Name == nb.AddressSetTable {
			joined = append(joined, l.Parent)
		}
	}
	return joined
}

// Role says what the row is for among the rows of its object; empty if there is one for each table.
func (r Row) Role() string {
	ids, _ := r.Columns["external_ids"].(map[string]string)
	return ids[codec.IDRole]
}

// list returns a set as rows for people, with links as columns.
func list(set *ovsdb.RowSet) []Row {
	members := map[string]map[string][]string{} // by UUID of the parent and column
	for _, l := range set.Links {
		if members[l.Parent] == nil {
			members[l.Parent] = map[string][]string{}
		}
		members[l.Parent][l.Column.Name] = append(members[l.Parent][l.Column.Name], l.Child)
	}
	all := make([]Row, 0, len(set.Rows))
	for _, r := range set.Rows {
		one := Row{Table: r.Table.Name, UUID: r.UUID(), Columns: r.Columns()}
		for column, children := range members[one.UUID] {
			slices.Sort(children)
			one.Columns[column] = children
		}
		one.Name = one.naming()
		all = append(all, one)
	}
	order := map[string]int{}
	for i, t := range codec.Northbound.Tables {
		order[t.Name] = i
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(cmp.Compare(order[a.Table], order[b.Table]), strings.Compare(a.Name, b.Name), strings.Compare(a.UUID, b.UUID))
	})
	return all
}

// naming returns the row's Name.
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
	if ids, ok := r.Columns["external_ids"].(map[string]string); ok && len(words) == 0 {
		return codec.HeadText(ids) // the row only holds an object
	}
	return strings.Join(words, " ")
}

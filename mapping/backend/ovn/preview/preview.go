// Package preview lists what a model becomes in OVN: the rows of the northbound database, and how many logical flows ovn-northd
// makes of them. It shows a database that has nothing else. It connects to no server, and does not know in which order a backend writes.
package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Row is one row of the northbound database.
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

// Database is a northbound database with one model.
type Database struct {
	codec  codec.Codec
	model  netvirt.Model
	groups map[netvirt.Key]netvirt.Model // by head
}

// New returns the database that has a model in a layout, with the owner identity.DefaultOwner. It fails if an object refers to an
// object that is not in the model.
func New(m netvirt.Model, layout codec.Layout) (*Database, error) {
	if _, err := codec.ParseLayout(string(layout)); err != nil {
		return nil, fmt.Errorf("list northbound rows: %w", err)
	}
	d := &Database{codec.Codec{Owner: identity.DefaultOwner, Layout: layout}, m, map[netvirt.Key]netvirt.Model{}}
	for _, k := range slices.SortedFunc(maps.Keys(m), netvirt.Key.Compare) {
		for _, ref := range m[k].Refs() {
			if m[ref] == nil {
				return nil, fmt.Errorf("list northbound rows: %s refers to %s, which is not in the model", k, ref)
			}
		}
		head := identity.HeadOf(m[k])
		if d.groups[head] == nil {
			d.groups[head] = netvirt.Model{}
		}
		d.groups[head].Add(m[k])
	}
	return d, nil
}

// Rows returns all rows, sorted by table and name.
func (d *Database) Rows() []Row {
	all := &ovsdb.RowSet{}
	for head := range d.groups {
		rows := d.encode(head)
		all.Rows = append(all.Rows, rows.Rows...)
		all.Links = append(all.Links, rows.Links...)
	}
	return list(all)
}

// Joined returns the UUIDs of the Port_Groups and Address_Sets that an interface is a member of.
func (d *Database) Joined(iface string) (joined []string) {
	for _, l := range d.encode(netvirt.Key{Kind: netvirt.KindInterface, Name: iface}).Links {
		if l.Table.Name == nb.PortGroupTable || l.Table.Name == nb.AddressSetTable {
			joined = append(joined, l.Parent)
		}
	}
	return joined
}

// encode returns the rows of the group of a head.
func (d *Database) encode(head netvirt.Key) *ovsdb.RowSet {
	return d.codec.Encode(head, d.groups[head], func(k netvirt.Key) netvirt.Object { return d.model[k] })
}

// Role says what the row is for among the rows of its object; empty if there is one for each table.
func (r Row) Role() string {
	ids, _ := r.Columns["external_ids"].(map[string]string)
	return ids[identity.IDRole]
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
		return identity.HeadText(ids) // the row only holds an object
	}
	return strings.Join(words, " ")
}

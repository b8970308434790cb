// Package identity says which rows of OVN's northbound database are ours, and which group an object or a row belongs to. A group is
// the objects that share rows, and is named after one of its objects, the head. The UUID of a row is a hash of its owner, its table,
// its head and its role. Its external_ids hold owner, head and role too: the marks of the row.
//
// It also has the objects that are never wanted. The backend reads one of them instead of a group whose rows are damaged or have the form
// of an earlier release.
//
// The package does not know which rows a group has, nor what their other columns and external_ids hold: see package codec. It knows
// neither a connection nor what the database has.
package identity

import (
	"crypto/sha1"
	"net/netip"
	"strings"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Every row of ours has these keys in its external_ids, if its table has that column.
const (
	IDOwner = "coe-bridge/owner"
	idKind  = "coe-bridge/kind" // with idName, the key of the group's head
	idName  = "coe-bridge/name"
	IDRole  = "coe-bridge/role" // distinguishes rows of one group and table
)

// IDNamespace has the namespace of the objects of a row, if they have one. It does not identify the row.
const IDNamespace = "coe-bridge/namespace"

// DefaultOwner is the owner of rows unless the configuration names another.
const DefaultOwner = "coe-bridge"

// Owner tells our rows from the rows of other bridges in the same database.
type Owner string

// space is the namespace of our rows' UUIDs. It must never change.
var space = uuid.MustParse("5d3b2f0e-6f0c-5a2e-9b6e-0c0eb41d9e00")

// UUID returns the UUID of a row: a hash of its owner, table, group and role. So a row
// can be referred to, changed and deleted without reading the database, and the server
// refuses to insert it twice.
func (o Owner) UUID(table string, head netvirt.Key, role string) string {
	var b [256]byte
	name := append(b[:0], space[:]...)
	for i, part := range [...]string{string(o), table, head.Kind.String(), head.Name, role} {
		if i > 0 {
			name = append(name, 0)
		}
		name = append(name, part...)
	}
	hash := sha1.Sum(name)
	id := uuid.UUID(hash[:16])
	id[6] = id[6]&0x0f | 5<<4 // version 5 of RFC 4122, section 4.3
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Mark returns the external_ids of a row, with the given pairs of key and value added.
// It leaves out empty values.
func (o Owner) Mark(head netvirt.Key, role string, pairs ...string) map[string]string {
	ids := make(map[string]string, 3+len(pairs)/2)
	ids[IDOwner], ids[idKind], ids[idName] = string(o), head.Kind.String(), head.Name
	pairs = append(pairs, IDRole, role)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			ids[pairs[i]] = pairs[i+1]
		}
	}
	return ids
}

// HeadText returns the kind and the name of the head of a row's group, for people.
func HeadText(ids map[string]string) string { return ids[idKind] + " " + ids[idName] }

// Marked returns the head of the group that a row belongs to; ok reports whether the row
// is ours. Its UUID must be the hash of its marks, so copied marks do not make a row ours. A row of
// a table without external_ids is ours only if its name says so (see NodeBalancerGroup and VPNBalancerGroup). So are the port of a pod and the
// router of a vpn-instance that have lost their marks.
func (o Owner) Marked(r ovsdb.Row) (head netvirt.Key, ok bool) {
	if group, is := r.Value.(*nb.LoadBalancerGroup); is {
		if vpn, of := strings.CutPrefix(group.Name, o.VPNBalancerGroup()); of {
			return vpnKey(vpn), o.UUID(r.Table.Name, vpnKey(vpn), "") == group.UUID
		}
		node, found := o.ParseNodeBalancerGroup(group.Name)
		return node.Key(), found && o.UUID(r.Table.Name, node.Key(), "") == group.UUID
	}
	ids := r.ExternalIDs()
	if kind, known := headKinds[ids[idKind]]; known && ids[IDOwner] == string(o) {
		head = netvirt.Key{Kind: kind, Name: ids[idName]}
		return head, o.UUID(r.Table.Name, head, ids[IDRole]) == r.UUID()
	}
	switch row := r.Value.(type) {
	case *nb.LogicalSwitchPort:
		head = netvirt.Key{Kind: netvirt.KindInterface, Name: row.Name}
	case *nb.LogicalRouter:
		head = vpnKey(row.Name)
	default:
		return netvirt.Key{}, false
	}
	return head, o.UUID(r.Table.Name, head, "") == r.UUID()
}

// Selected returns the external_ids of the rows of a table that may be ours; nil for all rows. The port of a pod that has
// lost its marks must be found also if the pod is gone: otherwise it keeps the addresses of a later pod. A router keeps the
// addresses of its namespace.
func (o Owner) Selected(t *ovsdb.Table) map[string]string {
	if t.Name == nb.LogicalSwitchPortTable || t.Name == nb.LogicalRouterTable {
		return nil
	}
	return map[string]string{IDOwner: string(o)}
}

// NodeBalancerGroup returns what the names of the Load_Balancer_Groups of nodes begin with. The address of the node, a slash and its
// host name follow: the table has no external_ids.
func (o Owner) NodeBalancerGroup() string { return string(o) + "/node/" }

// ParseNodeBalancerGroup returns the node that the name of a Load_Balancer_Group holds.
func (o Owner) ParseNodeBalancerGroup(name string) (node netvirt.Node, ok bool) {
	text, found := strings.CutPrefix(name, o.NodeBalancerGroup())
	address, host, split := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	return netvirt.Node{Address: a, HostName: host}, found && split && err == nil
}

// VPNBalancerGroup returns what the names of the Load_Balancer_Groups of vpn-instances begin with. The name of the vpn-instance follows.
func (o Owner) VPNBalancerGroup() string { return string(o) + "/vpn/" }

func vpnKey(name string) netvirt.Key { return netvirt.VPNInstance{Name: name}.Key() }

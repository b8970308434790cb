package codec

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Layout is how a codec arranges pods in logical switches.
type Layout string

// The layouts. A Codec must have one of them.
const (
	// LayoutELAN: a switch for each elan-instance, and a router for each vpn-instance.
	LayoutELAN Layout = "elan"
	// LayoutNode: a switch for each node, and one router, the transit's. An elan-instance and a vpn-instance
	// are in rows that OVN does not look at. It has no isolated vpn-instances. An elan-instance with a physical network has a switch of its own, also
	// on the transit's router.
	LayoutNode Layout = "node"
)

// ParseLayout parses a layout.
func ParseLayout(text string) (Layout, error) {
	switch l := Layout(text); l {
	case LayoutELAN, LayoutNode:
		return l, nil
	}
	return "", fmt.Errorf("layout %q: want %s or %s", text, LayoutELAN, LayoutNode)
}

// Limits returns what the rows of a layout can express: networks without a physical network are overlays, and a session affinity
// has a maximum.
func (l Layout) Limits() netvirt.Limits {
	return netvirt.Limits{OverlayOnly: true, Affinity: maxAffinity, NodeGateways: l == LayoutNode}
}

// arrangement encodes the groups whose rows depend on the layout.
type arrangement interface {
	// transitOptions returns the options of the router of a transit.
	transitOptions() map[string]string
	// node adds the rows of a node beside its Load_Balancer_Group.
	node(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Node, look Lookup)
	elan(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, look Lookup)
	// vpn adds the rows of a vpn-instance beside its Load_Balancer_Group.
	vpn(set *ovsdb.RowSet, k netvirt.Key, o netvirt.VPNInstance)
	subnet(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, look Lookup)
	// switchOf returns the UUID of the switch of a port. It is not ok if the port cannot have rows yet.
	switchOf(p port, look Lookup) (uuid string, ok bool)
	// network returns the network of an address of a port on its switch.
	network(a netvirt.Adjacency, look Lookup) netip.Prefix
	// host adds the routes to an address of a port that is outside its subnet.
	host(set *ovsdb.RowSet, k netvirt.Key, p port, a netvirt.Adjacency, look Lookup)
}

func (c Codec) arrangement() arrangement {
	if c.Layout == LayoutNode {
		return byNode{c}
	}
	return byELAN{c}
}

// byELAN is LayoutELAN.
type byELAN struct{ Codec }

func (byELAN) transitOptions() map[string]string { return nil }

func (byELAN) node(*ovsdb.RowSet, netvirt.Key, netvirt.Node, Lookup) {}

func (c byELAN) switchOf(p port, _ Lookup) (string, bool) { return c.switchUUID(p.elan.ELAN), true }

func (byELAN) network(a netvirt.Adjacency, _ Lookup) netip.Prefix { return a.Network }

// IsFormer reports whether a row of a group is a switch of pods in the other layout. When it is deleted, the server
// deletes the ports that are still on it.
func (c Codec) IsFormer(head netvirt.Key, r ovsdb.Row) bool {
	of := netvirt.KindNode
	if c.Layout == LayoutNode {
		of = netvirt.KindELANInstance
	}
	s, is := r.Value.(*nb.LogicalSwitch)
	return is && head.Kind == of && (of == netvirt.KindNode || s.ExternalIDs[idPhysical] == "")
}

// switchPort adds the port of a switch that a router port is connected to.
func (c Codec) switchPort(set *ovsdb.RowSet, k netvirt.Key, role, name, routerPort, switchUUID string) {
	lsp := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, role), Name: name, Type: "router",
		Addresses: []string{"router"}, Options: map[string]string{"router-port": routerPort}, ExternalIDs: c.Mark(k, role),
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, switchUUID, "ports", lsp.UUID)
}

// SwitchAhead returns some rows of a node in LayoutNode: its switch, and one gateway. The router has only the address of the gateway, and no network behind
// it. So it leads no packet of pods to the switch.
func SwitchAhead(node *ovsdb.RowSet) (rows []ovsdb.Row) {
	for _, r := range node.Rows {
		switch row := r.Value.(type) {
		case *nb.LogicalSwitch, *nb.GatewayChassis:
			rows = append(rows, r)
		case *nb.LogicalRouterPort:
			row.Networks = []string{single(netip.MustParsePrefix(row.Networks[0]).Addr()).String()}
			rows = append(rows, r)
		case *nb.LogicalSwitchPort:
			return append(rows, r)
		}
	}
	return rows
}

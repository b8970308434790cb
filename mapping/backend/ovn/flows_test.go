package ovn_test

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestFlowsOfPods: a further pod on a switch costs ovn-northd few logical flows, and DHCP costs as many again.
func TestFlowsOfPods(t *testing.T) {
	n := &northd{t: t, lab: ovnhost.ForTest(t)}
	var err error
	n.b, err = ovn.New(ovn.Config{Endpoints: n.lab.NB.Remote}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(n.b.Close)

	const pods = 10
	n.write(n.with(bulk(1, 1, 1)...))
	before := n.flows(n.with())
	further := func(dhcp bool) float64 {
		var objects []netvirt.Object
		for i := range byte(pods) {
			for _, o := range podOf(100 + i) {
				if p, ok := o.(netvirt.Interface); ok {
					p.DHCP = dhcp
					o = p
				}
				objects = append(objects, o)
			}
		}
		return float64(n.flows(n.with(objects...))-before) / pods
	}
	plain, dhcp := further(false), further(true)
	t.Logf("logical flows of a further pod: %v, %v with DHCP", plain, dhcp)
	require.LessOrEqual(t, plain, 4.0)
	require.Greater(t, dhcp, plain)
}

// TestFlowsOfLayouts: with a switch for each node, a cluster of many namespaces costs ovn-northd far fewer logical flows.
func TestFlowsOfLayouts(t *testing.T) {
	const pods, nodes, namespaces = 200, 5, 20
	lab := ovnhost.ForTest(t)
	flows := func(layout ovn.Layout, shared bool) int {
		n := &northd{t: t, lab: lab, b: withLayout(t, lab, layout)}
		m := netvirt.Model{}
		m.Add(bulk(pods, nodes, namespaces)...)
		if shared {
			shareSubnets(m)
		}
		defer n.write(netvirt.Model{})
		return n.flows(withGateways(m).Select(n.b.Kinds()))
	}
	elan, node, shared := flows(ovn.LayoutELAN, false), flows(ovn.LayoutNode, false), flows(ovn.LayoutNode, true)
	t.Logf("logical flows of %d pods on %d nodes in %d namespaces: %d in layout elan, %d in node, %d with the subnets of nodes",
		pods, nodes, namespaces, elan, node, shared)
	require.Less(t, node, elan/2)
	require.Less(t, shared, elan/4)
}

// shareSubnets gives all pods of a node one subnet.
func shareSubnets(m netvirt.Model) {
	of := func(elan string) (netip.Prefix, netip.Addr) {
		node, _, _ := netvirt.ParseELANName(elan)
		at := node.As4()
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, at[3], 0, 0}), 16), netip.AddrFrom4([4]byte{10, at[3], 0, 1})
	}
	given := map[string]byte{}
	for _, k := range m.Keys() {
		switch o := m[k].(type) {
		case netvirt.Subnet:
			delete(m, k)
			o.Prefix, o.Gateway = of(o.ELAN)
			m.Add(o)
		case netvirt.Adjacency:
			network, gateway := of(o.ELAN)
			given[network.String()]++
			entry := m[netvirt.MACEntry{Interface: o.Interface, Address: o.Address}.Key()].(netvirt.MACEntry)
			delete(m, entry.Key())
			delete(m, k)
			bytes := network.Addr().As4()
			bytes[2], bytes[3] = 1, given[network.String()]
			o.Network, o.Gateway, o.Address = network, gateway, netip.AddrFrom4(bytes)
			entry.Address = o.Address
			m.Add(o, entry)
		}
	}
}

package ipam_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
)

func onNodes(protocol string, port uint16) func(*coe.Service) {
	return func(s *coe.Service) {
		s.Ports = append(s.Ports, coe.ServicePort{Protocol: protocol, Port: port, NodePort: port})
	}
}

// TestNodePorts: the first namespace that claims a node port keeps it, also across a restart. Only ports
// of the operator's range can be claimed.
func TestNodePorts(t *testing.T) {
	w := &world{
		TB: t, journal: newJournal(), vips: newJournal(), origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes},
		nodes: coe.NodeNetwork{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
	}
	w.restart()
	w.complete()
	first := newService("a", "z", at("10.96.0.1"), onNodes("tcp", 30080))
	second := newService("b", "y", at("10.96.0.2"), onNodes("tcp", 30080), onNodes("udp", 30080))
	w.putServices(first)
	w.putServices(second)
	check := func() {
		t.Helper()
		require.Equal(t, []string{"0.0.0.0 tcp30080", "10.96.0.1 0"}, w.holds("a"))
		require.Equal(t, []string{"0.0.0.0 udp30080", "10.96.0.2 0"}, w.holds("b"))
		require.Empty(t, w.whyNot("a", "z"))
		require.Equal(t, coe.AddressTaken, w.whyNot("b", "y"))
		require.Equal(t, "node port tcp 30080 belongs to a service of namespace a; choose another port for one of the two services",
			w.store.View("b").ServiceRefusals["y"].Message)
	}
	check()
	w.restart()
	w.putServices(second, first)
	w.complete()
	w.sync()
	check()

	w.removeServices("z")
	require.Empty(t, w.whyNot("b", "y"), "it heals")
	require.Contains(t, w.holds("b"), "0.0.0.0 tcp30080")

	for _, port := range []uint16{22, 6641, 29999, 32768} {
		w.putServices(newService("c", "x", at("10.96.0.3"), onNodes("tcp", port)))
		require.Equal(t, coe.NotAllowed, w.whyNot("c", "x"))
		require.Contains(t, w.store.View("c").ServiceRefusals["x"].Message, "--node-ports 30000-32767")
		require.Equal(t, []string{"10.96.0.3 0"}, w.holds("c"))
	}
	w.removeServices("x", "y")
	require.Empty(t, w.vips.records)
}

// TestNodePortsOfNobody: if nodes have no management port, or the operator gives no range, node ports are
// neither claimed nor refused.
func TestNodePortsOfNobody(t *testing.T) {
	network := coe.NodeNetwork{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	ports := coe.PortRange{First: 30000, Last: 32767}
	require.True(t, ipam.NodesConfig{Network: network, NodePorts: ports}.ServeNodePorts())
	require.False(t, ipam.NodesConfig{Network: network}.ServeNodePorts())
	require.False(t, ipam.NodesConfig{NodePorts: ports}.ServeNodePorts())
	w := newVIPWorld(t)
	w.putServices(newService("a", "z", at("10.96.0.1"), onNodes("tcp", 30080)))
	require.Equal(t, []string{"10.96.0.1 0"}, w.holds("a"))
	require.Empty(t, w.whyNot("a", "z"))
}

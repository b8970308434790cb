package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

func onNodes(protocol string, port uint16) func(*coe.Service) {
	return func(s *coe.Service) {
		s.Ports = append(s.Ports, coe.ServicePort{Protocol: protocol, Port: port, NodePort: port})
	}
}

// newNodePortWorld returns a world whose nodes answer on node ports.
func newNodePortWorld(t *testing.T) *world {
	w := &world{
		TB: t, journal: newJournal(), vips: newJournal(), origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes},
		nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
	}
	w.restart()
	w.complete()
	return w
}

// TestNodePorts: the first namespace that claims a node port keeps it, also across a restart. Only ports
// of the operator's range can be claimed.
func TestNodePorts(t *testing.T) {
	w := newNodePortWorld(t)
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

// TestHealthCheckPorts: the port of health checks is a node port.
func TestHealthCheckPorts(t *testing.T) {
	w := newNodePortWorld(t)
	health := func(port uint16) func(*coe.Service) { return func(s *coe.Service) { s.HealthPort = port } }
	w.putServices(newService("a", "z", at("10.96.0.1"), onNodes("tcp", 30080), health(30081)))
	w.putServices(newService("b", "y", at("10.96.0.2"), health(30080)))
	w.putServices(newService("c", "x", at("10.96.0.3"), health(10250)))
	require.Equal(t, []string{"0.0.0.0 tcp30080", "0.0.0.0 tcp30081", "10.96.0.1 0"}, w.holds("a"))
	require.Equal(t, coe.AddressTaken, w.whyNot("b", "y"))
	require.Equal(t, coe.NotAllowed, w.whyNot("c", "x"))
	w.removeServices("z")
	require.Empty(t, w.whyNot("b", "y"), "it heals")
}

// TestManyNodePorts: a namespace has a limited number of node ports, also across a restart, and no claim
// of another namespace counts.
func TestManyNodePorts(t *testing.T) {
	w := newNodePortWorld(t)
	var services []*coe.Service
	for n := range coe.MaxNodePorts / 100 {
		s := newService("a", fmt.Sprint("s", n), at(fmt.Sprint("10.96.0.", n+1)))
		for port := range 100 {
			onNodes("tcp", uint16(30000+100*n+port))(s)
		}
		services = append(services, s)
	}
	further := newService("a", "x", at("10.96.1.1"), onNodes("udp", 32000))
	w.putServices(append(services, further)...)
	require.Equal(t, coe.TooLarge, w.whyNot("a", "x"))
	require.Contains(t, w.store.View("a").ServiceRefusals["x"].Message, "node port udp 32000: the services of the namespace have 500 node ports already")
	for _, s := range services {
		require.Empty(t, w.whyNot("a", s.UID))
	}
	other := newService("b", "y", at("10.96.1.2"), onNodes("udp", 32001))
	w.putServices(other)
	require.Empty(t, w.whyNot("b", "y"))

	w.restart()
	w.putServices(append(services, further, other)...)
	w.complete()
	w.sync()
	require.Equal(t, coe.TooLarge, w.whyNot("a", "x"))
	w.removeServices("s0")
	require.Empty(t, w.whyNot("a", "x"), "it heals")
	require.Contains(t, w.holds("a"), "0.0.0.0 udp32000")
}

// TestNodePortsOfNobody: if nodes serve no ports, node ports are neither claimed nor refused.
func TestNodePortsOfNobody(t *testing.T) {
	w := newVIPWorld(t)
	w.putServices(newService("a", "z", at("10.96.0.1"), onNodes("tcp", 30080)))
	require.Equal(t, []string{"10.96.0.1 0"}, w.holds("a"))
	require.Empty(t, w.whyNot("a", "z"))
}

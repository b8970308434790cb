package nodeservices

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// TestPortsOfPods: pods are led to cluster addresses whose endpoints are all pods, and to external addresses with the policy Local, by the ports
// for clients inside the cluster. The node leads to everything else.
func TestPortsOfPods(t *testing.T) {
	s := New(config(true))
	at := netip.MustParseAddr("10.96.0.10")
	cluster := func(change func(*uplink.ExposedPort)) *uplink.ExposedPort {
		e := &uplink.ExposedPort{
			External: at, Protocol: "tcp", Port: 80, Address: at, ServicePort: 80, Affinity: 120,
			Endpoints: []uplink.Endpoint{{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080}, {IP: netip.MustParseAddr("10.42.1.2"), Port: 8080}},
		}
		change(e)
		return e
	}
	want := nodeports.Port{
		Address: at, Protocol: "tcp", Number: 80, Service: netip.AddrPortFrom(at, 80), Affinity: 2 * time.Minute,
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.42.0.2:8080"), netip.MustParseAddrPort("10.42.1.2:8080")},
	}
	for name, e := range map[string]*uplink.ExposedPort{
		"all endpoints": cluster(func(*uplink.ExposedPort) {}), "endpoints of the node": cluster(func(e *uplink.ExposedPort) { e.Local = true }),
	} {
		p, leads := s.podPort(e, balancingPlace())
		require.True(t, leads, name)
		require.Equal(t, e.Local, p.Local, name)
		p.Local = false
		require.Equal(t, want, p, name)
		_, leads = s.podPort(e, place())
		require.False(t, leads, "the network balances")
	}
	external := cluster(func(e *uplink.ExposedPort) { e.External, e.Inside = netip.MustParseAddr("192.0.2.10"), true })
	p, leads := s.podPort(external, balancingPlace())
	require.True(t, leads)
	want.Address = external.External
	require.Equal(t, want, p)
	for name, change := range map[string]func(*uplink.ExposedPort){
		"programs of the node":      func(e *uplink.ExposedPort) { e.Own = true },
		"a node port inside":        func(e *uplink.ExposedPort) { e.External, e.Inside = netip.Addr{}, true },
		"only some clients inside":  func(e *uplink.ExposedPort) { e.External, e.Inside, e.Restricted = external.External, true, true },
		"an endpoint elsewhere":     func(e *uplink.ExposedPort) { e.Endpoints[1].IP = netip.MustParseAddr("192.168.33.11") },
		"a node port":               func(e *uplink.ExposedPort) { e.External = netip.Addr{} },
		"an external address":       func(e *uplink.ExposedPort) { e.External = netip.MustParseAddr("192.0.2.10") },
		"only some clients":         func(e *uplink.ExposedPort) { e.Restricted = true },
		"an address outside ranges": func(e *uplink.ExposedPort) { e.External = netip.MustParseAddr("192.0.2.53"); e.Address = e.External },
	} {
		_, leads := s.podPort(cluster(change), balancingPlace())
		require.False(t, leads, name)
	}
}

// TestOrderOfPorts: cluster addresses come before external ones, which can be too many for the rules of pods.
func TestOrderOfPorts(t *testing.T) {
	at, external := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.0.0.1")
	first := &uplink.ExposedPort{External: at, Protocol: "tcp", Port: 80}
	second := &uplink.ExposedPort{External: at, Protocol: "udp", Port: 53}
	last := &uplink.ExposedPort{External: external, Protocol: "tcp", Port: 80, Inside: true}
	all := []*uplink.ExposedPort{last, second, first}
	slices.SortFunc(all, byNeedOfPods)
	require.Equal(t, []*uplink.ExposedPort{first, second, last}, all)
}

// TestPodsOf: a pod has a network namespace and an IPv4 address.
func TestPodsOf(t *testing.T) {
	four, six := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd42::2")
	port := func(netns string, addresses ...netip.Addr) vif.Port {
		return vif.Port{Attachment: vif.Attachment{Netns: netns}, Addresses: addresses}
	}
	require.Equal(t, []string{"/run/netns/a"}, podsOf([]vif.Port{
		port("/run/netns/a", six, four), port("/run/netns/b", six), port("", four),
	}))
}

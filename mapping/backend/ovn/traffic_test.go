package ovn_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// livePod is a pod that runs in a lab, on host1 or host2.
type livePod struct {
	ns, name string
	host     int
	address  string // of the pod
	prefix   string // of its subnet
	gateway  string
}

// The pods are in two namespaces and on two hosts. Some switches have one block, some
// have several. Pods with a host route share one gateway on all switches. Two pods of different namespaces share a block of
// their node.
var (
	livePods = []livePod{
		{"a", "block", 1, "10.1.1.2", "10.1.1.0/29", "10.1.1.1"},
		{"a", "second-block", 1, "10.1.1.10", "10.1.1.8/29", "10.1.1.9"},
		{"a", "other-host", 2, "10.1.2.2", "10.1.2.0/29", "10.1.2.1"},
		{"a", "routed", 1, "172.16.0.5", "169.254.1.1/32", "169.254.1.1"},
		{"a", "routed-other-host", 2, "172.16.0.6", "169.254.1.1/32", "169.254.1.1"},
		{"b", "block", 1, "10.2.1.2", "10.2.1.0/29", "10.2.1.1"},
		{"b", "routed", 2, "172.16.0.7", "169.254.1.1/32", "169.254.1.1"},
		{"a", "six", 1, "fd00:1:1::2", "fd00:1:1::/120", "fd00:1:1::1"},
		{"b", "six-routed", 2, "fd00:ffff::7", "fd00:fe::1/128", "fd00:fe::1"},
		{"a", "shared", 1, "10.9.1.2", "10.9.1.1/32", "10.9.1.1"},
		{"b", "shared", 1, "10.9.1.3", "10.9.1.1/32", "10.9.1.1"},
	}
	// sharedBlock is the block of host1 behind the gateway of the pods "shared".
	sharedBlock = netip.MustParsePrefix("10.9.1.1/24")
	vip         = netip.MustParseAddrPort("10.96.0.10:80")
	everyIP     = netip.MustParseAddrPort("10.96.0.11:0")
	everyIPv6   = netip.MustParseAddrPort("[fd00:96::1]:0")
)

func (p livePod) iface() string { return p.ns + ":" + p.name }

func (p livePod) mac(n int) net.HardwareAddr { return net.HardwareAddr{0x0a, 0x58, 0, 0, 1, byte(n)} }

// liveModel returns the model of the pods, with more namespaces, and with services whose
// endpoints are pods of namespace a.
func liveModel(isolated bool) netvirt.Model {
	m := netvirt.Model{}
	transit := ""
	if !isolated {
		transit = netvirt.CommonRouteTarget
		m.Add(netvirt.Transit{RouteTarget: transit})
	}
	for n, ns := range []string{"a", "b", "c", "d", "e", "f"} {
		m.Add(netvirt.VPNInstance{Name: ns, Namespace: ns, RouteDistinguisher: fmt.Sprintf("100:%d", 2+n), Transit: transit})
	}
	for n, p := range livePods {
		elan := netvirt.ELANName(netip.AddrFrom4([4]byte{192, 168, 0, byte(p.host)}), p.ns)
		s := netvirt.Subnet{ELAN: elan, VPN: p.ns, Prefix: netip.MustParsePrefix(p.prefix), Gateway: netip.MustParseAddr(p.gateway), LeaseTime: 3600}
		address := netip.MustParseAddr(p.address)
		m.Add(
			netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: uint32(70000 + n)}, s,
			netvirt.Interface{Name: p.iface(), Namespace: p.ns, Pod: p.name, PodUID: p.uid(n), UID: p.uid(n), ParentInterface: p.port(n), DHCP: true},
			netvirt.ELANInterface{Name: p.iface(), Namespace: p.ns, ELAN: elan, Chassis: fmt.Sprintf("host%d", p.host)},
			netvirt.MACEntry{Interface: p.iface(), Namespace: p.ns, MAC: p.mac(n).String(), Address: address},
			netvirt.VPNInterface{Name: p.iface(), Namespace: p.ns, VPN: p.ns},
			netvirt.Adjacency{
				Interface: p.iface(), Namespace: p.ns, Address: address, MAC: p.mac(n).String(),
				ELAN: elan, Network: s.Prefix, Gateway: s.Gateway,
			},
		)
	}
	endpoint := func(pod int, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(livePods[pod].address), port)
	}
	m.Add(
		netvirt.Service{UID: "s1", Namespace: "a", Name: "web"},
		netvirt.ServiceVIP{
			Service: "s1", Namespace: "a", Protocol: netvirt.TCP, VIP: vip,
			Endpoints: netvirt.NewEndpointList(endpoint(2, 8080), endpoint(3, 8080)),
		},
		netvirt.ServiceVIP{
			Service: "s1", Namespace: "a", Protocol: netvirt.TCP, VIP: everyIP, Endpoints: netvirt.NewEndpointList(endpoint(2, 0)),
		},
		netvirt.ServiceVIP{
			Service: "s1", Namespace: "a", Protocol: netvirt.TCP, VIP: everyIPv6,
			Endpoints: netvirt.NewEndpointList(endpoint(7, 0)),
		},
	)
	return m
}

func (p livePod) uid(n int) string  { return fmt.Sprintf("1f0e1ac6-0000-4000-8000-%012d", n) }
func (p livePod) port(n int) string { return netvirt.PortName(p.iface(), p.uid(n)) }

func (p livePod) plug(t *testing.T, lab *ovnhost.Lab, n int) {
	t.Helper()
	address := netip.MustParseAddr(p.address)
	require.NoError(t, lab.Plug(t.Context(), ovnhost.Pod{
		Host: fmt.Sprintf("host%d", p.host), Name: p.iface(), UID: p.uid(n), PortName: p.port(n), MAC: p.mac(n),
		Address: netip.PrefixFrom(address, address.BitLen()), Gateway: netip.MustParseAddr(p.gateway),
	}))
}

// TestTraffic: on a real OVN, exactly the pods that should reach each other do.
func TestTraffic(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	b := withLayout(t, lab, ovn.LayoutELAN)

	write(t, b, liveModel(false))
	for n, p := range livePods {
		p.plug(t, lab, n)
	}
	for _, n := range []int{2, 3, 7} {
		serveName(t, lab, livePods[n])
	}
	requireAllReach(t, lab)

	write(t, b, liveModel(true))
	require.NoError(t, lab.Sync(t.Context()))
	requireReach(t, lab, func(from, to livePod) bool { return from.ns == to.ns })
	require.Contains(t, []string{"other-host", "routed"}, page(t, lab, livePods[0], vip))
	_, err := lab.HTTPGet(t.Context(), livePods[5].iface(), "http://"+vip.String())
	require.Error(t, err, "a service of another namespace is unreachable")
}

// serveName serves the name of a pod.
func serveName(t *testing.T, lab *ovnhost.Lab, p livePod) {
	t.Helper()
	require.NoError(t, lab.Serve(p.iface(), 8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, p.name)
	})))
}

// withLayout returns a backend with a layout.
func withLayout(t testing.TB, lab *ovnhost.Lab, layout ovn.Layout) *ovn.Backend {
	t.Helper()
	b, err := ovn.New(ovn.Config{Endpoints: lab.NB.Remote, Layout: layout}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// withGateways gives each node of a model the gateways of its subnets.
func withGateways(m netvirt.Model) netvirt.Model {
	gateways := map[netip.Addr][]netip.Prefix{}
	for _, o := range m {
		if s, ok := o.(netvirt.Subnet); ok {
			node, _, _ := netvirt.ParseELANName(s.ELAN)
			gateway := netip.PrefixFrom(s.Gateway, s.Prefix.Bits())
			if s.Gateway == sharedBlock.Addr() {
				gateway = sharedBlock
			}
			gateways[node] = append(gateways[node], gateway)
		}
	}
	for node, all := range gateways {
		o, _ := m[netvirt.Node{Address: node}.Key()].(netvirt.Node)
		o.Address, o.Gateways = node, netvirt.NewGatewayList(all...)
		m.Add(o)
	}
	return m
}

// liveModelOf returns the live model, without isolation, for a layout.
func liveModelOf(layout ovn.Layout) netvirt.Model {
	if layout == ovn.LayoutNode {
		return withGateways(liveModel(false))
	}
	return liveModel(false)
}

// requireAllReach checks that the pods reach each other, and their services.
func requireAllReach(t *testing.T, lab *ovnhost.Lab) {
	t.Helper()
	requireReach(t, lab, func(livePod, livePod) bool { return true })
	for _, from := range livePods {
		if netip.MustParseAddr(from.address).Is4() {
			require.Contains(t, []string{"other-host", "routed"}, page(t, lab, from, vip), from.iface())
			require.Equal(t, "other-host", page(t, lab, from, netip.AddrPortFrom(everyIP.Addr(), 8080)), from.iface())
		} else {
			require.Equal(t, "six", page(t, lab, from, netip.AddrPortFrom(everyIPv6.Addr(), 8080)), from.iface())
		}
	}
}

func sameFamily(a, b livePod) bool {
	return netip.MustParseAddr(a.address).Is4() == netip.MustParseAddr(b.address).Is4()
}

// requireReach checks which pods reach each other. It tries several times, because OVN may drop the first packets while it resolves
// addresses. Packets that must have no answer wait at the same time.
func requireReach(t *testing.T, lab *ovnhost.Lab, want func(from, to livePod) bool) {
	t.Helper()
	ping := func(from, to livePod, wait string) error {
		_, err := lab.Exec(t.Context(), from.iface(), "ping", "-n", "-c", "1", "-W", wait, to.address)
		return err
	}
	var unwanted sync.WaitGroup
	defer unwanted.Wait()
	for _, from := range livePods {
		for _, to := range livePods {
			switch {
			case !sameFamily(from, to):
			case want(from, to):
				require.Eventually(t, func() bool { return ping(from, to, "1") == nil }, patience.Patience, time.Millisecond, "%s to %s", from.iface(), to.iface())
			default:
				unwanted.Go(func() { assert.Error(t, ping(from, to, "1"), "%s reaches %s", from.iface(), to.iface()) })
			}
		}
	}
	unwanted.Wait()
	require.False(t, t.Failed())
}

func page(t *testing.T, lab *ovnhost.Lab, from livePod, at netip.AddrPort) string {
	t.Helper()
	var body string
	require.Eventually(t, func() bool {
		var err error
		body, err = lab.HTTPGet(t.Context(), from.iface(), "http://"+at.String())
		return err == nil
	}, patience.Patience, 100*time.Millisecond, "%s to %s", from.iface(), at)
	return body
}

package node

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/policyroute"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// leadingPlace is the place of a node that leads the pods of isolated namespaces to services.
func leadingPlace() *uplink.Place {
	p := isolatedPlace()
	p.WayOut = &uplink.WayOut{Name: p.Name, MAC: p.MAC}
	p.Edge, p.Gateway = netip.MustParseAddr("100.96.0.2"), netip.MustParseAddr("100.96.0.1")
	p.Services = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	return p
}

// isolatedLab is a node that leads two isolated namespaces, a and b, to services. All pods of a namespace and its router are one network
// namespace. Both have the addresses 10.42.0.2, a pod on the node, and 10.42.1.2, a pod elsewhere.
type isolatedLab struct {
	node     netns.NsHandle
	onNode   func(string) string
	n        *Node
	w        wanted
	networks map[string]netns.NsHandle
	in       map[string]func(string) string
}

func newIsolatedLab(t *testing.T, pods map[string][]string) *isolatedLab {
	t.Helper()
	node, onNode := namespace.WithShell(t)
	l := &isolatedLab{
		node: node, onNode: onNode, n: &Node{cfg: Config{Netns: node, OpenDaylight: true}}, networks: map[string]netns.NsHandle{}, in: map[string]func(string) string{},
	}
	h, err := netlink.NewHandleAt(node)
	require.NoError(t, err)
	defer h.Close()
	onNode("ip link set lo up; ip addr add 192.168.33.11/32 dev lo; ip addr add 192.168.44.1/32 dev lo; sysctl -qw net.ipv4.conf.all.rp_filter=0")
	for _, name := range []string{"a", "b"} {
		network, run := namespace.WithShell(t)
		l.networks[name], l.in[name] = network, run
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: linkOf(name)})
		veth.PeerName, veth.PeerNamespace = "peer0", netlink.NsFd(network)
		require.NoError(t, h.LinkAdd(veth))
		onNode("ip link set " + linkOf(name) + " up")
		run("ip link set lo up; ip link set peer0 up; ip addr add 10.42.0.2/32 dev peer0; ip addr add 10.42.1.2/32 dev peer0" +
			"; ip addr add 100.96.0.1/32 dev peer0; ip route add 192.168.33.11 dev peer0 src 10.42.0.2; ip route add 100.96.0.2 via 192.168.33.11" +
			"; ip route add 10.96.0.0/12 via 192.168.33.11 src 10.42.0.2")
	}
	p := leadingPlace()
	l.w, err = newWanted(p, records(pods), nil)
	require.NoError(t, err)
	for _, step := range l.steps() {
		twice(t, step)
	}
	changed, err := l.w.PutFences(node)
	require.NoError(t, err)
	require.False(t, changed, "these routing rules are of others")
	for _, p := range l.w.pairs {
		_, err := l.n.putSettings(p)
		require.NoError(t, err)
	}
	return l
}

func (l *isolatedLab) steps() []func() (bool, error) {
	return []func() (bool, error){
		func() (bool, error) { return l.n.allowForwarding(l.w) },
		func() (bool, error) { return l.w.PutRules(l.node) },
		func() (bool, error) { return putRoutes(l.node, l.w) },
		func() (bool, error) { return policyroute.Put(l.node, l.w.routers()) },
	}
}

// lead leads to services, each with one endpoint; none if it is empty.
func (l *isolatedLab) lead(t *testing.T, services map[string]string) {
	t.Helper()
	table := porttables.New(porttables.Config{Netns: l.node, Link: linkName, EgressLinks: furtherLinks(true)})
	for address, endpoint := range services {
		at := netip.MustParseAddrPort(address)
		port := nodeports.Port{Address: at.Addr(), Protocol: "tcp", Number: at.Port(), Service: at, Local: true, Refuses: true}
		if endpoint != "" {
			port.Local, port.Endpoints = false, []netip.AddrPort{netip.MustParseAddrPort(endpoint)}
		}
		table.Put(port)
	}
	p := leadingPlace()
	at := nodeports.Place{IPv4: nodeports.Addresses{Edge: p.Edge}, Inside: slices.Concat(p.Pods, p.Services), Isolated: true, Balances: true}
	twice(t, func() (bool, error) { return table.Sync(at, porttables.Hosts{}, nil) })
}

// TestIsolatedServices sends packets of two isolated namespaces with the same addresses to services. The node leads both to their own
// endpoints, with its edge address, by the link that they came in by.
func TestIsolatedServices(t *testing.T) {
	l := newIsolatedLab(t, map[string][]string{"a/one": {"10.42.0.2"}, "b/one": {"10.42.0.2"}})
	node, onNode, networks, w := l.node, l.onNode, l.networks, l.w
	l.lead(t, map[string]string{
		"10.96.0.10:80": "10.42.1.2:8080", "10.96.0.20:80": "10.42.1.2:8081", "10.96.0.40:80": "192.168.33.11:8082", "10.96.0.50:80": "192.168.44.1:8082",
		"10.96.0.60:8080": "", "10.96.0.60:8081": "",
	})

	namespace.Listen(t, networks["a"], "8080")
	namespace.Listen(t, networks["b"], "8081")
	namespace.Listen(t, node, "8082")
	require.NoError(t, namespace.Dial(t, networks["a"], "10.96.0.10", "80", patience.Patience))
	require.NoError(t, namespace.Dial(t, networks["b"], "10.96.0.20", "80", patience.Patience))
	require.ErrorContains(t, namespace.Dial(t, networks["a"], "10.96.0.20", "80", patience.Patience), "refused", "the pod of its own namespace, which does not listen")
	require.NoError(t, namespace.Dial(t, networks["a"], "10.96.0.40", "80", patience.Patience), "an endpoint on the node itself")
	const elsewhere = "from " + linkPrefix + "* to no address but 192.168.33.11"
	before := l.dropped(elsewhere)
	require.Eventually(t, func() bool { // on a slow machine the time can be over before a packet is sent
		assert.Error(t, namespace.Dial(t, networks["a"], "10.96.0.50", "80", patience.Brief), "another address of the node")
		return l.dropped(elsewhere) > before
	}, patience.Patience, time.Millisecond)
	require.ErrorContains(t, namespace.Dial(t, networks["a"], "10.96.0.30", "80", patience.Patience), "refused", "nobody serves")
	require.Contains(t, onNode("ip rule"), "iif "+linkOf("a"))

	onNode("ip rule del priority 207; ip rule del priority 207")
	require.Error(t, namespace.Dial(t, networks["a"], "10.96.0.10", "80", patience.Brief), "it does not leave by the link of another namespace")
	twice(t, func() (bool, error) { return policyroute.Put(node, w.routers()) })
	require.NoError(t, namespace.Dial(t, networks["a"], "10.96.0.10", "80", patience.Patience))

	w.pairs = nil
	require.Contains(t, onNode("ip route show table all proto 206"), "100.96.0.1")
	twice(t, func() (bool, error) { return policyroute.Put(node, w.routers()) })
	require.NotContains(t, onNode("ip rule"), "iif")
	require.NotContains(t, onNode("ip route show table all proto 206"), "100.96.0.1")
}

// TestIsolatedNodesWithIPv6: a node with an IPv6 address leads no isolated namespace.
func TestIsolatedNodesWithIPv6(t *testing.T) {
	six := leadingPlace() // from a bridge of an earlier version
	six.Address = netip.MustParseAddr("fd00:33::11")
	w, err := newWanted(six, records(map[string][]string{"a/one": {"10.42.0.2", "fd00::2"}}), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"node:192.168.33.11:port:a fd00::2/128"}, w.show())
	ns, _ := namespace.WithShell(t)
	twice(t, func() (bool, error) { return w.PutRules(ns) })
}

package ovn_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/dhcpclient"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// Ports of the pods' servers. Policies allow open.
const (
	open8080   = 8080
	closed8081 = 8081
)

// Indexes of livePods.
const (
	aBlock, aSecond, aOther = 0, 1, 2
	bBlock, aSix, bSix      = 5, 7, 8
)

// vipOfB is a service with an endpoint in namespace b.
var vipOfB = netip.MustParseAddrPort("10.96.0.12:80")

// node1 is the management port of host1.
var node1 = netvirt.ManagementPort{
	Node: netip.MustParseAddr("192.168.0.1"), Network: netip.MustParsePrefix("100.96.0.0/16"), Address: netip.MustParseAddr("100.96.0.2"),
	ServiceAddress: netip.MustParseAddr("100.96.0.3"), MAC: "0a:58:64:60:00:02", Chassis: "host1",
}

// policies is what network policies make of the pods of namespace a: they are isolated, in both
// directions.
type policies struct {
	in, out netvirt.RemoteGroup // may connect to port 8080, may be connected to
	members map[int][]string    // remote groups of pods
	late    bool                // in and out do not exist yet
}

// model returns liveModel with a node, a service of namespace b, and policies.
func (p *policies) model() netvirt.Model {
	m := liveModel(false)
	m.Add(
		netvirt.NodeNetwork{Prefix: node1.Network, Gateway: netip.MustParseAddr("100.96.0.1"), Transit: netvirt.CommonRouteTarget}, node1,
		netvirt.Service{UID: "s2", Namespace: "b", Name: "web"},
		netvirt.ServiceVIP{
			Service: "s2", Namespace: "b", Protocol: netvirt.TCP, VIP: vipOfB,
			Endpoints: netvirt.NewEndpointList(netip.AddrPortFrom(netip.MustParseAddr(livePods[bBlock].address), open8080)),
		},
	)
	if p == nil {
		return m
	}
	node := netvirt.RemoteGroup{Name: "node-1", Prefixes: netvirt.NewPrefixList(netip.PrefixFrom(node1.Address, 32))}
	m.Add(
		netvirt.ACL{Name: "a:ingress", Namespace: "a", Isolates: netvirt.Ingress}, netvirt.ACL{Name: "a:egress", Namespace: "a", Isolates: netvirt.Egress},
		netvirt.ACL{Name: "a:policy-1", Namespace: "a"}, netvirt.ACL{Name: "a:node-1", Namespace: "a"}, node,
		netvirt.ACE{ACL: "a:node-1", Namespace: "a", Name: "node", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: node.Name},
	)
	if !p.late {
		m.Add(p.in, p.out)
	}
	for _, family := range []netvirt.Family{netvirt.IPv4, netvirt.IPv6} {
		m.Add(
			netvirt.ACE{
				ACL: "a:policy-1", Namespace: "a", Name: "ingress-" + string(family), Direction: netvirt.Ingress, Family: family,
				Remote: p.in.Name, Ports: "tcp:8080,udp:8080-8090",
			},
			netvirt.ACE{
				ACL: "a:policy-1", Namespace: "a", Name: "egress-" + string(family), Direction: netvirt.Egress, Family: family, Remote: p.out.Name,
			},
		)
	}
	for n, pod := range livePods {
		acl := netvirt.InterfaceACL{Interface: pod.iface(), Namespace: pod.ns, RemoteGroups: netvirt.NewNameList(p.members[n]...)}
		if pod.ns == "a" {
			acl.SecurityGroups = netvirt.NewNameList("a:ingress", "a:egress", "a:policy-1")
			if pod.host == 1 {
				acl.SecurityGroups = netvirt.NewNameList("a:ingress", "a:egress", "a:policy-1", "a:node-1")
			}
		}
		if acl.SecurityGroups+acl.RemoteGroups != "" {
			m.Add(acl)
		}
	}
	return m
}

// connection is a TCP connection from one pod to a port of another.
type connection struct {
	from, to int
	port     uint16
}

// TestPolicyTraffic: on a real OVN, exactly the connections are possible that the ACLs allow, in both layouts.
func TestPolicyTraffic(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	write(t, withLayout(t, lab, ovn.LayoutELAN), (*policies)(nil).model())
	for n, p := range livePods {
		p.plug(t, lab, n)
		for _, port := range []uint16{open8080, closed8081} {
			require.NoError(t, lab.Serve(p.iface(), port, http.HandlerFunc(echo)))
		}
	}
	plugNode(t, lab)
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) { testPolicyTraffic(t, lab, layout) })
	}
}

func testPolicyTraffic(t *testing.T, lab *ovnhost.Lab, layout ovn.Layout) {
	b := withLayout(t, lab, layout)
	stale, err := lab.HasStaleFlows(t.Context())
	require.NoError(t, err)
	apply := func(p *policies) {
		m := p.model()
		if layout == ovn.LayoutNode {
			m = withGateways(m)
		}
		write(t, b, m)
		require.NoError(t, lab.Sync(t.Context()))
		if stale {
			require.NoError(t, lab.ForgetFlows(t.Context()))
		}
	}

	apply(nil)
	requireConnections(t, lab, func(connection) bool { return true })
	before := dialEcho(t, lab, bBlock, aOther)

	// All pods of namespace a are isolated, and nothing is allowed: remote groups do not exist yet.
	nothing := &policies{in: netvirt.RemoteGroup{Name: "in"}, out: netvirt.RemoteGroup{Name: "out"}, late: true}
	apply(nothing)
	requireCut(t, before)
	outside := func(c connection) bool { return livePods[c.from].ns == "b" && livePods[c.to].ns == "b" }
	requireConnections(t, lab, outside)
	requireAlwaysAllowed(t, lab)

	// Pods of namespace b, and the second pod by its prefix, may connect to port 8080 of namespace a.
	second := netip.MustParsePrefix(livePods[aSecond].address + "/32")
	some := &policies{
		in: netvirt.RemoteGroup{Name: "in", Prefixes: netvirt.NewPrefixList(second)}, out: netvirt.RemoteGroup{Name: "out"},
		members: map[int][]string{bBlock: {"in", "out"}, bSix: {"in", "out"}, aOther: {"out"}},
	}
	apply(some)
	for _, n := range []int{aSix, bSix, aBlock} {
		_, err := lab.Exec(t.Context(), livePods[n].iface(), "ip", "neigh", "flush", "all")
		require.NoError(t, err)
	}
	allowed := func(c connection) bool {
		in := livePods[c.to].ns == "b" || c.port == open8080 && (c.from == bBlock || c.from == bSix || c.from == aSecond)
		out := livePods[c.from].ns == "b" || c.to == bBlock || c.to == bSix || c.to == aOther
		return in && out
	}
	requireConnections(t, lab, allowed)
	requireAlwaysAllowed(t, lab)
	require.Contains(t, []string{"other-host", "routed"}, page(t, lab, livePods[bBlock], vip))
	require.Equal(t, "block", page(t, lab, livePods[aBlock], vipOfB), "the endpoint is judged, not the service")
	kept, cut := dialEcho(t, lab, bSix, aSix), dialEcho(t, lab, bBlock, aOther)

	// The label of a pod changes: it cannot connect any more.
	relabelled := *some
	relabelled.members = map[int][]string{bBlock: {"out"}, bSix: {"in", "out"}, aOther: {"out"}}
	apply(&relabelled)
	requireCut(t, cut)
	require.NoError(t, exchange(kept, time.Minute))
	requireConnections(t, lab, func(c connection) bool { return allowed(c) && (c.from != bBlock || livePods[c.to].ns == "b") })

	// Every IPv4 address may connect.
	everyone := relabelled
	everyone.in.Prefixes = "0.0.0.0/0"
	everyone.members = map[int][]string{bBlock: {"out"}, bSix: {"out"}, aOther: {"out"}}
	apply(&everyone)
	requireCut(t, kept)
	requireConnections(t, lab, func(c connection) bool {
		in := livePods[c.to].ns == "b" || c.port == open8080 && netip.MustParseAddr(livePods[c.from].address).Is4()
		return in && (livePods[c.from].ns == "b" || c.to == bBlock || c.to == bSix || c.to == aOther)
	})

	apply(nil)
	requireConnections(t, lab, func(connection) bool { return true })
	for _, host := range []string{"host1", "host2"} {
		log, err := os.ReadFile(filepath.Join(lab.Logs(), host+"-controller.log"))
		require.NoError(t, err)
		for line := range strings.Lines(string(log)) {
			wrong := strings.Contains(line, "error parsing match") && !strings.Contains(line, "expecting address set name")
			require.False(t, wrong, line)
		}
	}
}

// requireAlwaysAllowed checks what no isolation drops.
func requireAlwaysAllowed(t *testing.T, lab *ovnhost.Lab) {
	t.Helper()
	require.Equal(t, "other-host", page(t, lab, livePods[aOther], netip.AddrPortFrom(everyIP.Addr(), open8080)), "itself, through a service")
	require.Equal(t, "six", page(t, lab, livePods[aSix], netip.AddrPortFrom(everyIPv6.Addr(), open8080)), "itself, through a service")
	require.Equal(t, "block", page(t, lab, nodePod, netip.AddrPortFrom(netip.MustParseAddr(livePods[aBlock].address), closed8081)), "from its node")
	require.Error(t, connect(t.Context(), lab, nodePod.iface(), livePods[aOther].address, open8080), "from another node")
	for _, n := range []int{aBlock, aOther} {
		lease, err := dhcpclient.Ask(t.Context(), lab, livePods[n].iface(), livePods[n].mac(n))
		require.NoError(t, err)
		require.Equal(t, livePods[n].address, lease.Address.String())
	}
}

// nodePod is the namespace that stands for host1 behind its management port.
var nodePod = livePod{ns: "node", name: "192.168.0.1:management", host: 1}

func plugNode(t *testing.T, lab *ovnhost.Lab) {
	t.Helper()
	mac, err := net.ParseMAC(node1.MAC)
	require.NoError(t, err)
	require.Equal(t, node1.Name(), nodePod.iface())
	require.NoError(t, lab.Plug(t.Context(), ovnhost.Pod{
		Host: "host1", Name: node1.Name(), PortName: "management", MAC: mac, Address: netip.PrefixFrom(node1.Address, 16),
		Gateway: netip.MustParseAddr("100.96.0.1"),
	}))
}

// echo answers with the name of the pod. Over an upgraded connection it sends back what it gets.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		_, _ = io.WriteString(w, nameOf(local))
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.Copy(conn, buffered)
}

func nameOf(local net.Addr) string {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return ""
	}
	for _, p := range livePods {
		if p.address == at.Addr().Unmap().String() {
			return p.name
		}
	}
	return ""
}

// requireConnections checks all connections between the pods, at both ports. Those that must have no answer wait at the same time.
func requireConnections(t *testing.T, lab *ovnhost.Lab, allowed func(connection) bool) {
	t.Helper()
	var (
		wg     sync.WaitGroup
		tokens = make(chan struct{}, 12)
		mu     sync.Mutex
		wrong  = map[string]string{}
	)
	for from := range livePods {
		for to := range livePods {
			for _, port := range []uint16{open8080, closed8081} {
				c := connection{from, to, port}
				if from == to || !sameFamily(livePods[from], livePods[to]) {
					continue
				}
				allows := allowed(c)
				wg.Go(func() {
					if allows {
						tokens <- struct{}{}
						defer func() { <-tokens }()
					}
					if problem := judge(t.Context(), lab, c, allows); problem != "" {
						mu.Lock()
						defer mu.Unlock()
						wrong[fmt.Sprintf("%s to %s port %d", livePods[from].iface(), livePods[to].iface(), port)] = problem
					}
				})
			}
		}
	}
	wg.Wait()
	require.Empty(t, wrong)
}

// judge tries a connection: several times if it must succeed, because OVN may drop the first
// packets while it resolves addresses.
func judge(ctx context.Context, lab *ovnhost.Lab, c connection, allowed bool) (problem string) {
	tries := 1
	if allowed {
		tries = 20
	}
	var err error
	for range tries {
		if err = connect(ctx, lab, livePods[c.from].iface(), livePods[c.to].address, c.port); err == nil {
			break
		}
	}
	switch {
	case allowed && err != nil:
		return err.Error()
	case !allowed && err == nil:
		return "is connected"
	}
	return ""
}

func connect(ctx context.Context, lab *ovnhost.Lab, from, to string, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := lab.Dial(ctx, from, "tcp", netip.AddrPortFrom(netip.MustParseAddr(to), port).String())
	if err == nil {
		err = conn.Close()
	}
	return err
}

// dialEcho opens a connection to the echo server of a pod, and uses it.
func dialEcho(t *testing.T, lab *ovnhost.Lab, from, to int) net.Conn {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(livePods[to].address), open8080)
	conn, err := lab.Dial(t.Context(), livePods[from].iface(), "tcp", at.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: pod\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, exchange(conn, time.Minute))
	return conn
}

// exchange sends a byte, and waits for some time until it comes back.
func exchange(conn net.Conn, within time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// requireCut waits until nothing comes back over an established connection. The datapath learns of changed flows within half a second.
func requireCut(t *testing.T, conn net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return exchange(conn, 3*time.Second) != nil }, patience.Patience, patience.Brief, "the connection still works")
}

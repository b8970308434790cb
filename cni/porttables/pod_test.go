package porttables_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// podWorld is a world in which the namespace outside is that of a pod, which reaches cluster addresses by the node.
type podWorld struct {
	*world
	ports *porttables.PodPorts
}

func newPodWorld(t *testing.T) *podWorld {
	t.Helper()
	w := &podWorld{newWorld(t), porttables.NewPodPorts()}
	w.run(w.outside, "ip route add 10.0.0.0/8 via "+node)
	require.NoError(t, w.ports.Create(w.outside, w.ports.All()))
	return w
}

// change changes ports.
func (w *podWorld) change(ports ...nodeports.Port) {
	w.Helper()
	w.ports.Replace(ports, place.Inside)
	changes := w.ports.Take()
	require.False(w, changes.Empty())
	require.NoError(w, w.ports.Change(w.outside, changes))
	require.True(w, w.ports.Take().Empty())
}

// create gives the namespace all ports.
func (w *podWorld) create(ports ...nodeports.Port) {
	w.Helper()
	w.ports.Replace(ports, place.Inside)
	w.ports.Take()
	require.NoError(w, w.ports.Create(w.outside, w.ports.All()))
}

func (w *podWorld) asks(network, want string) {
	w.Helper()
	w.answers(w.outside, client, network, service+":80", want+" "+client)
}

func inPods(protocol string, pods ...string) nodeports.Port {
	return at(service, direct(protocol, 80, pods...))
}

// TestPod: programs of a pod are led to endpoints, which see the address of the pod. All other packets go on as they are. The rules follow
// the ports. Created ports and changed ones are the same.
func TestPod(t *testing.T) {
	w := newPodWorld(t)
	w.asks("tcp", service+":80")
	w.create(inPods("tcp", pod1))
	local := inPods("tcp", pod2)
	local.Local = true
	w.change(local)
	w.asks("tcp", pod2+":8080")
	w.change(inPods("tcp", pod1), inPods("udp", pod1))
	changed := w.run(w.outside, "nft -s list ruleset")
	w.create(inPods("tcp", pod1), inPods("udp", pod1))
	require.Equal(t, changed, w.run(w.outside, "nft -s list ruleset"))
	w.asks("tcp", pod1+":8080")
	w.asks("udp", pod1+":8080")
	w.answers(w.outside, client, "tcp", pod2+":8080", pod2+":8080 "+client)

	w.change(inPods("udp", pod1), inPods("tcp"))
	w.asks("tcp", service+":80")
	w.asks("udp", pod1+":8080")
	require.NoError(t, w.ports.RemoveAll(w.outside, place.Inside))
	require.Empty(t, w.run(w.outside, "nft list ruleset"))
	w.create()
	require.Empty(t, w.run(w.outside, "nft list ruleset"))
}

// TestUDPOfPod: packets of UDP go to the endpoints of now, also if the rules are created again. Other connections stay.
func TestUDPOfPod(t *testing.T) {
	w := newPodWorld(t)
	w.create(inPods("tcp", pod1))
	going, err := w.dial(w.outside, client, "udp", service+":80")
	require.NoError(t, err)
	defer func() { require.NoError(t, going.Close()) }()
	for i, step := range []struct {
		ports  []nodeports.Port
		create bool
		want   string
	}{
		{nil, false, service + ":80"}, {[]nodeports.Port{inPods("udp", pod1)}, false, pod1 + ":8080"}, {[]nodeports.Port{inPods("udp", pod2)}, false, pod2 + ":8080"},
		{[]nodeports.Port{inPods("udp", pod1)}, true, pod1 + ":8080"}, {[]nodeports.Port{inPods("udp", pod2, pod1)}, false, pod1 + ":8080"},
		{nil, true, service + ":80"}, {[]nodeports.Port{inPods("udp", pod2)}, true, pod2 + ":8080"}, {nil, false, service + ":80"},
	} {
		if ports := slices.Concat(step.ports, []nodeports.Port{inPods("tcp", pod1)}); step.create {
			w.create(ports...)
		} else if i > 0 {
			w.change(ports...)
		}
		got, err := answer(going, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, step.want+" "+client, got, i)
	}
}

// TestExternalOfPod: a pod is led by an external address too, as long as that is a port. A client that keeps sending UDP follows, also if the rules are
// created again without it.
func TestExternalOfPod(t *testing.T) {
	w := newPodWorld(t)
	w.withExternal()
	w.run(w.node, "ip addr add "+external+"/32 dev lo")
	w.serveIn(w.node, external+":80")
	w.create(at(external, direct("udp", 80, pod1)), inPods("tcp", pod1))
	going, err := w.dial(w.outside, client, "udp", external+":80")
	require.NoError(t, err)
	defer func() { require.NoError(t, going.Close()) }()
	for _, want := range []string{pod1 + ":8080 ", external + ":80 "} {
		got, err := answer(going, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, want+client, got)
		w.create(inPods("tcp", pod1))
	}
}

// TestOpenConnectionsOfPod: a connection of TCP continues when the rules are created and changed, whether the pod or the node leads it.
func TestOpenConnectionsOfPod(t *testing.T) {
	w := newPodWorld(t)
	connect := func() net.Conn {
		conn, err := w.dial(w.outside, client, "tcp", service+":80")
		require.NoError(t, err)
		return conn
	}
	continues := func(conn net.Conn, want string) {
		t.Helper()
		got, err := answer(conn, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, want+" "+client, got)
		require.NoError(t, conn.Close())
	}
	byNode := connect()
	w.create(inPods("tcp", pod1))
	continues(byNode, service+":80")
	for _, step := range []struct {
		was    string
		change func()
	}{
		{pod1, func() { w.create(inPods("tcp", pod1)) }}, {pod1, func() { w.create(inPods("tcp", pod2)) }}, {pod2, func() { w.change(inPods("tcp", pod1)) }},
		{pod1, func() { w.change() }},
	} {
		led := connect()
		step.change()
		continues(led, step.was+":8080")
	}
}

// TestPodWithAffinity: a pod keeps its endpoint.
func TestPodWithAffinity(t *testing.T) {
	w := newPodWorld(t)
	port := inPods("tcp", pod1, pod2)
	port.Affinity = time.Hour
	w.create(port)
	first, err := w.ask(w.outside, client, "tcp", service+":80")
	require.NoError(t, err)
	for range 20 {
		w.answers(w.outside, client, "tcp", service+":80", first)
	}
	w.change(inPods("tcp", pod1))
	w.asks("tcp", pod1+":8080")
	w.change(port)
	changed := w.run(w.outside, "nft -s list chains; nft -s list map ip "+nodeports.TableName+" own-elsewhere")
	w.create(port)
	require.Equal(t, changed, w.run(w.outside, "nft -s list chains; nft -s list map ip "+nodeports.TableName+" own-elsewhere"))
}

// TestPodWithProxy: a proxy in the pod that takes its connections over gets those to services too.
func TestPodWithProxy(t *testing.T) {
	w := newPodWorld(t)
	w.create(inPods("tcp", pod1))
	w.serveIn(w.outside, "127.0.0.1:15001")
	w.run(w.outside, "nft add table ip proxy; nft add chain ip proxy out '{ type nat hook output priority -100; }'; "+
		"nft add rule ip proxy out tcp dport 80 redirect to :15001")
	w.asks("tcp", "127.0.0.1:15001")
}

// TestChangedByPod: ports are created whatever programs of the pod have made of the table. A change fails where the table is not as it was.
func TestChangedByPod(t *testing.T) {
	w := newPodWorld(t)
	w.create(inPods("tcp", pod1))
	before := w.run(w.outside, "nft -s list ruleset")
	for _, change := range []string{
		"nft delete table ip " + nodeports.TableName,
		"nft flush chain ip " + nodeports.TableName + " own",
		"nft delete table ip " + nodeports.TableName + "; nft add table ip " + nodeports.TableName + "; nft add set ip " + nodeports.TableName + " services '{ type inet_service; }'",
	} {
		w.run(w.outside, change)
		w.asks("tcp", service+":80")
		w.create(inPods("tcp", pod1))
		w.asks("tcp", pod1+":8080")
		require.Equal(t, before, w.run(w.outside, "nft -s list ruleset"), change)
	}
	w.run(w.outside, "nft delete table ip "+nodeports.TableName)
	w.ports.Put(inPods("tcp", pod2))
	require.Error(t, w.ports.Change(w.outside, w.ports.Take()))
}

// TestPodPortsLeftOut: invalid ports, ports without endpoints, and too many endpoints are left out.
func TestPodPortsLeftOut(t *testing.T) {
	p := porttables.NewPodPorts()
	invalid := inPods("tcp", pod1)
	invalid.Protocol = "icmp"
	none := inPods("tcp")
	for _, port := range []nodeports.Port{invalid, none, at("fd00::1", direct("tcp", 80, pod1))} {
		require.False(t, p.Put(port))
		p.Remove(port)
	}
	require.True(t, p.Take().Empty())
	many := func(i int) nodeports.Port {
		port := direct("tcp", uint16(1+i))
		port.Address = netip.MustParseAddr(service)
		for n := range nodeports.MaxEndpoints {
			port.Endpoints = append(port.Endpoints, netip.MustParseAddrPort(fmt.Sprintf("10.42.%d.%d:80", i, n)))
		}
		return port
	}
	fit := porttables.MaxInPods / nodeports.MaxEndpoints
	for i := range fit {
		require.True(t, p.Put(many(i)))
		require.True(t, p.Put(many(i)), "the same again")
	}
	require.False(t, p.Put(many(fit)))
	p.Remove(many(0))
	require.True(t, p.Put(many(fit)))
	p.Replace(nil, nil)
	require.True(t, p.Put(many(fit)))
}

// TestManyPortsOfPod: more ports than fit into one message are created and changed.
func TestManyPortsOfPod(t *testing.T) {
	w := newPodWorld(t)
	var all []nodeports.Port
	for i := range porttables.MaxInPods {
		port := inPods("tcp", pod1)
		port.Number = uint16(1 + i)
		all = append(all, port)
	}
	w.create(all...)
	w.asks("tcp", pod1+":8080")
	for i := range all {
		all[i].Endpoints = []netip.AddrPort{netip.MustParseAddrPort(pod2 + ":8080")}
	}
	w.change(all...)
	w.asks("tcp", pod2+":8080")
}

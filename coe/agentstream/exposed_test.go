package agentstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func exposedPorts(ports ...coe.ExposedPort) map[string][]byte {
	all := map[string][]byte{}
	for _, p := range ports {
		all["exposed/"+p.Name()], _ = json.Marshal(p)
	}
	return all
}

func nodeRecord(node string, number int) map[string][]byte {
	return map[string][]byte{nodeRecords + node: fmt.Appendf(nil, `{"node":%q,"number":%d}`, node, number)}
}

// TestExposedPorts: nodes with a place get every port, a local one with their own endpoints, and nothing
// when only the endpoints of others change.
func TestExposedPorts(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	web := coe.ExposedPort{Protocol: "tcp", Port: 30080, Namespace: "shop", To: netip.MustParseAddrPort("10.96.0.10:80")}
	put := func(records ...map[string][]byte) (all map[string][]byte) {
		all = map[string][]byte{}
		for _, r := range records {
			maps.Copy(all, r)
		}
		return all
	}
	networksOf := map[string][]byte{networksRecord: []byte(networks), CompleteRecord: []byte("x")}
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: put(networksOf, nodeRecord(node1, 1), exposedPorts(web))})
	shown := `{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80}`
	got := one()
	require.Len(t, got, 4)
	require.Equal(t, "coe-agent:exposed-port-changed"+shown, got[2])
	judge(t, "exposed-port-changed", []byte(shown))
	require.Len(t, two(), 2, "it has no place")

	h.Apply(Batch{Revision: 2, Put: nodeRecord(node2, 2)})
	require.Empty(t, one())
	got = two()
	require.Equal(t, "coe-agent:exposed-port-changed"+shown, got[1])

	h.Apply(Batch{Revision: 3, Put: exposedPorts(web)})
	require.Empty(t, one(), "nothing has changed")

	direct := web
	direct.Direct = []netip.AddrPort{netip.MustParseAddrPort("10.42.0.2:8080"), netip.MustParseAddrPort("10.42.1.2:8080")}
	h.Apply(Batch{Revision: 3, Put: exposedPorts(direct)})
	everywhere := shown[:len(shown)-1] + `,"endpoint":[{"ip":"10.42.0.2","port":8080},{"ip":"10.42.1.2","port":8080}]}`
	require.Equal(t, []string{"coe-agent:exposed-port-changed" + everywhere}, one())
	require.Equal(t, []string{"coe-agent:exposed-port-changed" + everywhere}, two(), "every node gets all endpoints")
	judge(t, "exposed-port-changed", []byte(everywhere))

	endpoint := func(node, at string) map[netip.Addr][]netip.AddrPort {
		return map[netip.Addr][]netip.AddrPort{netip.MustParseAddr(node): {netip.MustParseAddrPort(at)}}
	}
	near := direct
	near.Endpoints = endpoint(node2, "10.42.1.2:8080")
	h.Apply(Batch{Revision: 4, Put: exposedPorts(near)})
	require.Empty(t, one(), "it has all endpoints")
	require.Equal(t, []string{"coe-agent:exposed-port-changed" + shown[:len(shown)-1] + `,"endpoint":[{"ip":"10.42.1.2","port":8080}]}`}, two())

	local := web
	local.Local, local.Affinity, local.Endpoints = true, 120, endpoint(node1, "10.42.0.2:8080")
	h.Apply(Batch{Revision: 5, Put: exposedPorts(local)})
	both := `{"node":["192.168.33.11","192.168.33.12"]}`
	here := `{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,"local":true,"affinity":120,` +
		`"endpoint":[{"ip":"10.42.0.2","port":8080}]}`
	require.Equal(t, []string{"coe-agent:nodes-changed" + both, "coe-agent:exposed-port-changed" + here}, one())
	judge(t, "nodes-changed", []byte(both))
	judge(t, "exposed-port-changed", []byte(here))
	got = two()
	require.Contains(t, got[1], `"local":true`)
	require.NotContains(t, got[1], "endpoint")

	local.Endpoints = endpoint(node1, "10.42.0.9:8080")
	h.Apply(Batch{Revision: 6, Put: exposedPorts(local)})
	require.Contains(t, one()[0], "10.42.0.9")
	require.Empty(t, two(), "its endpoints have not changed")

	h.Apply(Batch{Revision: 7, Put: map[string][]byte{"exposed/tcp/30080": []byte("{"), "exposed/udp/1": []byte(`{"protocol":"tcp","port":1}`)}})
	require.Empty(t, one(), "an unreadable record changes nothing")

	h.Apply(Batch{Revision: 8, Delete: []string{nodeRecords + node2}})
	require.Equal(t, []string{`coe-agent:nodes-changed{"node":["192.168.33.11"]}`}, one())
	gone := `{"operation":"deleted","protocol":"tcp","port":30080}`
	require.Equal(t, []string{
		`coe-agent:node-changed{"operation":"deleted","node":"192.168.33.12"}`, `coe-agent:nodes-changed{"node":[]}`, "coe-agent:exposed-port-changed" + gone,
	}, two())
	require.Equal(t, []string{node1}, h.Keys(), "nothing is kept for a node without a place")

	h.Apply(Batch{Revision: 9, Delete: []string{"exposed/tcp/30080"}})
	require.Equal(t, []string{`coe-agent:nodes-changed{"node":[]}`, "coe-agent:exposed-port-changed" + gone}, one())
	judge(t, "exposed-port-changed", []byte(gone))
}

// TestExposedAddresses: ports of external addresses have a notification of their own, which earlier agents
// do not take for ports of the node.
func TestExposedAddresses(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	web := coe.ExposedPort{
		Address: netip.MustParseAddr("192.0.2.10"), Protocol: "tcp", Port: 80, Namespace: "shop", To: netip.MustParseAddrPort("10.96.0.10:80"),
	}
	all := nodeRecord(node1, 1)
	maps.Copy(all, exposedPorts(web))
	all[networksRecord], all[CompleteRecord] = []byte(networks), []byte("x")
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	shown := `{"operation":"put","external-address":"192.0.2.10","protocol":"tcp","port":80,"cluster-address":"10.96.0.10","service-port":80}`
	require.Equal(t, "coe-agent:exposed-address-changed"+shown, one()[2])
	judge(t, "exposed-address-changed", []byte(shown))

	web.Restricted, web.Sources = true, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	h.Apply(Batch{Revision: 2, Put: exposedPorts(web)})
	shown = shown[:len(shown)-1] + `,"restricted":true,"source-range":["203.0.113.0/24"]}`
	require.Equal(t, []string{"coe-agent:exposed-address-changed" + shown}, one())
	judge(t, "exposed-address-changed", []byte(shown))

	h.Apply(Batch{Revision: 3, Delete: []string{"exposed/tcp/80/192.0.2.10"}})
	gone := `{"operation":"deleted","external-address":"192.0.2.10","protocol":"tcp","port":80}`
	require.Equal(t, []string{"coe-agent:exposed-address-changed" + gone}, one())
	judge(t, "exposed-address-changed", []byte(gone))

	six := coe.ExposedPort{Address: netip.IPv6Unspecified(), Protocol: "tcp", Port: 30080, Namespace: "shop", To: netip.MustParseAddrPort("[fd97::10]:80")}
	h.Apply(Batch{Revision: 4, Put: exposedPorts(six)})
	shown = `{"operation":"put","external-address":"::","protocol":"tcp","port":30080,"cluster-address":"fd97::10","service-port":80}`
	require.Equal(t, []string{"coe-agent:exposed-ipv6-changed" + shown}, one())
	judge(t, "exposed-ipv6-changed", []byte(shown))
	h.Apply(Batch{Revision: 5, Delete: []string{"exposed/tcp/30080/::"}})
	gone = `{"operation":"deleted","external-address":"::","protocol":"tcp","port":30080}`
	require.Equal(t, []string{"coe-agent:exposed-ipv6-changed" + gone}, one())
	judge(t, "exposed-ipv6-changed", []byte(gone))
}

// TestOwnPorts: ports for programs of nodes have a notification of their own. That of a cluster address has the endpoints on
// the node, and that of a node port has those on all nodes of its family.
func TestOwnPorts(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	first, second := netip.MustParseAddr(node1), netip.MustParseAddr(node2)
	to := netip.MustParseAddrPort
	cluster := coe.ExposedPort{
		Address: netip.MustParseAddr("10.96.0.10"), Own: true, Protocol: "tcp", Port: 80, Namespace: "shop", To: to("10.96.0.10:80"), Local: true,
		Endpoints: map[netip.Addr][]netip.AddrPort{first: {to("10.42.0.2:8080")}},
	}
	all := nodeRecord(node1, 1)
	maps.Copy(all, nodeRecord(node2, 2))
	maps.Copy(all, exposedPorts(cluster))
	all[networksRecord], all[CompleteRecord] = []byte(networks), []byte("x")
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	shown := `{"operation":"put","external-address":"10.96.0.10","protocol":"tcp","port":80,"cluster-address":"10.96.0.10","service-port":80,"local":true}`
	got := two()
	require.Len(t, got, 4, "the addresses of nodes are not needed")
	require.Equal(t, "coe-agent:own-port-changed"+shown, got[2])
	judge(t, "own-port-changed", []byte(shown))
	require.Contains(t, one()[2], `"endpoint":[{"ip":"10.42.0.2","port":8080}]`)
	cluster.Endpoints, cluster.Refuses = nil, true
	h.Apply(Batch{Revision: 2, Put: exposedPorts(cluster)})
	shown = shown[:len(shown)-1] + `,"refuses":true}`
	require.Equal(t, []string{"coe-agent:own-port-changed" + shown}, two())
	judge(t, "own-port-changed", []byte(shown))
	one()
	h.Apply(Batch{Revision: 3, Delete: []string{"exposed/" + cluster.Name()}})
	gone := `{"operation":"deleted","external-address":"10.96.0.10","protocol":"tcp","port":80}`
	require.Equal(t, []string{"coe-agent:own-port-changed" + gone}, two())
	judge(t, "own-port-changed", []byte(gone))
	one()

	local := coe.ExposedPort{
		Protocol: "tcp", Port: 30080, Namespace: "shop", To: to("10.96.0.10:80"), Local: true, Affinity: 120, Shared: true, Every: true,
		Endpoints: map[netip.Addr][]netip.AddrPort{first: {to("10.42.0.2:8080")}, second: {to("10.42.1.2:8080"), to("10.42.1.3:8080")}},
	}
	h.Apply(Batch{Revision: 4, Put: exposedPorts(local)})
	shown = `{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,"affinity":120,"every":true,"endpoint":[` +
		`{"ip":"10.42.0.2","port":8080,"node":"192.168.33.11"},{"ip":"10.42.1.2","port":8080,"node":"192.168.33.12"},{"ip":"10.42.1.3","port":8080,"node":"192.168.33.12"}]}`
	require.Contains(t, one(), "coe-agent:own-port-changed"+shown)
	require.Contains(t, two(), "coe-agent:own-port-changed"+shown)
	judge(t, "own-port-changed", []byte(shown))

	local.Endpoints[first] = nil
	h.Apply(Batch{Revision: 5, Put: exposedPorts(local)})
	got = two()
	require.Len(t, got, 1, "its own endpoints have not changed")
	require.NotContains(t, got[0], "10.42.0.2")
	one()

	six := local
	six.Address, six.To = netip.IPv6Unspecified(), to("[fd97::10]:80")
	six.Endpoints = map[netip.Addr][]netip.AddrPort{first: {to("[fd42::2]:8080")}}
	h.Apply(Batch{Revision: 6, Put: exposedPorts(six)})
	got = one()
	require.Len(t, got, 1, "programs ask a node at its first address")
	require.Contains(t, got[0], "exposed-ipv6-changed")
	two()

	local.Shared = false
	h.Apply(Batch{Revision: 7, Put: exposedPorts(local)})
	gone = `{"operation":"deleted","protocol":"tcp","port":30080}`
	require.Equal(t, []string{"coe-agent:own-port-changed" + gone}, two())
	one()
	local.Shared = true
	h.Apply(Batch{Revision: 8, Put: exposedPorts(local)})
	require.Len(t, two(), 1)
	h.Apply(Batch{Revision: 9, Delete: []string{"exposed/tcp/30080"}})
	require.ElementsMatch(t, []string{"coe-agent:own-port-changed" + gone, "coe-agent:exposed-port-changed" + gone}, two()[:2])
}

// TestInsidePorts: every node gets the endpoints on all nodes of a local port for clients inside the cluster, beside its own ones.
func TestInsidePorts(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	to := netip.MustParseAddrPort
	first, second := netip.MustParseAddr(node1), netip.MustParseAddr(node2)
	port := coe.ExposedPort{
		Protocol: "tcp", Port: 30080, Namespace: "shop", To: to("10.96.0.10:80"), Local: true, Affinity: 120,
		Endpoints: map[netip.Addr][]netip.AddrPort{first: {to("10.42.0.2:8080")}},
		Inside:    []coe.InsideEndpoint{{At: to("10.42.0.2:8080"), Node: first}, {At: to("10.42.1.2:8080"), Node: second}},
	}
	external := port
	external.Address, external.Port, external.Restricted, external.Sources = netip.MustParseAddr("192.0.2.10"), 80, true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	all := nodeRecord(node1, 1)
	maps.Copy(all, nodeRecord(node2, 2))
	maps.Copy(all, exposedPorts(port, external))
	all[networksRecord], all[CompleteRecord] = []byte(networks), []byte("x")
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	const endpoints = `"endpoint":[{"ip":"10.42.0.2","port":8080,"node":"192.168.33.11"},{"ip":"10.42.1.2","port":8080,"node":"192.168.33.12"}]}`
	ofNode := `{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,"affinity":120,` + endpoints
	ofAddress := `{"operation":"put","external-address":"192.0.2.10","protocol":"tcp","port":80,"cluster-address":"10.96.0.10","service-port":80,` +
		`"restricted":true,"source-range":["10.0.0.0/8"],"affinity":120,` + endpoints
	for _, got := range [][]string{one(), two()} {
		require.Contains(t, got, "coe-agent:inside-port-changed"+ofNode)
		require.Contains(t, got, "coe-agent:inside-port-changed"+ofAddress)
	}
	judge(t, "inside-port-changed", []byte(ofNode))
	judge(t, "inside-port-changed", []byte(ofAddress))

	port.Inside = port.Inside[1:]
	h.Apply(Batch{Revision: 2, Put: exposedPorts(port)})
	require.Len(t, one(), 1)
	require.Len(t, two(), 1)
	port.Inside = nil
	h.Apply(Batch{Revision: 3, Put: exposedPorts(port)})
	gone := `{"operation":"deleted","protocol":"tcp","port":30080}`
	require.Equal(t, []string{"coe-agent:inside-port-changed" + gone}, two())
	judge(t, "inside-port-changed", []byte(gone))
	h.Apply(Batch{Revision: 4, Delete: []string{"exposed/" + external.Name()}})
	gone = `{"operation":"deleted","external-address":"192.0.2.10","protocol":"tcp","port":80}`
	require.ElementsMatch(t, []string{"coe-agent:inside-port-changed" + gone, "coe-agent:exposed-address-changed" + gone}, two())
}

// TestHealthChecks: a node gets the number of its own endpoints.
func TestHealthChecks(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	check := coe.ExposedPort{
		Protocol: "tcp", Port: 30081, Namespace: "shop", Health: &coe.ReadyCount{Service: "web", Ready: map[netip.Addr]int{netip.MustParseAddr(node1): 2}},
	}
	all := nodeRecord(node1, 1)
	maps.Copy(all, nodeRecord(node2, 2))
	maps.Copy(all, exposedPorts(check))
	all[networksRecord], all[CompleteRecord] = []byte(networks), []byte("x")
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	shown := `{"operation":"put","port":30081,"namespace":"shop","service":"web","local-endpoints":%d}`
	require.Equal(t, "coe-agent:health-check-changed"+fmt.Sprintf(shown, 2), one()[2])
	judge(t, "health-check-changed", fmt.Appendf(nil, shown, 2))
	require.Equal(t, "coe-agent:health-check-changed"+fmt.Sprintf(shown, 0), two()[2])

	// The port becomes a node port in one revision.
	web := exposedPorts(coe.ExposedPort{Protocol: "tcp", Port: 30081, Namespace: "shop", To: netip.MustParseAddrPort("10.96.0.10:80")})
	h.Apply(Batch{Revision: 2, Put: web, Delete: []string{"exposed/health/30081"}})
	gone := `{"operation":"deleted","port":30081}`
	got := two()
	require.Len(t, got, 2)
	require.Equal(t, "coe-agent:health-check-changed"+gone, got[0])
	require.Contains(t, got[1], "exposed-port-changed")
	judge(t, "health-check-changed", []byte(gone))
}

// TestExposedPortsAfterALoss: while the leader lists its sources again, nodes hear nothing.
func TestExposedPortsAfterALoss(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	all := nodeRecord(node1, 1)
	maps.Copy(all, exposedPorts(coe.ExposedPort{Protocol: "udp", Port: 30053, To: netip.MustParseAddrPort("10.96.0.10:53")}))
	all[networksRecord], all[CompleteRecord] = []byte(networks), []byte("x")
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	require.Len(t, one(), 4)
	h.Apply(Batch{Revision: 2, Delete: []string{CompleteRecord, "exposed/udp/30053"}})
	require.Empty(t, one())
	h.Apply(Batch{Revision: 3, Put: map[string][]byte{CompleteRecord: []byte("x")}})
	require.Len(t, one(), 3, "a snapshot without the port")
}

// exposeWorld is a Journal, and the ports of the services of each namespace.
type exposeWorld struct {
	diary    *diary
	ports    map[string][]coe.ExposedPort
	asked    int // calls of Ports
	complete atomic.Bool
	e        *Exposer
}

func newExposeWorld(t *testing.T, records map[string][]byte) *exposeWorld {
	w := &exposeWorld{diary: &diary{records: records}, ports: map[string][]coe.ExposedPort{}}
	w.e = NewExposer(w.diary, ExposedSource{
		HasServices: func(ns string) bool { return len(w.ports[ns]) > 0 },
		Ports: func(ns string) []coe.ExposedPort {
			w.asked++
			return w.ports[ns]
		},
		Complete: w.complete.Load,
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		w.e.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// sets sets the ports of a namespace, and returns the records after the Exposer has followed.
func (w *exposeWorld) sets(ns string, numbers ...uint16) []string {
	synctest.Wait()
	w.ports[ns] = nil
	for _, n := range numbers {
		w.ports[ns] = append(w.ports[ns], coe.ExposedPort{Protocol: "tcp", Port: n, Namespace: ns, To: netip.MustParseAddrPort("10.96.0.1:80")})
	}
	return w.settles(ns)
}

func (w *exposeWorld) settles(ns string) []string {
	w.e.Mark(ns)
	synctest.Wait()
	pause(context.Background(), 5*retryAfter)
	synctest.Wait()
	return w.diary.names()
}

// The records follow the ports of the namespaces, also when a port moves to another namespace, and
// after failed writes.
func TestExposer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newExposeWorld(t, map[string][]byte{})
		w.complete.Store(true)
		require.Equal(t, []string{"tcp/1", "tcp/2", "tcp/3", "tcp/4", "tcp/5"}, w.sets("a", 1, 2, 3, 4, 5))
		require.Equal(t, []string{"tcp/2", "tcp/3", "tcp/4", "tcp/5"}, w.sets("a", 2, 3, 4, 5))
		commits := w.diary.commits
		require.Len(t, w.settles("a"), 4)
		require.Equal(t, commits, w.diary.commits, "nothing has changed")

		w.ports["a"] = w.ports["a"][1:]
		w.e.Mark("a")
		require.Equal(t, []string{"tcp/2", "tcp/3", "tcp/4", "tcp/5"}, w.sets("b", 2), "the port belongs to b")
		require.Contains(t, string(w.diary.records["tcp/2"]), `"namespace":"b"`)
		require.Equal(t, []string{"tcp/3", "tcp/4", "tcp/5"}, w.sets("b"))

		w.diary.fails = 2
		require.Equal(t, []string{"tcp/9"}, w.sets("a", 9))
		require.Empty(t, w.sets("a"))
		w.settles("a")
		asked := w.asked
		w.settles("a")
		w.settles("pods")
		require.Equal(t, asked, w.asked, "namespaces without services and records are ignored")
	})
}

// Ports whose records are more than etcd takes at once are all written, and so are later ones.
func TestExposerOfLargeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newExposeWorld(t, map[string][]byte{})
		w.diary.most = 1000
		w.complete.Store(true)
		all := map[netip.Addr][]netip.AddrPort{}
		for n := range coe.MaxBackends {
			node := netip.AddrFrom4([4]byte{192, 168, 33, byte(n / coe.MaxExposedEndpoints)})
			all[node] = append(all[node], netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(n / 256), byte(n)}), 8080))
		}
		for n := range uint16(50) {
			w.ports["a"] = append(w.ports["a"], coe.ExposedPort{
				Protocol: "tcp", Port: 1 + n, Namespace: "a", To: netip.MustParseAddrPort("10.96.0.1:80"), Local: true, Endpoints: all,
			})
		}
		require.Len(t, w.settles("a"), 50)
		require.Len(t, w.sets("b", 99), 51)
	})
}

// Until the sources are complete, a new leader adds records, and neither changes nor deletes any. Then
// it deletes the records of namespaces that no longer exist.
func TestExposerOfANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := map[string][]byte{"tcp/7": []byte("damaged")}
		for _, p := range []coe.ExposedPort{{Protocol: "tcp", Port: 1, Namespace: "gone"}, {Protocol: "tcp", Port: 2, Namespace: "a"}} {
			before[p.Name()], _ = json.Marshal(p)
		}
		w := newExposeWorld(t, before)
		require.Equal(t, []string{"tcp/1", "tcp/2", "tcp/3", "tcp/7"}, w.sets("a", 2, 3))
		require.NotContains(t, string(w.diary.records["tcp/2"]), "10.96.0.1", "it may be incomplete")
		w.complete.Store(true)
		require.Equal(t, []string{"tcp/2", "tcp/3"}, w.settles("b"))
		require.Contains(t, string(w.diary.records["tcp/2"]), "10.96.0.1")
	})
}

// BenchmarkChangedEndpoint is one changed endpoint of a local port, with 5,000 ports and 50 nodes.
func BenchmarkChangedEndpoint(b *testing.B) {
	h := newHub()
	all := map[string][]byte{networksRecord: []byte(networks), CompleteRecord: []byte("x")}
	for n := range 50 {
		maps.Copy(all, nodeRecord(fmt.Sprintf("192.168.33.%d", n+1), n+1))
	}
	var ports []coe.ExposedPort
	for n := range 5000 {
		ports = append(ports, coe.ExposedPort{Protocol: "tcp", Port: uint16(n + 1), To: netip.MustParseAddrPort("10.96.0.1:80"), Local: true})
	}
	maps.Copy(all, exposedPorts(ports...))
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
	changed := slices.Clone(ports[:2])
	for i := range changed {
		changed[i].Port = 7
		changed[i].Endpoints = map[netip.Addr][]netip.AddrPort{netip.MustParseAddr(node1): {netip.AddrPortFrom(netip.MustParseAddr("10.42.0.2"), uint16(i+1))}}
	}
	revision := int64(1)
	for b.Loop() {
		revision++
		h.Apply(Batch{Revision: revision, Put: exposedPorts(changed[revision%2])})
	}
}

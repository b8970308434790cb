package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// world is what is wanted, and a backend with faults.
type world struct {
	*memory.Backend
	mu       sync.Mutex
	models   map[netvirt.Scope]netvirt.Model
	complete bool
	writes   atomic.Int64
	failing  error                     // what every call to the backend fails with
	unable   netvirt.Scope             // writes about which fail
	reject   func(netvirt.Change) bool // changes that the backend will not take
	changed  func()                    // tells the loop that an external writer changed the backend
	watching chan struct{}             // closed when changed is set
}

func newWorld() *world {
	return &world{
		Backend: memory.New(), complete: true,
		models: map[netvirt.Scope]netvirt.Model{}, watching: make(chan struct{}),
	}
}

func (w *world) Read(ctx context.Context) (netvirt.Model, error) {
	if err := w.fault(); err != nil {
		return nil, err
	}
	return w.Backend.Read(ctx)
}

func (w *world) Write(ctx context.Context, changes []netvirt.Change) error {
	w.writes.Add(1)
	if err := w.fault(); err != nil {
		return err
	}
	w.mu.Lock()
	reject, unable := w.reject, w.unable
	w.mu.Unlock()
	for _, c := range changes {
		if unable != "" && c.Scope() == unable {
			return errors.New("it fails")
		}
		if reject != nil && reject(c) {
			return &netvirt.RejectedError{Keys: []netvirt.Key{c.Key()}, Err: errors.New("not this one")}
		}
	}
	return w.Backend.Write(ctx, changes)
}

func (w *world) Watch(ctx context.Context, changed func()) error {
	w.changed = changed
	close(w.watching)
	<-ctx.Done()
	return nil
}

func (w *world) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) source() reconcile.Source { return wanted{w} }

// wanted is a world as a Source.
type wanted struct{ *world }

func (w wanted) Want(s netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.models[s].Parts(), nil
}

func (w wanted) Complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.complete
}

func (w wanted) Scopes() (all []netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.models {
		all = append(all, s)
	}
	return all
}

func (wanted) Revision() int64 { return 1 }
func (wanted) CaughtUp() bool  { return true }

// pods sets the interfaces that are wanted of a namespace, one for each pod.
func (w *world) pods(namespace string, names ...string) {
	m := netvirt.Model{}
	m.Add(netvirt.VPNInstance{Name: namespace, Namespace: namespace, RouteDistinguisher: "100:2"})
	for _, name := range names {
		m.Add(netvirt.Interface{Name: namespace + ":" + name, Namespace: namespace, Pod: name, PodUID: name, UID: name, ParentInterface: name})
	}
	w.set(func() { w.models[netvirt.Scope(namespace)] = m })
}

// listener notes what a Loop notifies of.
type listener struct {
	programmed func(scopes []netvirt.Scope, pods []string)
	observed   func(pods []string)
}

func (listener) Mapped(netvirt.Scope, []coe.Problem) {}

func (l listener) Programmed(scopes []netvirt.Scope, pods []string) {
	if l.programmed != nil {
		l.programmed(scopes, pods)
	}
}

func (l listener) Observed(pods []string) {
	if l.observed != nil {
		l.observed(pods)
	}
}

// want sets what is wanted of a namespace: n vpn-instances with a name each.
func (w *world) want(namespace string, n int) {
	m := netvirt.Model{}
	for i := range n {
		m.Add(netvirt.VPNInstance{Name: fmt.Sprintf("%s-%d", namespace, i), Namespace: namespace, RouteDistinguisher: "100:2"})
	}
	w.set(func() { w.models[netvirt.Scope(namespace)] = m })
}

func (w *world) start(t *testing.T) (*reconcile.Loop, *prometheus.Registry) {
	return w.startWith(t, reconcile.Config{})
}

func (w *world) startWith(t *testing.T, cfg reconcile.Config) (*reconcile.Loop, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	l := reconcile.New(cfg, "memory", w, w.source(),
		reconcile.NewMetrics(registry), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return l, registry
}

// awaitInSync waits until the loop has processed every scope. A loop that starts marks the cluster
// first, so it can be in sync before it knows the others.
func (w *world) awaitInSync(t *testing.T, l *reconcile.Loop) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, known := l.Status(), map[netvirt.Scope]bool{}
		for _, s := range st.Scopes {
			known[s.Scope] = true
		}
		all := true
		w.set(func() {
			for s, m := range w.models {
				all = all && (known[s] || len(m) == 0)
			}
		})
		return st.InSync && all
	}, patience.Patience, time.Millisecond)
}

func (w *world) requireInSync(t *testing.T, l *reconcile.Loop) {
	t.Helper()
	w.awaitInSync(t, l)
	want := netvirt.Model{}
	w.set(func() {
		for _, m := range w.models {
			maps.Copy(want, m)
		}
	})
	have, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, have)
}

func TestConverges(t *testing.T) {
	w := newWorld()
	w.want("a", 25)
	l, registry := w.start(t)
	w.requireInSync(t, l)
	w.want("a", 3)
	w.want("b", 1)
	l.Mark("a", "b")
	w.requireInSync(t, l)
	w.want("a", 0)
	l.Mark("a")
	w.requireInSync(t, l)
	for _, s := range l.Status().Scopes {
		require.NotEqual(t, netvirt.Scope("a"), s.Scope, "a scope of which nothing is left is forgotten")
	}
	inSync, err := testutil.GatherAndCount(registry, "coe_bridge_in_sync", "coe_bridge_backend_changes_total")
	require.NoError(t, err)
	require.Equal(t, 3, inSync, "the gauge, creations and deletions")
}

func TestLeftoversGoWhenComplete(t *testing.T) {
	w := newWorld()
	w.complete = false
	left := netvirt.VPNInstance{Name: "left", Namespace: "gone"}
	kept := netvirt.VPNInstance{Name: "a-0", Namespace: "a", RouteDistinguisher: "100:9"}
	require.NoError(t, w.Backend.Write(t.Context(), []netvirt.Change{{New: left}, {New: kept}}))
	w.want("a", 2)
	l, _ := w.start(t)
	l.Mark("a")
	require.Eventually(t, func() bool {
		m, _ := w.Backend.Read(t.Context())
		return len(m) == 3
	}, patience.Patience, time.Millisecond, "what is missing is made at once")
	m, _ := w.Backend.Read(t.Context())
	require.Equal(t, left, m[left.Key()], "nothing is removed")
	require.Equal(t, kept, m[kept.Key()], "nothing is changed")
	require.False(t, l.Status().InSync)

	w.set(func() { w.complete = true })
	l.Mark("a")
	w.requireInSync(t, l)
}

// A source can be complete before it has marked the scopes.
func TestInSyncAfterComplete(t *testing.T) {
	w := newWorld()
	w.complete = false
	w.want("a", 1)
	w.want("gone", 1)
	l, _ := w.start(t)
	compared := func(s netvirt.Scope) bool {
		return slices.ContainsFunc(l.Status().Scopes, func(one reconcile.ScopeStatus) bool { return one.Scope == s && one.InSync })
	}
	l.Mark("a", "gone")
	require.Eventually(t, func() bool { return compared("a") && compared("gone") && compared(netvirt.Cluster) }, patience.Patience, time.Millisecond)
	w.set(func() { w.complete = true })
	require.False(t, l.Status().InSync)
	l.Mark(netvirt.Cluster, "a", "gone")
	w.requireInSync(t, l)

	// A namespace goes while nothing is removed. The source does not know it when it is complete again.
	w.set(func() {
		w.complete = false
		delete(w.models, "gone")
	})
	l.Mark("gone")
	require.Eventually(t, func() bool {
		st := l.Status()
		return slices.ContainsFunc(st.Scopes, func(one reconcile.ScopeStatus) bool { return one.Scope == "gone" && one.Objects == 0 && one.InSync })
	}, patience.Patience, time.Millisecond)
	w.set(func() { w.complete = true })
	require.False(t, l.Status().InSync)
	l.Mark(netvirt.Cluster, "a")
	w.requireInSync(t, l)
}

// A pod of a name that another had, while it is not certain that the other is gone.
func TestNameOfOtherPodWaits(t *testing.T) {
	w := newWorld()
	pod := func(uid, address string) netvirt.Model {
		const name, namespace, elan = "a:web", "a", "10.0.0.1:a"
		addr, network := netip.MustParseAddr(address), netip.MustParsePrefix("10.11.0.0/24")
		m := netvirt.Model{}
		m.Add(netvirt.VPNInstance{Name: namespace, Namespace: namespace, RouteDistinguisher: "100:2"})
		m.Add(netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000})
		m.Add(netvirt.Subnet{ELAN: elan, VPN: namespace, Prefix: network, Gateway: network.Addr().Next()})
		m.Add(netvirt.Interface{Name: name, Namespace: namespace, Pod: "web", PodUID: uid, UID: uid})
		m.Add(netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan})
		m.Add(netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: namespace})
		m.Add(netvirt.MACEntry{Interface: name, Namespace: namespace, MAC: "0a:58:0a:0b:00:02", Address: addr})
		m.Add(netvirt.Adjacency{
			Interface: name, Namespace: namespace, Address: addr, MAC: "0a:58:0a:0b:00:02", ELAN: elan, Network: network, Gateway: network.Addr().Next(),
		})
		return m
	}
	before, after := pod("one", "10.11.0.2"), pod("two", "10.11.0.3")
	require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(nil, before)))
	w.complete, w.models["a"] = false, after
	other := netvirt.VPNInstance{Name: "a-1", Namespace: "a", RouteDistinguisher: "100:3"}
	after.Add(other)
	before.Add(other)
	l, _ := w.start(t)
	l.Mark("a")
	require.Eventually(t, func() bool {
		m, _ := w.Backend.Read(t.Context())
		return m[other.Key()] != nil
	}, patience.Patience, time.Millisecond, "what is new is made at once")
	m, _ := w.Backend.Read(t.Context())
	require.Equal(t, before, m, "the one's interface is not given the other's address")

	w.set(func() { w.complete = true })
	l.Mark("a")
	w.requireInSync(t, l)
}

// TestNewPodWithACLsWaits: the backend has a former entry of an ACL, and it is not certain that it is gone. A
// new pod with the ACL waits, and a problem says so. A pod without ACLs does not wait.
func TestNewPodWithACLsWaits(t *testing.T) {
	w := newWorld()
	acl := netvirt.ACL{Name: "a:isolated:ingress", Namespace: "a", Isolates: netvirt.Ingress}
	old := netvirt.ACE{ACL: acl.Name, Namespace: "a", Name: "ingress:web:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4}
	now := old
	now.Ports = "tcp:80"
	before := netvirt.Model{}
	before.Add(acl, old)
	require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(nil, before)))
	open, closed := podOf("open", "10.0.0.5"), podOf("a", "10.0.0.6")
	closed.Add(acl, now, netvirt.InterfaceACL{Interface: "a:pod", Namespace: "a", SecurityGroups: netvirt.NewNameList(acl.Name)})
	w.complete, w.models[netvirt.Cluster], w.models["a"], w.models["open"] = false, transit(), closed, open
	l, _ := w.start(t)
	l.Mark(netvirt.Cluster, "a", "open")
	require.Eventually(t, func() bool {
		m, _ := w.Backend.Read(t.Context())
		return m[netvirt.Interface{Name: "open:pod"}.Key()] != nil
	}, patience.Patience, time.Millisecond)
	m, _ := w.Backend.Read(t.Context())
	require.Equal(t, old, m[old.Key()])
	for _, o := range []netvirt.Object{netvirt.Interface{Name: "a:pod"}, netvirt.InterfaceACL{Interface: "a:pod"}, netvirt.VPNInterface{Name: "a:pod"}} {
		require.Nil(t, m[o.Key()], "%s", o.Key())
	}
	var problems []string
	for _, s := range l.Status().Scopes {
		for _, p := range s.Problems {
			problems = append(problems, fmt.Sprintf("%s %s %s: %s", p.Reason, p.Kind, p.UID, p.Message[:len("interface a:pod waits")]))
		}
	}
	require.Equal(t, []string{"Waiting pod uid: interface a:pod waits"}, problems)

	w.set(func() { w.complete = true })
	l.Mark("a")
	w.requireInSync(t, l)
	requireNoProblem(t, l)
}

func TestBackendFails(t *testing.T) {
	w := newWorld()
	w.want("a", 2)
	l, _ := w.start(t)
	w.requireInSync(t, l)
	w.set(func() { w.failing = errors.New("no route to host") })
	w.want("a", 5)
	l.Mark("a")
	require.Eventually(t, func() bool { return !l.Status().Peer.OK }, patience.Patience, time.Millisecond)
	require.Contains(t, l.Status().Peer.LastError, "no route to host")
	require.False(t, l.Status().InSync)
	w.set(func() { w.failing = nil })
	w.requireInSync(t, l)
	require.True(t, l.Status().Peer.OK)
}

// TestBackendFailsForOneScope: that the backend takes what is of others does not make it answer.
func TestBackendFailsForOneScope(t *testing.T) {
	w := newWorld()
	w.want("a", 1)
	w.want("b", 1)
	l, _ := w.start(t)
	w.requireInSync(t, l)
	w.set(func() { w.unable = "b" })
	w.want("b", 2)
	l.Mark("b")
	require.Eventually(t, func() bool { return !l.Status().Peer.OK }, patience.Patience, time.Millisecond)
	since := l.Status().Peer.Since
	for n := 2; n < 5; n++ {
		w.want("a", n)
		l.Mark("a")
		require.Eventually(t, func() bool {
			m, err := w.Backend.Read(t.Context())
			return err == nil && len(m) == n+1
		}, patience.Patience, time.Millisecond)
	}
	require.Equal(t, since, l.Status().Peer.Since, "it has not turned meanwhile")
	w.set(func() { w.unable = "" })
	w.requireInSync(t, l)
}

func TestRejectedIsSetAside(t *testing.T) {
	w := newWorld()
	transit := netvirt.Transit{RouteTarget: "100:1"}
	bad := netvirt.VPNInstance{Name: "bad", Namespace: "a", Transit: "100:1"}
	elan := netvirt.ELANInstance{Name: "192.168.0.1:a"}
	dependent := netvirt.Subnet{ELAN: elan.Name, VPN: "bad"}
	fine := netvirt.VPNInstance{Name: "fine", Namespace: "a"}
	w.reject = func(c netvirt.Change) bool { return c.New == netvirt.Object(bad) }
	w.models[netvirt.Cluster] = netvirt.Model{transit.Key(): transit}
	m := netvirt.Model{}
	m.Add(bad, elan, dependent, fine)
	w.models["a"] = m
	l, _ := w.start(t)
	w.awaitInSync(t, l)
	have, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	want := netvirt.Model{}
	want.Add(transit, elan, fine)
	require.Equal(t, want, have, "the rest of the scope goes on")
	problems := map[string]coe.Reason{}
	for _, s := range l.Status().Scopes {
		for _, p := range s.Problems {
			problems[p.Kind+" "+p.Name] = p.Reason
		}
	}
	require.Equal(t, map[string]coe.Reason{
		"vpn-instance bad":       coe.BackendRejected,
		dependent.Key().String(): coe.BackendRejected,
	}, problems)

	better := bad
	better.RouteDistinguisher = "100:5"
	w.set(func() {
		m.Add(better)
	})
	l.Mark("a")
	w.requireInSync(t, l)
	for _, s := range l.Status().Scopes {
		require.Empty(t, s.Problems)
	}
}

func TestExternalWriter(t *testing.T) {
	w := newWorld()
	w.want("a", 3)
	l, _ := w.start(t)
	w.requireInSync(t, l)
	<-w.watching
	unwanted := netvirt.VPNInstance{Name: "unwanted", Namespace: "z"}
	have, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Backend.Write(t.Context(), append(netvirt.Diff(have, nil), netvirt.Change{New: unwanted})))
	w.changed()
	require.Eventually(t, func() bool {
		m, err := w.Backend.Read(t.Context())
		return err == nil && len(m) == 3
	}, patience.Patience, time.Millisecond, "missing objects are created, and unwanted objects are removed")
	w.requireInSync(t, l)
}

func TestMarksAreGathered(t *testing.T) {
	w := newWorld()
	l, _ := w.start(t)
	w.requireInSync(t, l)
	before := w.writes.Load()
	for i := range 200 {
		ns := fmt.Sprintf("ns-%d", i)
		w.want(ns, 1)
		l.Mark(netvirt.Scope(ns))
	}
	w.requireInSync(t, l)
	require.Less(t, w.writes.Load()-before, int64(200), "what became due during a write goes into the next one")
}

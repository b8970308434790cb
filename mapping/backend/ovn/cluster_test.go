package ovn_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// never is the timeout of transactions in these tests: a server that hangs must be found in another way.
const never = time.Hour

// clustered returns a backend on members of a cluster, in this order.
func clustered(t *testing.T, c *ovsdb.Cluster, endpoints string) *ovn.Backend {
	t.Helper()
	b, err := ovn.New(ovn.Config{Endpoints: endpoints, Layout: ovn.LayoutNode, TLS: c.TLS(), Epoch: "5", Timeout: never}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// churn is a source whose pods, services and policies come and go, and a loop that writes them.
type churn struct {
	loop *reconcile.Loop

	mu       sync.Mutex
	world    *backendtest.World
	backend  backendtest.Backend
	parts    map[netvirt.Scope]netvirt.Parts
	scopes   map[netvirt.Scope]bool // also those that have become empty
	revision int64
}

func (c *churn) Want(s netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[s], nil
}

func (c *churn) Scopes() (all []netvirt.Scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.scopes {
		all = append(all, s)
	}
	return all
}

func (c *churn) Complete() bool { return true }
func (c *churn) CaughtUp() bool { return true }

func (c *churn) Revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// step changes the world.
func (c *churn) step() {
	c.mu.Lock()
	c.world.Step()
	c.revision++
	c.parts = c.world.ModelFor(c.backend).ByScope()
	for s := range c.parts {
		c.scopes[s] = true
	}
	c.mu.Unlock()
	c.loop.Mark(c.Scopes()...)
}

func (c *churn) model() netvirt.Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.world.ModelFor(c.backend)
}

// noted is a backend that records successful writes.
type noted struct {
	*ovn.Backend
	written chan time.Time // when each began; may be full
}

func (n noted) Write(ctx context.Context, changes []netvirt.Change) error {
	begin := time.Now()
	err := n.Backend.Write(ctx, changes)
	if err == nil {
		select {
		case n.written <- begin:
		default:
		}
	}
	return err
}

// await waits until a write that began after a time is in the database.
func (n noted) await(t *testing.T, begin time.Time) {
	t.Helper()
	timeout := time.After(patience.Patience)
	for {
		select {
		case at := <-n.written:
			if at.After(begin) {
				return
			}
		case <-timeout:
			require.Fail(t, "nothing is written any more")
		}
	}
}

// start runs a loop that writes a world until the test ends.
func start(t *testing.T, b backendtest.Backend, seed uint64, cfg reconcile.Config) *churn {
	t.Helper()
	c := &churn{world: backendtest.NewWorld(seed), backend: b, scopes: map[netvirt.Scope]bool{}}
	c.loop = reconcile.New(cfg, "ovn", b, c, reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// during changes the world until the returned function is called.
func (c *churn) during() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var stepping sync.WaitGroup
	stepping.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.step()
			}
		}
	})
	return func() {
		cancel()
		stepping.Wait()
	}
}

// trial is what happens to a cluster.
type trial struct {
	name       string
	begin, end func()
	schema     string // of the database after it
}

// withstand lets a fault happen while the world changes. Then the database has exactly the wanted rows.
func (c *churn) withstand(t *testing.T, cluster *ovsdb.Cluster, b noted, f trial) {
	t.Helper()
	stop := c.during()
	b.await(t, time.Now())
	begin := time.Now()
	f.begin()
	b.await(t, time.Now())
	next := time.Since(begin)
	ended := time.Now()
	f.end()
	b.await(t, time.Now())
	stop()
	c.step()
	require.Eventually(t, func() bool { return c.loop.Status().InSync }, patience.Patience, time.Millisecond, f.name)
	t.Logf("%s: next write after %v; in sync %v after its end", f.name, next.Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))

	for _, m := range cluster.Members {
		m.AwaitConnected(t)
	}
	want, have := rowsOf(t, c.model(), f.schema, ovn.LayoutNode), ""
	for end := time.Now().Add(patience.Patience); have != want && time.Now().Before(end); {
		have = cluster.Leader(t).Dump(t, tables...) // the loop can be in sync before it hears of the last change
	}
	require.Equal(t, want, have, f.name)
}

// TestCluster: pods, services and policies come and go while the members of a clustered database fail. Each fault
// ends, and the database has exactly the wanted rows.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := ovsdb.StartCluster(t)
	b := noted{clustered(t, cluster, cluster.Endpoints()), make(chan time.Time, 1000)}
	churn := start(t, b, 21, reconcile.Config{Timeout: never})
	var leader *ovsdb.Member
	for _, f := range []trial{
		{name: "leader killed", begin: func() { leader.Kill(t) }, end: func() { leader.Restart(t) }},
		{name: "leader frozen", begin: func() { leader.Stop(t) }, end: func() { leader.Continue(t) }},
		{name: "leader isolated", begin: func() { leader.Isolate(t) }, end: func() { leader.Connect(t) }},
		{name: "leader replaced", begin: func() { cluster.Replace(t, leader) }, end: func() {}},
		{name: "compacted", begin: func() {
			for _, m := range cluster.Members {
				m.Compact(t)
			}
		}, end: func() {}},
		{name: "certificates rotated, and leader killed", begin: func() { cluster.Rotate(t); leader.Kill(t) }, end: func() { leader.Restart(t) }},
	} {
		leader = cluster.Leader(t)
		f.schema = ovsdb.Schema("ovn/ovn-nb")
		churn.withstand(t, cluster, b, f)
	}
}

// rowsOf returns the rows of a model in a database of its own.
func rowsOf(t *testing.T, m netvirt.Model, schema string, layout ovn.Layout) string {
	t.Helper()
	server := ovsdb.Start(t)
	server.Convert(t, schema)
	b := open(t, server, func(c *ovn.Config) { c.Layout = layout })
	defer b.Close()
	write(t, b, m)
	return server.Dump(t, tables...)
}

// TestIsolatedMemberFirst: a bridge that first reaches a member without contact to the others uses another one, even
// if this member still believes to be the leader.
func TestIsolatedMemberFirst(t *testing.T) {
	t.Parallel()
	cluster := ovsdb.StartCluster(t)
	all := clustered(t, cluster, cluster.Endpoints())
	write(t, all, someModel(all))
	all.Close()

	isolated := cluster.Leader(t)
	isolated.Isolate(t)
	others := slices.DeleteFunc(slices.Clone(cluster.Members), func(m *ovsdb.Member) bool { return m == isolated })
	majority := clustered(t, cluster, others[0].Endpoint()+","+others[1].Endpoint())
	eventuallyWrite(t, majority, netvirt.Model{})

	begin := time.Now()
	b := clustered(t, cluster, isolated.Endpoint()+","+others[0].Endpoint()+","+others[1].Endpoint())
	require.Eventually(t, func() bool {
		have, err := b.Read(t.Context())
		require.Zero(t, len(have), "it has read the database of the isolated member")
		return err == nil
	}, patience.Patience, time.Millisecond)
	t.Logf("read after %v", time.Since(begin).Round(time.Millisecond))
}

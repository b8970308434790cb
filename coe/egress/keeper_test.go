package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// memoryJournal keeps records in memory. While broken is set, it makes half of a change and fails, and cannot be read.
type memoryJournal struct {
	mu      sync.Mutex
	records map[string][]byte
	broken  bool
	commits int
}

func (j *memoryJournal) Load(context.Context) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken {
		return nil, errors.New("broken")
	}
	return maps.Clone(j.records), nil
}

func (j *memoryJournal) MaxOps() int { return 2 }

func (j *memoryJournal) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.commits++
	maps.Copy(j.records, puts)
	for _, name := range deletes {
		delete(j.records, name)
	}
	if j.broken {
		return errors.New("broken")
	}
	return nil
}

// nodesOfTest answers like the agents of nodes that follow the records at once.
type nodesOfTest struct {
	journal *memoryJournal
	mu      sync.Mutex
	silent  map[netip.Addr]bool
	asked   int
	counted map[netip.Addr]int // questions with Count
	comesIn func(node netip.Addr) bool
}

func (n *nodesOfTest) ask(_ context.Context, q Question) Answer {
	n.mu.Lock()
	n.asked++
	if q.Count {
		n.counted[q.Node]++
	}
	silent, counts := n.silent[q.Node], uint64(n.counted[q.Node])
	n.mu.Unlock()
	if silent {
		pass(askTimeout)
		return Answer{}
	}
	n.journal.mu.Lock()
	set, _ := Decode(n.journal.records)
	n.journal.mu.Unlock()
	place := set.Place(q.Node)
	if place == nil || place.Key != fmt.Sprintf("%x", q.Key) {
		return Answer{Heard: true}
	}
	a := Answer{Heard: true, Answered: true, Version: place.Version}
	if q.Count {
		a.Received = map[string]uint64{}
		for _, p := range place.Addresses {
			if a.Received[p.Name] = 1; n.comesIn(q.Node) {
				a.Received[p.Name] = counts
			}
		}
	}
	return a
}

func (n *nodesOfTest) questions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

type kept struct {
	t       *testing.T
	store   *state.Store
	journal *memoryJournal
	nodes   *nodesOfTest
	keeper  *Keeper
	settled int
	stop    func()
}

func newKept(t *testing.T, records map[string][]byte) *kept {
	k := &kept{t: t, journal: &memoryJournal{records: records}}
	k.nodes = &nodesOfTest{
		journal: k.journal, silent: map[netip.Addr]bool{}, counted: map[netip.Addr]int{}, comesIn: func(netip.Addr) bool { return false },
	}
	k.store = state.NewStore(func(c state.Changed) {
		if (c.Egress || c.Cluster) && k.keeper != nil {
			k.keeper.Wake()
		}
	}, coe.Kubernetes)
	k.lead()
	return k
}

// lead starts a new leader.
func (k *kept) lead() {
	k.keeper = New(Config{
		Journal: k.journal, Store: k.store, Port: 1, Refuse: func(netip.Addr) *coe.Refusal { return nil },
		InForce: func(*coe.EgressIP) bool { return true }, Ask: k.nodes.ask, OnSettled: func() { k.settled++ }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(k.t, k.keeper.Load(k.t.Context()))
	ctx, cancel := context.WithCancel(k.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.keeper.Run(ctx)
	}()
	k.stop = func() {
		cancel()
		<-done
	}
}

func (k *kept) list(specs ...*coe.EgressSpec) {
	k.store.Update(func(tx *state.Tx) {
		for i, addr := range []netip.Addr{nodeA, nodeB} {
			tx.PutNode(coe.Kubernetes, &coe.Node{UID: fmt.Sprint(i), HostName: fmt.Sprint("node-", i), InternalIP: addr, Egress: true})
			tx.PutNodeFact(&coe.NodeFact{Node: addr, Number: uint32(i + 1)})
		}
		for _, s := range specs {
			tx.PutEgressSpec(s)
		}
		tx.SetEgressListed(true)
		tx.SetComplete(coe.Kubernetes)
	})
}

// cordon changes a node.
func (k *kept) cordon(node netip.Addr, is bool) {
	n := *k.store.Nodes()[node]
	n.Cordoned = is
	k.store.Update(func(tx *state.Tx) { tx.PutNode(coe.Kubernetes, &n) })
}

func (k *kept) host() netip.Addr {
	for _, e := range k.store.EgressIPs() {
		return e.Host()
	}
	return netip.Addr{}
}

// measures requires the metrics of one EgressIP that is held, and of moves.
func (k *kept) measures(planned, failover float64) {
	k.t.Helper()
	m := k.keeper.cfg.Metrics
	require.InDelta(k.t, 1, testutil.ToFloat64(m.ips.WithLabelValues(coe.EgressHeld)), 0)
	require.InDelta(k.t, planned, testutil.ToFloat64(m.moves.WithLabelValues(movePlanned)), 0)
	require.InDelta(k.t, failover, testutil.ToFloat64(m.moves.WithLabelValues(moveFailover)), 0)
	require.Equal(k.t, planned+failover > 0, testutil.ToFloat64(m.last) > 0)
}

var shop = &coe.EgressSpec{UID: "u", Name: "shop", Address: address}

// Without EgressIPs nothing is recorded and nobody is asked. With one, a node that dies is replaced in 3 s.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.list()
		pass(time.Hour)
		require.Zero(t, k.nodes.questions()+k.journal.commits)

		k.store.Update(func(tx *state.Tx) { tx.PutEgressSpec(shop) })
		pass(2 * time.Second)
		first := k.host()
		second := map[netip.Addr]netip.Addr{nodeA: nodeB, nodeB: nodeA}[first]
		k.measures(0, 0)
		require.True(t, second.IsValid())
		commits := k.journal.commits
		pass(time.Hour)
		require.Equal(t, commits, k.journal.commits)

		k.nodes.mu.Lock()
		k.nodes.silent[first] = true
		k.nodes.mu.Unlock()
		pass(2500 * time.Millisecond)
		require.Equal(t, second, k.host())
		k.measures(0, 1)

		k.nodes.mu.Lock()
		k.nodes.silent[first] = false
		k.nodes.mu.Unlock()
		pass(2 * time.Second)
		k.cordon(second, true)
		pass(5 * time.Second)
		require.Equal(t, first, k.host())
		k.measures(1, 1)
		k.cordon(second, false)
		k.cordon(first, true)
		pass(5 * time.Second)
		require.Equal(t, second, k.host())

		k.stop()
		k.lead()
		pass(time.Minute)
		require.Equal(t, second, k.host(), "the next leader continues")

		whole := maps.Clone(k.journal.records)
		for _, record := range []string{"shop", copyPrefix + "shop"} {
			k.journal.mu.Lock()
			k.journal.records[record], k.journal.records["other"] = []byte("{"), []byte("{}")
			k.journal.mu.Unlock()
			pass(compareEvery + time.Second)
			require.Equal(t, whole, k.journal.records, "a running leader repairs what others have damaged")
			require.Equal(t, second, k.host())
		}

		k.store.Update(func(tx *state.Tx) { tx.DeleteEgressSpec("u") })
		pass(time.Minute)
		require.Empty(t, k.store.EgressIPs())
		require.Empty(t, k.journal.records)
		asked := k.nodes.questions()
		pass(time.Hour)
		require.Equal(t, asked, k.nodes.questions())
	})
}

// The Keeper asks only the former node of a move for its packets, and only until no more come in there. Then the address moves.
func TestKeeperCountsPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.list(shop)
		pass(time.Minute)
		require.Empty(t, k.nodes.counted)
		former, until := k.host(), time.Now().Add(5*time.Second)
		k.nodes.comesIn = func(netip.Addr) bool { return time.Now().Before(until) }
		state := func() string { return k.store.EgressIPs()[0].State() }
		owner := func() netip.Addr { e := k.store.EgressIPs()[0]; return e.Hosts[e.Owner-1] }
		k.cordon(former, true)
		pass(time.Until(until) + settle - pace)
		require.NotEqual(t, former, k.host())
		require.Equal(t, former, owner())
		pass(4 * pace)
		require.Equal(t, k.host(), owner())
		require.Equal(t, coe.EgressMoving, state(), "the former node keeps its port")
		pass(linger)
		require.Equal(t, coe.EgressHeld, state())
		asked := maps.Clone(k.nodes.counted)
		require.Len(t, asked, 1)
		require.Positive(t, asked[former])
		pass(time.Minute)
		require.Equal(t, asked, k.nodes.counted)
	})
}

// Accepted EgressIPs apply before the sources are listed, and if they never are.
func TestKeeperBeforeTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.list(shop)
		pass(2 * time.Second)
		k.stop()
		records := k.journal.records

		k = newKept(t, records)
		first := k.host()
		require.True(t, first.IsValid())
		require.True(t, k.keeper.Settled())
		pass(time.Hour)
		require.Equal(t, first, k.host())
	})
}

// The copy of a damaged record is in force at once, and replaces the record. Removals go on.
func TestDamagedRecordWithCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		k.list(shop)
		pass(2 * time.Second)
		k.stop()
		records := maps.Clone(k.journal.records)
		for _, record := range []string{"shop", copyPrefix + "shop"} {
			broken := maps.Clone(records)
			broken[record] = []byte("{")
			next := newKept(t, broken)
			require.True(t, next.keeper.Settled())
			require.Equal(t, k.host(), next.host())
			require.Empty(t, next.store.Cluster().EgressProblems)
			next.list(shop)
			pass(2 * time.Second)
			require.Equal(t, records["shop"], next.journal.records[record])
			next.stop()
		}
	})
}

// A damaged record without a copy stays until the EgressIPs are listed, and then it is accepted again. Until then nothing may be removed.
func TestDamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{"shop": []byte("{"), "gone": []byte("")})
		defer func() { k.stop() }()
		pass(time.Minute)
		require.False(t, k.keeper.Settled())
		require.Len(t, k.journal.records, 2)
		require.Len(t, k.store.Cluster().EgressProblems, 2)
		k.list(shop)
		pass(2 * time.Second)
		require.True(t, k.keeper.Settled())
		require.Equal(t, 1, k.settled)
		require.True(t, k.host().IsValid())
		require.Empty(t, k.store.Cluster().EgressProblems)
		require.NotContains(t, k.journal.records, "gone")
	})
}

func TestJournalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.journal.broken = true
		k.list(shop)
		pass(time.Minute)
		k.journal.mu.Lock()
		k.journal.broken = false
		k.journal.mu.Unlock()
		pass(5 * time.Second)
		require.True(t, k.host().IsValid())
		set, damaged := Decode(k.journal.records)
		require.Empty(t, damaged)
		require.Equal(t, k.host(), set.EgressIPs[0].Host())
	})
}

// A commit can fail although its changes were made. The Set follows all the same.
func TestJournalFailsDuringAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.list(shop)
		pass(time.Minute)
		first := k.host()
		breaks := func(is bool) {
			k.journal.mu.Lock()
			defer k.journal.mu.Unlock()
			k.journal.broken = is
		}
		breaks(true)
		k.cordon(first, true)
		pass(3 * time.Second)
		breaks(false)
		pass(time.Minute)
		require.NotEqual(t, first, k.host())
	})
}

func TestUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, map[string][]byte{})
		defer func() { k.stop() }()
		k.keeper.cfg.Unsupported = "no"
		k.list(shop)
		pass(time.Second)
		require.Empty(t, k.store.EgressIPs())
		require.Equal(t, coe.NotEnforced, k.store.Cluster().EgressProblems[0].Reason)
	})
}

package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// emptyJournal is a Journal that takes every record and keeps none.
type emptyJournal struct{}

func (emptyJournal) Load(context.Context) (map[string][]byte, error)           { return nil, nil }
func (emptyJournal) Commit(context.Context, map[string][]byte, []string) error { return nil }
func (emptyJournal) MaxOps() int                                               { return 1000 }

// TestClaimerNotesThatRecordsAreComplete: the record that agents wait for is written once
// every source was heard. A write that fails is tried again within a second, although an
// address rests for an hour.
func TestClaimerNotesThatRecordsAreComplete(t *testing.T) {
	store := state.NewStore(func(state.Changed) {}, coe.RESTCONF)
	log := slog.New(slog.DiscardHandler)
	a := ipam.New(ipam.Config{ReuseDelay: time.Hour}, store, emptyJournal{}, log)
	require.NoError(t, a.Load(t.Context()))
	a.SetPools([]dhcppool.Pool{{Network: dhcppool.DefaultNetwork, Subnet: netip.MustParsePrefix("10.11.0.0/24")}})
	notes, marks, failed := 0, 0, errors.New("the datastore does not answer")
	exposed := 0
	c := &claimer{
		Assigner: a, log: log, expose: func(namespaces ...string) { exposed += len(namespaces) },
		markAll:      func([]string) { marks++ },
		noteComplete: func(context.Context) error { notes++; return failed },
	}
	sync := func() time.Duration {
		t.Helper()
		_, again, err := c.Sync(t.Context(), []string{coe.DefaultNamespace})
		require.NoError(t, err)
		return again
	}
	store.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "p", Name: "p", Namespace: coe.DefaultNamespace, HostIP: netip.MustParseAddr("192.168.33.11")})
	})
	sync()
	require.Len(t, store.View(coe.DefaultNamespace).Leases, 1)
	require.Equal(t, 1, exposed)
	require.Zero(t, notes, "a source was not heard")
	require.Zero(t, marks)

	store.Update(func(tx *state.Tx) {
		tx.DeletePod(coe.RESTCONF, "p")
		tx.SetComplete(coe.RESTCONF)
	})
	require.Equal(t, time.Second, sync())
	require.Equal(t, 1, notes)
	failed = nil
	require.Greater(t, sync(), 30*time.Minute)
	require.Equal(t, 2, notes)
	sync()
	require.Equal(t, 2, notes, "it is written once")
	require.Equal(t, 1, marks)
}

// hookedJournal calls a function in its next Commit.
type hookedJournal struct {
	emptyJournal
	hook func()
}

func (j *hookedJournal) Commit(context.Context, map[string][]byte, []string) error {
	if hook := j.hook; hook != nil {
		j.hook = nil
		hook()
	}
	return nil
}

// confirmedJournal is a Journal with the confirmation of one interface.
type confirmedJournal struct {
	emptyJournal
	deleted []string // written by the Confirmer
}

func (*confirmedJournal) Load(context.Context) (map[string][]byte, error) {
	return map[string][]byte{"p/": []byte("{}")}, nil
}

func (j *confirmedJournal) Commit(_ context.Context, _ map[string][]byte, deletes []string) error {
	j.deleted = append(j.deleted, deletes...)
	return nil
}

// TestSeenBeforeTheBackend: a new leader sees a pod that waits for its network before it has read the
// backend. It keeps the confirmations of the leader before it.
func TestSeenBeforeTheBackend(t *testing.T) {
	log, journal := slog.New(slog.DiscardHandler), &confirmedJournal{}
	b := &Bridge{log: log, store: state.NewStore(nil, coe.Kubernetes)}
	reporter, err := report.New(report.Config{}, &rest.Config{}, b.store, prometheus.NewRegistry(), log)
	require.NoError(t, err)
	b.cluster = &cluster{reporter: reporter}
	b.store.Update(func(tx *state.Tx) {
		tx.PutLease(&coe.Lease{Namespace: "shop", Name: "shop:p", Pod: "p", PodUID: "p"})
	})
	metrics := reconcile.NewMetrics(prometheus.NewRegistry())
	r := &role{side: side{loop: reconcile.New(reconcile.Config{}, "memory", memory.New(), source{}, metrics, log)}, claims: &reconcile.Claims{}}
	synctest.Test(t, func(t *testing.T) {
		r.confirmer = agentstream.NewConfirmer(b.store, journal, agentstream.ConfirmedBackend{
			Has: r.loop.Confirms, Network: func() agentstream.Network { return agentstream.Network{} },
		}, log)
		b.role.Store(r)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.confirmer.Run(ctx)
		}()
		b.seen(kube.PodSeen{UID: "p", Namespace: "shop", Name: "p", ResourceVersion: "1", NeedsReady: true})
		<-time.After(time.Minute)
		synctest.Wait()
		require.Empty(t, journal.deleted)
		cancel()
		<-done
	})
}

// TestPoolsAreSetInTheNewRole: a replica is elected while a change of the pools waits for another one. The assigner of the new
// role gets the changed pools.
func TestPoolsAreSetInTheNewRole(t *testing.T) {
	log, journal := slog.New(slog.DiscardHandler), &hookedJournal{}
	b := &Bridge{log: log}
	b.store = state.NewStore(b.changed, coe.RESTCONF)
	b.role.Store(&role{})
	r := &role{side: side{backend: memory.New()}, assigner: ipam.New(ipam.Config{}, b.store, journal, log)}
	require.NoError(t, r.assigner.Load(t.Context()))
	r.claims = reconcile.NewClaims(&claimer{Assigner: r.assigner, log: log}, log)
	b.repooling.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.setPosted([]dhcppool.Pool{{Network: dhcppool.DefaultNetwork, Subnet: netip.MustParsePrefix("10.11.0.0/16")}})
	}()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.posted) > 0
	}, patience.Patience, time.Millisecond)
	b.role.Store(r)
	b.repooling.Unlock()
	<-done
	require.NotNil(t, b.pooled.Load())
	require.Len(t, b.pooled.Load().pools, 1)
}

// TestNodesChangeWhileAClaimIsWritten: another node reports the address of a node whose
// claim is being written. The claim takes the address back, which changes the nodes while
// the Assigner has its lock: the bridge must not wait for it there.
func TestNodesChangeWhileAClaimIsWritten(t *testing.T) {
	log, address := slog.New(slog.DiscardHandler), netip.MustParseAddr("192.168.33.11")
	b := &Bridge{log: log}
	b.store = state.NewStore(b.changed, coe.RESTCONF, coe.Kubernetes)
	journal := &hookedJournal{}
	r := &role{
		side: side{backend: memory.New()}, confirmer: agentstream.NewConfirmer(b.store, journal, agentstream.ConfirmedBackend{}, log),
		assigner: ipam.New(ipam.Config{ReuseDelay: time.Hour, Repool: b.repoolWhenDue}, b.store, journal, log),
		keeper:   egress.New(egress.Config{Log: log}),
	}
	require.NoError(t, r.assigner.Load(t.Context()))
	c := &claimer{Assigner: r.assigner, expose: func(...string) {}, log: log}
	r.claims = reconcile.NewClaims(c, log)
	b.role.Store(r)
	b.store.Update(func(tx *state.Tx) { tx.PutNode(coe.RESTCONF, &coe.Node{UID: "first", InternalIP: address}) })
	journal.hook = func() {
		b.store.Update(func(tx *state.Tx) { tx.PutNode(coe.Kubernetes, &coe.Node{UID: "second", InternalIP: address}) })
		assert.Equal(t, "second", b.store.Nodes()[address].UID)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := c.Sync(t.Context(), nil)
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience.Patience):
		require.Fail(t, "the leader waits for itself")
	}
	require.Equal(t, "first", b.store.Nodes()[address].UID)
}

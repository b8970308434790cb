package replicas

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// A round of deposed halts the leader once, at a random moment of a heavy load.
const (
	stopRounds  = 4
	stopSeed    = 20261121
	stopWriters = 3
	stopPace    = 4 * time.Millisecond
	minStop     = 50 * time.Millisecond
	maxStop     = 500 * time.Millisecond
)

// stepsDown is the message of a bridge that is no longer the leader.
const stepsDown = "this bridge leads no more"

// fenced is in the message of a former leader whose write was refused.
const fenced = "a write was refused"

// TestDeposedLeader halts the leader in the middle of its work, in several rounds. Each time
// the other replica takes over.
func TestDeposedLeader(t *testing.T) {
	d := startDeposed(t)
	for round := range stopRounds {
		d.round(round, 0)
	}
	d.leader.Kill()
	await(t, patience, "the remaining replica leads", func() error { return d.other.leads(true) })
	d.other.awaitSync()
	requireExact(t, d.other, d.nb, requireAcknowledged(t, d.other, d.loads...))
}

// TestLeaderIsHaltedForAMinute: a minute is longer than every timeout between a leader and its
// servers.
func TestLeaderIsHaltedForAMinute(t *testing.T) {
	t.Parallel()
	startDeposed(t).round(0, time.Minute)
}

// deposed has two replicas. The leader is halted in the middle of its work. The other replica
// takes over, deletes pods and gives their addresses to new pods. When the first one resumes,
// it changes nothing, and becomes the standby replica.
type deposed struct {
	t             *testing.T
	nb            *ovsdb.Server
	etcd          *cluster
	leader, other *replica
	random        *rand.Rand
	loads         []*load
}

func startDeposed(t *testing.T) *deposed {
	t.Helper()
	d := &deposed{t: t, nb: ovsdb.Start(t), etcd: startEtcd(t, 1), random: rand.New(rand.NewPCG(stopSeed, 0))}
	// The pool is so small that addresses are given again.
	all := startReplicas(t, 2, d.etcd, d.nb, "--address-reuse-delay", "1s")
	d.leader, d.other = all[0], all[1]
	putPool(d.leader, "10.42.0.0/19")
	return d
}

// round halts the leader for at least a time. Then the other replica is the leader.
func (d *deposed) round(n int, atLeast time.Duration) {
	t := d.t
	t.Helper()
	stop := d.load()
	said := d.leader.Log().Len() // on a busy machine it may lose its lease before it is halted
	unfinished := haltMidway(d.leader, d.other, d.nb, d.random)
	halted := time.Now()
	await(t, patience, "the other one leads", func() error { return d.other.leads(true) })
	stop()
	deleteHalf(t, d.other, d.loads)
	d.other.awaitSync()
	await(t, patience, "addresses have rested", func() error { return noneRests(d.other) })
	pods := requireAcknowledged(t, d.other, d.loads...)
	requireExact(t, d.other, d.nb, pods)
	elapse(atLeast - time.Since(halted))

	before := written(t, d.etcd, d.nb)
	d.leader.Signal(syscall.SIGCONT)
	await(t, patience, "the first one is a standby replica", func() error { return d.leader.leads(false) })
	d.leader.logs(said, stepsDown)
	d.leader.awaitSync() // it has read the backend
	requireExact(t, d.leader, d.nb, pods)
	require.Equal(t, before, written(t, d.etcd, d.nb), "the deposed leader wrote nothing, in round %d", n)
	for _, tree := range trees {
		await(t, patience, "both give the same answers", func() error { return sameTree(t, d.other, d.leader, tree) })
	}
	t.Logf("round %d: halted for %s, with %d of the leases not written to the database", n, time.Since(halted).Round(time.Millisecond), unfinished)
	d.leader, d.other = d.other, d.leader
}

// load puts and deletes pods through the other replica until stop is called.
func (d *deposed) load() (stop func()) {
	var stops []func()
	for range stopWriters {
		l := newLoad(d.other, stopSeed, len(d.loads)*10000, stopPace)
		d.loads = append(d.loads, l)
		stops = append(stops, l.start(d.t))
	}
	return func() {
		for _, s := range stops {
			s()
		}
	}
}

// TestLeaderThatDoesNotKnow: the leader's election key is deleted, but its etcd lease still
// lives, so the leader does not notice. From then on all its writes are refused, and it learns
// from a refused write that it no longer leads.
func TestLeaderThatDoesNotKnow(t *testing.T) {
	nb, e := ovsdb.Start(t), startEtcd(t, 1)
	all := startReplicas(t, 2, e, nb, addressesRest...)
	putPool(all[0], "10.42.0.0/16")
	leases := watchLeases(t, e)
	l := newLoad(all[1], stopSeed, 0, stopPace)
	stop := l.start(t)
	leader, other := all[0], all[1]
	for range stopRounds {
		reached := l.number() + 20
		await(t, patience, "the load has reached the database", func() error { return rowSince(t, nb, reached) })
		said := leader.Log().Len()
		e.deleteElectionKey()
		await(t, patience, "the other one leads", func() error { return other.leads(true) })
		await(t, patience, "the first one is a standby replica", func() error { return leader.leads(false) })
		leader.logs(said, fenced)
		leader.logs(said, stepsDown)
		leader, other = other, leader
	}
	stop()
	leader.awaitSync()
	requireExact(t, leader, nb, requireAcknowledged(t, leader, l))
	leases.end(t)
}

// haltMidway halts the leader at random moments, until it has chosen addresses that are not yet
// in the database. It returns the number of these addresses.
func haltMidway(leader, other *replica, nb *ovsdb.Server, random *rand.Rand) (unfinished int) {
	await(leader.t, patience, "the leader is halted in the middle of its work", func() error {
		elapse(minStop + time.Duration(random.Int64N(int64(maxStop-minStop))))
		leader.Signal(syscall.SIGSTOP)
		if unfinished = unwritten(other, nb); unfinished == 0 {
			leader.Signal(syscall.SIGCONT)
			return errors.New("the leader had no unwritten addresses")
		}
		return nil
	})
	return unfinished
}

// unwritten counts the leases that have no port yet.
func unwritten(r *replica, nb *ovsdb.Server) int {
	r.t.Helper()
	var names []string
	for _, l := range r.leases() {
		if l.Released == "" {
			names = append(names, l.Name)
		}
	}
	return len(without(names, ports(r.t, nb, "name")))
}

// elapse waits while other processes work.
func elapse(d time.Duration) { <-time.After(d) }

// deleteHalf deletes every second pod.
func deleteHalf(t *testing.T, r *replica, loads []*load) {
	t.Helper()
	for _, l := range loads {
		for n, there := range l.there {
			if there && n%2 == 0 {
				r.change("DELETE", podPath(n), nil)
				l.there[n] = false
			}
		}
	}
}

// noneRests returns an error if a lease is released and rests.
func noneRests(r *replica) error {
	for _, l := range r.leases() {
		if l.Released != "" {
			return fmt.Errorf("%s is released", l.Name)
		}
	}
	return nil
}

// written returns the traces of the leaders' writes: the records with their revisions, and the
// size of the northbound database's file, which grows with each transaction.
func written(t *testing.T, e *cluster, nb *ovsdb.Server) []string {
	t.Helper()
	var all []string
	records, err := e.client().Get(t.Context(), recordsPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range records.Kvs {
		all = append(all, fmt.Sprintf("%s %d %d", kv.Key, kv.ModRevision, kv.Version))
	}
	path, found := strings.CutPrefix(nb.Endpoint(), "unix:")
	require.True(t, found)
	journal, err := os.Stat(filepath.Join(filepath.Dir(path), "nb.db"))
	require.NoError(t, err)
	require.NotEmpty(t, all, errors.New("no record"))
	return append(all, fmt.Sprintf("%d bytes", journal.Size()))
}

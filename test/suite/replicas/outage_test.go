package replicas

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// outage is longer than the leader's lease.
const outage = 5 * time.Second

// TestEtcdIsAway kills etcd, or halts it, for longer than the lease. The replicas keep running and serve
// the data in their memory. When etcd is back, one of them is elected.
func TestEtcdIsAway(t *testing.T) {
	nb, e := ovsdb.Start(t), startEtcd(t, 1)
	all := startReplicas(t, 2, e, nb)
	putPool(all[0], "10.42.0.0/16")
	all[0].change(http.MethodPut, podPath(0), podBody(0))
	server := e.Members[0]
	pods := map[string]int{podUID(0): 0}
	for n, way := range []struct {
		name      string
		away, fix func()
	}{
		{"killed", func() { server.Kill() }, func() { require.NoError(t, server.Start()) }},
		{"halted", signalling(t, server, syscall.SIGSTOP), signalling(t, server, syscall.SIGCONT)},
	} {
		way.away()
		begun := time.Now()
		for _, r := range all {
			require.NoError(t, r.open("/healthz"))
			await(t, patience, "the replica is not ready", func() error {
				if r.open("/readyz") == nil {
					return errors.New("it is")
				}
				return nil
			})
			require.NoError(t, r.read("config/pod:coe", new(any)))
		}
		elapse(outage - time.Since(begun))
		way.fix()
		back := time.Now()
		await(t, patience, "one leads", func() error { return oneLeads(all) })
		pods[podUID(n+1)] = n + 1
		all[n].change(http.MethodPut, podPath(n+1), podBody(n+1))
		for _, r := range all {
			await(t, patience, r.name+" has the pod's lease", func() error {
				if got := len(r.leases()); got != len(pods) {
					return fmt.Errorf("%d leases of %d", got, len(pods))
				}
				return nil
			})
			r.awaitSync()
			requireExact(t, r, nb, pods)
			await(t, patience, r.name+" is ready", func() error { return r.open("/readyz") })
		}
		t.Logf("etcd was %s: the replicas worked %s after it was back", way.name, time.Since(back).Round(time.Millisecond))
	}
}

func signalling(t *testing.T, m *etcd.Member, s syscall.Signal) func() {
	return func() { require.NoError(t, m.Signal(s)) }
}

// oneLeads returns an error unless exactly one replica leads.
func oneLeads(all []*replica) error {
	leaders := 0
	for _, r := range all {
		st, err := r.status()
		if err != nil {
			return err
		}
		if st.Leads {
			leaders++
		}
	}
	if leaders != 1 {
		return fmt.Errorf("%d lead", leaders)
	}
	return nil
}

// TestEtcdHasAnotherLeader kills the leading member of a cluster of three under load.
func TestEtcdHasAnotherLeader(t *testing.T) {
	t.Parallel()
	nb, e := ovsdb.Start(t), startEtcd(t, 3)
	all := startReplicas(t, 2, e, nb, addressesRest...)
	putPool(all[0], "10.42.0.0/16")
	leases := watchLeases(t, e)
	l := newLoad(all[1], 5, 0, loadPace)
	stop := l.start(t)
	await(t, patience, "the load has reached the database", func() error { return rowSince(t, nb, 20) })
	e.leader().Kill()
	first := l.number()
	await(t, patience, "a row of a later pod", func() error { return rowSince(t, nb, first) })
	stop()
	await(t, patience, "one leads", func() error { return oneLeads(all) })
	for _, r := range all {
		r.awaitSync()
		requireExact(t, r, nb, requireAcknowledged(t, r, l))
	}
	leases.end(t)
}

// TestDataFolderOfAnother: only one process can use the folder of an embedded etcd.
func TestDataFolderOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startReplica(t, "the first", "--data-dir", dir)
	out, err := exec.CommandContext(t.Context(), bridgetest.Program(t), "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another process uses it: stop that one, or give this one its own --data-dir")
}

// TestDatabaseOfAnother: two bridges with different datastores use the same northbound database. They do
// not undo each other's writes: the first one keeps the database until an operator gives it to the
// other.
func TestDatabaseOfAnother(t *testing.T) {
	t.Parallel()
	nb := ovsdb.Start(t)
	onNB := []string{"--backend", "ovn", "--ovn-nb", nb.Endpoint()}
	first := startReplica(t, "the first", onNB...)
	putPool(first, "10.42.0.0/16")
	first.change(http.MethodPut, podPath(0), podBody(0))
	first.awaitSync()
	rows := ports(t, nb, "name,addresses")
	require.Len(t, rows, 1)

	second := startReplica(t, "the second", onNB...)
	putPool(second, "10.43.0.0/16")
	second.change(http.MethodPut, podPath(1), podBody(1))
	await(t, patience, "the second bridge reports the owner of the database", func() error {
		st, err := second.status()
		if err == nil && (st.InSync || st.Backend.Connected || !second.Log().Says(0, "belongs to a bridge with another datastore")) {
			err = fmt.Errorf("status: %+v", st)
		}
		return err
	})
	first.awaitSync()
	require.Equal(t, rows, ports(t, nb, "name,addresses"))

	first.Kill()
	nb.NBCtl(t, "remove", "NB_Global", ".", "external_ids", "coe-bridge/epoch")
	second.awaitSync()
	requireExact(t, second, nb, map[string]int{podUID(1): 1})
}

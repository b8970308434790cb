package replicas

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
)

// underWay is how many requests of a leader can be between the question whether it may write and their sending (decision 27).
const underWay = 8

// TestDeposedLeaderOfOpenDaylight halts the leader in the middle of its work. The other replica
// takes over and changes objects. Then the first one resumes. OpenDaylight has no conditional
// writes, so the former leader itself must write nothing but what was under way.
func TestDeposedLeaderOfOpenDaylight(t *testing.T) {
	t.Parallel()
	fake, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte(odlfake.User+":"+odlfake.Password), 0o600))
	e := startEtcd(t, 1)
	args := []string{
		"--etcd-endpoints", strings.Join(e.Endpoints(), ","), "--backend", "odl", "--odl-url", server.URL, "--odl-auth-file", auth,
		"--address-reuse-delay", "1s",
	}
	leader := startReplica(t, "replica 0", args...)
	await(t, patience, "the first replica leads", func() error { return leader.leads(true) })
	other := startReplica(t, "replica 1", args...)
	putPool(leader, "10.42.0.0/16")
	random := rand.New(rand.NewPCG(stopSeed, 1))
	var loads []*load
	rounds := 0 // in which a former leader wrote
	for round := range stopRounds {
		l := newLoad(other, stopSeed, round*10000, stopPace)
		loads = append(loads, l)
		stop := l.start(t)
		said := leader.Log().Len() // on a busy machine it may lose its lease before it is halted
		await(t, patience, "the leader is halted in the middle of its work", func() error {
			elapse(minStop + time.Duration(random.Int64N(int64(maxStop-minStop))))
			leader.Signal(syscall.SIGSTOP)
			if missing := notIn(fake, other); missing == 0 {
				leader.Signal(syscall.SIGCONT)
				return errors.New("the leader had no unwritten interfaces")
			}
			return nil
		})
		await(t, patience, "the other one leads", func() error { return other.leads(true) })
		stop()
		deleteHalf(t, other, loads)
		other.awaitSync()
		await(t, patience, "addresses have rested", func() error { return noneRests(other) })
		requireAcknowledged(t, other, loads...)
		require.NoError(t, exactly(fake, other))

		fake.Requests()
		leader.Signal(syscall.SIGCONT)
		await(t, patience, "the first one is a standby replica", func() error { return leader.leads(false) })
		leader.logs(said, stepsDown)
		leader.awaitSync()
		seen := fake.Requests()
		writes := seen[http.MethodPut] + seen[http.MethodPost] + seen[http.MethodDelete]
		require.LessOrEqual(t, writes, underWay, "the deposed leader wrote, in round %d: %v", round, seen)
		if writes > 0 {
			rounds++
		}
		require.LessOrEqual(t, rounds, 1, "the former leader usually writes nothing")
		await(t, patience, "the leader corrects what was written", func() error { return exactly(fake, other) })
		leader, other = other, leader
	}
}

// notIn counts the leases of existing pods whose interfaces the controller does not have.
func notIn(fake *odlfake.Controller, r *replica) int {
	return len(without(livingOf(r), fake.Keys("ietf-interfaces:interfaces")))
}

func livingOf(r *replica) (names []string) {
	for _, l := range r.leases() {
		if l.Released == "" {
			names = append(names, l.Name)
		}
	}
	return names
}

// exactly returns an error unless the controller has exactly the interfaces of the leases of
// existing pods.
func exactly(fake *odlfake.Controller, r *replica) error {
	want := livingOf(r)
	for _, container := range []string{"ietf-interfaces:interfaces", "elan:elan-interfaces", "l3vpn:vpn-interfaces"} {
		have := fake.Keys(container)
		if missing, more := without(want, have), without(have, want); len(missing)+len(more) > 0 {
			return fmt.Errorf("%s: %v are missing, %v are not wanted", container, missing, more)
		}
	}
	return nil
}

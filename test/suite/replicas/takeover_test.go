package replicas

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// loadPace is the time between two pods: 20 pods/s.
const loadPace = 50 * time.Millisecond

// addressesRest has the flags with which addresses rest for longer than a test takes. No address is
// given to a second pod.
var addressesRest = []string{"--address-reuse-delay", "1h"}

// TestLeaderIsKilled kills the leader under load, and then the next leader.
func TestLeaderIsKilled(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			takeOver(t, seed, func(r *replica) { r.Kill() })
		})
	}
}

// TestLeaderIsStopped stops the leader as an operator does.
func TestLeaderIsStopped(t *testing.T) {
	t.Parallel()
	takeOver(t, 3, func(r *replica) {
		r.Signal(syscall.SIGTERM)
		t.Cleanup(func() { require.NoError(t, r.Wait()) })
	})
}

// takeOver ends the leader under load. It requires that another replica takes over, and that no
// acknowledged write is lost.
func takeOver(t *testing.T, seed uint64, end func(*replica)) {
	t.Helper()
	nb, e := ovsdb.Start(t), startEtcd(t, 1)
	all := startReplicas(t, 2, e, nb, addressesRest...)
	putPool(all[0], "10.42.0.0/16")
	leases := watchLeases(t, e)
	through := all[1]
	l := newLoad(through, seed, 0, loadPace)
	stop := l.start(t)
	await(t, patience, "the load has reached the database", func() error { return rowSince(t, nb, 20) })

	begun := time.Now()
	end(all[0])
	await(t, patience, "the other one leads", func() error { return through.leads(true) })
	first := l.number()
	await(t, patience, "a row of a later pod", func() error { return rowSince(t, nb, first) })
	t.Logf("seed %d: %s from the end of the leader to the first row", seed, time.Since(begun).Round(time.Millisecond))

	stop()
	through.awaitSync()
	requireExact(t, through, nb, requireAcknowledged(t, through, l))
	leases.end(t)
}

// rowSince returns an error unless the database has the port of a pod with a number or a later one.
func rowSince(t *testing.T, nb *ovsdb.Server, number int) error {
	t.Helper()
	for _, name := range ports(t, nb, "name") {
		_, digits, _ := strings.Cut(name, "pod-")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return fmt.Errorf("port %q: %w", name, err)
		}
		if n >= number {
			return nil
		}
	}
	return errors.New("the database has no such port")
}

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// answerWithin bounds the fastest POST while the backend is unreachable: less than the timeout of the backend.
	answerWithin = 8 * time.Second
	// returnWithin bounds the time until the model is in sync after the backend is reachable again.
	returnWithin = patience.Patience
)

// TestOutage stops the northbound server while pods are posted.
func TestOutage(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(*ovsdb.Server, testing.TB)
		lasts      time.Duration
	}{
		{"killed", (*ovsdb.Server).Kill, (*ovsdb.Server).Restart, 3 * time.Second},
		{"wiped", (*ovsdb.Server).Kill, (*ovsdb.Server).Wipe, 3 * time.Second},
		{"stopped", (*ovsdb.Server).Stop, (*ovsdb.Server).Continue, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nb := ovsdb.Start(t)
			r := startDefault(t, nb)
			posted := r.postPods(t, 0, 5)
			r.awaitSync(t, converge)

			c.begin(nb, t)
			posted += r.postDuring(t, posted, c.lasts)
			r.requireOutage(t)
			await(t, converge, "a lease for every pod, although the server is stopped", func() error {
				if living := len(r.living(t)); living != posted {
					return fmt.Errorf("%d leases for %d pods", living, posted)
				}
				return nil
			})
			c.end(nb, t)

			r.awaitSync(t, returnWithin)
			requireConfirmed(t, r)
			requirePorts(t, r, nb, posted)
		})
	}
}

// TestWipedWhileIdle wipes the database while the bridge has no work.
func TestWipedWhileIdle(t *testing.T) {
	t.Parallel()
	nb := ovsdb.Start(t)
	r := startDefault(t, nb)
	r.postPods(t, 0, 5)
	r.awaitSync(t, converge)
	rows := dump(t, nb)
	nb.Wipe(t)
	await(t, returnWithin, "all rows again", func() error { return sameSet(rows, dump(t, nb)) })
	r.awaitSync(t, returnWithin)
}

// TestDeposed: a later bridge claims the database. The former one writes no longer, until an operator
// gives the database back to it.
func TestDeposed(t *testing.T) {
	t.Parallel()
	nb := ovsdb.Start(t)
	r := startDefault(t, nb)
	r.postPods(t, 0, 2)
	r.awaitSync(t, converge)
	rows := dump(t, nb)

	nb.NBCtl(t, "set", "NB_Global", ".", `external_ids:"coe-bridge/epoch"="1000000"`)
	r.postPods(t, 2, 3)
	await(t, converge, "status names the later writer", func() error {
		st, err := r.status(t.Context())
		if err == nil && (st.InSync || st.Backend.Connected || !strings.Contains(st.Backend.LastError, "later writer")) {
			err = fmt.Errorf("status: %+v", st)
		}
		return err
	})
	require.Equal(t, rows, dump(t, nb))

	// An operator gives the database back to the former bridge.
	nb.NBCtl(t, "remove", "NB_Global", ".", "external_ids", "coe-bridge/epoch")
	r.awaitSync(t, returnWithin)
	requirePorts(t, r, nb, 5)
}

// startDefault starts a bridge with the settings of coe-bridge serve.
func startDefault(t *testing.T, nb *ovsdb.Server) rest {
	t.Helper()
	r := rest{bridgetest.Start(t, func(c *bridge.Config) {
		c.Backend = bridge.BackendConfig{Name: "ovn", OVN: ovn.Config{Endpoints: nb.Endpoint()}}
	}).Client()}
	r.putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})
	return r
}

// postPods posts pods. Each must be acknowledged.
func (r rest) postPods(t *testing.T, from, n int) int {
	t.Helper()
	for i := from; i < from+n; i++ {
		p := aPod{uid: uid("a", i), name: fmt.Sprintf("pod-%d", i), namespace: fmt.Sprintf("ns-%d", i%3), node: loadNodes[i%len(loadNodes)]}
		r.change(t, http.MethodPost, "pod:coe", p.body())
	}
	return n
}

// postDuring posts pods at intervals for a time, and returns their number.
func (r rest) postDuring(t *testing.T, from int, lasts time.Duration) int {
	t.Helper()
	end := time.After(lasts)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	fastest := converge
	for n := 0; ; n++ {
		begun := time.Now()
		r.postPods(t, from+n, 1)
		fastest = min(fastest, time.Since(begun))
		select {
		case <-end:
			require.Less(t, fastest, answerWithin, "a POST waits for the backend")
			return n + 1
		case <-tick.C:
		}
	}
}

// requireOutage requires that the status reports the outage.
func (r rest) requireOutage(t *testing.T) {
	t.Helper()
	await(t, converge, "the status reports the outage", func() error {
		st, err := r.status(t.Context())
		switch {
		case err != nil:
			return err
		case st.Backend.Connected:
			return errors.New("the status says that the backend is connected")
		case st.Backend.LastError == "":
			return errors.New("the status names no error")
		case st.InSync:
			return errors.New("the status says that all is in sync")
		}
		return nil
	})
}

// requirePorts requires a port for each pod, with the address of its lease.
func requirePorts(t *testing.T, r rest, nb *ovsdb.Server, pods int) {
	t.Helper()
	var want []string
	for _, l := range r.living(t) {
		want = append(want, l.Name+","+l.MAC+" "+l.Addresses[0].String())
	}
	require.Len(t, want, pods)
	require.ElementsMatch(t, want, ours(nb.NBCtl(t, columns("name,addresses", "find", "Logical_Switch_Port", `type=""`)...)))
}

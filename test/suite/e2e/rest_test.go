// Package e2e tests whole bridges on real parts, as their users see them. The tests use RESTCONF, send
// packets between OVN hosts, kill processes, stop databases, and compare with the recorded answers of
// a real OpenDaylight.
package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

const (
	// converge is the time in which a bridge must be in sync, on a busy machine.
	converge = patience.Patience
	// interval is the time between two checks.
	interval = 10 * time.Millisecond
)

// object is a JSON object.
type object map[string]any

// rest is a client of a bridge's draft-02 trees. It is safe for concurrent use.
type rest struct{ *serve.Client }

// do sends a request with a path such as "config/pod:coe". A body that is not a text is marshalled.
func (r rest) do(ctx context.Context, method, path string, body any) (status int, answer string, err error) {
	return r.Do(ctx, method, "/restconf/"+path, body)
}

// change writes to the config tree. The write must succeed.
func (r rest) change(t testing.TB, method, path string, body any) {
	t.Helper()
	status, answer, err := r.do(t.Context(), method, "config/"+path, body)
	require.NoError(t, err)
	require.Equal(t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

// read reads a tree into out. It does not change out if the tree does not exist.
func (r rest) read(ctx context.Context, path string, out any) error {
	_, err := r.Read(ctx, path, out)
	return err
}

// lease is an entry of coe-status:leases.
type lease struct {
	PodUID       string       `json:"pod-uid"`
	InterfaceUID string       `json:"interface-uid"`
	Name         string       `json:"interface-name"`
	Namespace    string       `json:"namespace"`
	Node         netip.Addr   `json:"node"`
	MAC          string       `json:"mac-address"`
	Addresses    []netip.Addr `json:"ip-address"`
	Released     string       `json:"released"`
}

func (r rest) leases(ctx context.Context) ([]lease, error) {
	var top struct {
		Leases []lease `json:"lease"`
	}
	err := r.read(ctx, "operational/coe-status:leases", &top)
	return top.Leases, err
}

// living returns the leases that are not released, by pod.
func (r rest) living(t testing.TB) map[string]lease {
	t.Helper()
	out, err := r.held(t.Context())
	require.NoError(t, err)
	return out
}

// held is living, for a bridge that possibly does not serve its leases yet.
func (r rest) held(ctx context.Context) (map[string]lease, error) {
	all, err := r.leases(ctx)
	out := map[string]lease{}
	for _, l := range all {
		if l.Released == "" {
			out[l.PodUID] = l
		}
	}
	return out, err
}

func (r rest) status(ctx context.Context) (bridgetest.Status, error) {
	var st bridgetest.Status
	err := r.read(ctx, "operational/coe-status:status", &st)
	return st, err
}

// awaitSync waits until the backend is in sync.
func (r rest) awaitSync(t testing.TB, within time.Duration) {
	t.Helper()
	await(t, within, "in sync", func() error {
		st, err := r.status(t.Context())
		if err == nil && !st.InSync {
			err = fmt.Errorf("not in sync: %+v", st)
		}
		return err
	})
}

// awaitProblems waits until the status has exactly these problems ("name reason"), in any order.
func (r rest) awaitProblems(t testing.TB, within time.Duration, want ...string) {
	t.Helper()
	await(t, within, "problems", func() error {
		st, err := r.status(t.Context())
		if err != nil {
			return err
		}
		got := make([]string, 0, len(st.Problems))
		for _, p := range st.Problems {
			got = append(got, p.Name+" "+p.Reason)
		}
		return sameSet(want, got)
	})
}

// await waits until holds returns nil. After a timeout it fails the test with the last error.
func await(t testing.TB, within time.Duration, what string, holds func() error) {
	t.Helper()
	bridgetest.Await(t, interval, within, what, holds)
}

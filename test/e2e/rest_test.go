// Package e2e tests whole bridges on real parts, as their users meet them: over
// RESTCONF, with packets on OVN hosts, with processes that are killed and
// databases that go away, and against what a real OpenDaylight answered.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
)

// requestTimeout bounds a request.
const requestTimeout = 10 * time.Second

// converge is how long a bridge may take to be in sync, on busy cores.
const converge = 20 * time.Second

// object is a JSON object.
type object map[string]any

// rest is a plain client of a bridge's draft-02 trees, for many goroutines.
type rest struct{ base string }

// do makes a request with a path as "config/pod:coe". A body is text, or marshalled.
func (r rest) do(ctx context.Context, method, path string, body any) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, isText := body.(string)
	if !isText && body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, "", err
		}
		text = string(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+"/restconf/"+path, strings.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	req.SetBasicAuth(bridgetest.User, bridgetest.Password)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, string(raw), err
}

// change writes to the config tree, which must succeed.
func (r rest) change(t testing.TB, method, path string, body any) {
	t.Helper()
	status, answer, err := r.do(t.Context(), method, "config/"+path, body)
	require.NoError(t, err)
	require.Equal(t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

// read reads a tree into out, which stays as it is when the tree is not there.
func (r rest) read(ctx context.Context, path string, out any) error {
	status, answer, err := r.do(ctx, http.MethodGet, path, nil)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound:
		return nil
	case status != http.StatusOK:
		return fmt.Errorf("GET %s: %d %s", path, status, answer)
	}
	var tops map[string]json.RawMessage
	if err := json.Unmarshal([]byte(answer), &tops); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	for _, content := range tops {
		if err := json.Unmarshal(content, out); err != nil {
			return fmt.Errorf("GET %s: %w", path, err)
		}
	}
	return nil
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

// living are the leases that are not released, by pod.
func (r rest) living(t testing.TB) map[string]lease {
	t.Helper()
	all, err := r.leases(t.Context())
	require.NoError(t, err)
	out := map[string]lease{}
	for _, l := range all {
		if l.Released == "" {
			out[l.PodUID] = l
		}
	}
	return out
}

func (r rest) status(ctx context.Context) (bridgetest.Status, error) {
	var st bridgetest.Status
	err := r.read(ctx, "operational/coe-status:status", &st)
	return st, err
}

// awaitSync waits until the backend has all that is wanted.
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

// awaitProblems waits until there are exactly these problems, "name reason", in
// any order.
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

// await polls until holds returns nil, and fails with its last error.
func await(t testing.TB, within time.Duration, what string, holds func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			require.NoError(t, err, "%s, within %s", what, within)
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err(), what)
		}
	}
}

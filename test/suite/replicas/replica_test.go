// Package replicas tests several bridges on one external etcd and one northbound database. Each bridge is
// a process, as in production. The tests check the election of a leader, the takeover by another
// replica, and that a former leader cannot write.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	// patience is the time in which an expected state must be reached on a busy machine.
	patience = 2 * time.Minute
	// interval is the time between two checks.
	interval = 10 * time.Millisecond
	// requestTimeout bounds a request, because a halted replica does not answer.
	requestTimeout = 10 * time.Second
)

// replica is a bridge process. Tests halt, resume and kill it.
type replica struct {
	*bridgetest.Process
	t    *testing.T
	name string
}

// startReplica starts a bridge with further arguments, and waits until it serves. The bridge ends with
// the test. With go test -short it skips the test instead.
func startReplica(t *testing.T, name string, args ...string) *replica {
	t.Helper()
	if testing.Short() {
		t.Skip("needs child processes: run without -short")
	}
	return startProgram(t, bridgetest.Program(t), name, args...)
}

// startProgram is startReplica with a bridge of another version, given by its path.
func startProgram(t *testing.T, program, name string, args ...string) *replica {
	t.Helper()
	return &replica{bridgetest.ServeProgram(t, program, args...), t, name}
}

// startReplicas starts several replicas on one etcd and one northbound database, one after the other. It
// returns when the first one leads.
func startReplicas(t *testing.T, n int, e *cluster, nb *ovsdb.Server, args ...string) []*replica {
	t.Helper()
	args = append(args, "--etcd-endpoints", strings.Join(e.Endpoints(), ","), "--backend", "ovn", "--ovn-nb", nb.Endpoint())
	var all []*replica
	for i := range n {
		all = append(all, startReplica(t, fmt.Sprintf("replica %d", i), args...))
		if i == 0 {
			await(t, patience, "the first replica leads", func() error { return all[0].leads(true) })
		}
	}
	return all
}

// do sends a request. A body is marshalled.
func (r *replica) do(ctx context.Context, method, path string, body any) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.Client().Do(ctx, method, path, body)
}

// change writes to the config tree. The write must succeed.
func (r *replica) change(method, path string, body any) {
	r.t.Helper()
	status, answer, err := r.Client().Do(r.t.Context(), method, "/restconf/config/"+path, body)
	require.NoError(r.t, err)
	require.Equal(r.t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

// open gets a page that needs no credentials. It returns nil if the answer is 200.
func (r *replica) open(path string) error {
	status, answer, err := r.do(r.t.Context(), http.MethodGet, path, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, status, answer)
	}
	return err
}

// read reads a tree ("operational/…") into out. It does not change out if the tree does not exist.
func (r *replica) read(path string, out any) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), requestTimeout)
	defer cancel()
	_, err := r.Client().Read(ctx, path, out)
	return err
}

// status is coe-status:status.
type status struct {
	bridgetest.Status
	Leads  bool   `json:"leads"`
	Leader string `json:"leader"`
}

func (r *replica) status() (st status, err error) {
	err = r.read("operational/coe-status:status", &st)
	return st, err
}

// leads returns an error unless the status and the metric report that the replica leads, or that it does
// not.
func (r *replica) leads(want bool) error {
	st, err := r.status()
	if err != nil {
		return err
	}
	_, metrics, err := r.do(r.t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		return err
	}
	line := "coe_bridge_leader 0\n"
	if want {
		line = "coe_bridge_leader 1\n"
	}
	if st.Leads != want || !strings.Contains(metrics, line) {
		return fmt.Errorf("%s: leads: %t, leader: %q, metric %q: %t", r.name, st.Leads, st.Leader, line, strings.Contains(metrics, line))
	}
	return nil
}

func (r *replica) awaitSync() {
	r.t.Helper()
	await(r.t, patience, r.name+" is in sync", func() error {
		st, err := r.status()
		if err == nil && !st.InSync {
			err = fmt.Errorf("not in sync: %+v", st)
		}
		return err
	})
}

// logs waits until a line of the log, from a number on, has a text. The replica answers requests before the test has read its log.
func (r *replica) logs(since int, text string) {
	r.t.Helper()
	await(r.t, patience, r.name+" logs "+text, func() error {
		if !r.Log().Says(since, text) {
			return errors.New(r.Log().Last())
		}
		return nil
	})
}

// await waits until holds returns nil. After a timeout it fails the test with the last error.
func await(t *testing.T, within time.Duration, what string, holds func() error) {
	t.Helper()
	bridgetest.Await(t, interval, within, what, holds)
}

// Package replicas tests several bridges on one external etcd and one northbound
// database, each a process as its users run it: who leads, who takes over, and what
// one that was deposed can still do, which is nothing.
package replicas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

const (
	buildTimeout = 3 * time.Minute
	// patience is how long what must happen may take on busy cores.
	patience = 30 * time.Second
	// requestTimeout bounds a request.
	requestTimeout = 10 * time.Second
)

// programDir is the folder of this run of the tests.
var programDir string

// program is the program, built once for all tests.
var program = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	path := filepath.Join(programDir, "coe-bridge")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/coe-bridge/coe-bridge/cmd/coe-bridge").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build coe-bridge: %w: %s", err, out)
	}
	return path, nil
})

// replica is one bridge: a process that a test stops, continues and kills.
type replica struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd // nil while it does not run
	log  *replicaLog
	url  string
	http *http.Client
}

// startReplica starts a bridge with further arguments, which ends with the test, and
// waits until it serves. With go test -short it skips the test instead.
func startReplica(t *testing.T, name string, args ...string) *replica {
	t.Helper()
	if testing.Short() {
		t.Skip("needs child processes: run without -short")
	}
	path, err := program()
	require.NoError(t, err)
	r := &replica{t: t, name: name, log: newReplicaLog(), http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{}}}
	r.cmd = exec.Command(path, append([]string{
		"serve", "--dev", "--listen", "127.0.0.1:0", "--log-format", "json",
	}, args...)...)
	output, err := r.cmd.StderrPipe()
	require.NoError(t, err)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, r.cmd.Start())
	go r.log.read(output)
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("the last of %s's log:\n%s", name, r.log.last(40))
		}
	})
	select {
	case r.url = <-r.log.url:
	case <-r.log.ended:
		require.Fail(t, "coe-bridge ended", "%s", r.log.last(20))
	case <-time.After(patience):
		require.Fail(t, "coe-bridge does not serve", "%s", r.log.last(20))
	}
	await(t, patience, name+" is ready", func() error { return r.open("/readyz") })
	return r
}

// startReplicas starts several on one etcd and one northbound database, one after the
// other. One of them leads when it returns, the first.
func startReplicas(t *testing.T, n int, e *etcd, nb *ovsdb.Server, args ...string) []*replica {
	t.Helper()
	args = append(args, "--etcd-endpoints", strings.Join(e.endpoints(), ","), "--backend", "ovn", "--ovn-nb", nb.Endpoint())
	var all []*replica
	for i := range n {
		all = append(all, startReplica(t, fmt.Sprintf("replica %d", i), args...))
		if i == 0 {
			await(t, patience, "the first leads", func() error { return all[0].leads(true) })
		}
	}
	return all
}

// signal sends the process a signal.
func (r *replica) signal(s syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
}

// kill ends the process with SIGKILL, if it runs, and waits for it.
func (r *replica) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.log.ended
	_ = r.cmd.Wait() // says that it was killed
	r.cmd = nil
	r.http.CloseIdleConnections()
}

// ends waits for a process that was told to end.
func (r *replica) ends() error {
	select {
	case <-r.log.ended:
	case <-time.After(patience):
		return errors.New("it goes on")
	}
	err := r.cmd.Wait()
	r.cmd = nil
	return err
}

// do makes a request; a body is marshalled.
func (r *replica) do(ctx context.Context, method, path string, body any) (status int, answer string, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, "", err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, "", err
	}
	req.SetBasicAuth(bridgetest.User, bridgetest.Password)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, string(raw), err
}

// change writes to the config tree, which must succeed.
func (r *replica) change(method, path string, body any) {
	r.t.Helper()
	status, answer, err := r.do(r.t.Context(), method, "/restconf/config/"+path, body)
	require.NoError(r.t, err)
	require.Equal(r.t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

// open reads what needs no credentials; nil when the answer is 200.
func (r *replica) open(path string) error {
	status, answer, err := r.do(r.t.Context(), http.MethodGet, path, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, status, answer)
	}
	return err
}

// read reads a tree, "operational/…", into out, which stays as it is when the tree is
// not there.
func (r *replica) read(path string, out any) error {
	status, answer, err := r.do(r.t.Context(), http.MethodGet, "/restconf/"+path, nil)
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

// leads is nil when the status and the metric say that the replica leads, or does not.
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

// replicaLog is what a replica has logged.
type replicaLog struct {
	url   chan string
	ended chan struct{}

	mu    sync.Mutex
	lines []string
}

func newReplicaLog() *replicaLog {
	return &replicaLog{url: make(chan string, 1), ended: make(chan struct{})}
}

func (l *replicaLog) read(output io.Reader) {
	defer close(l.ended)
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l.mu.Lock()
		l.lines = append(l.lines, lines.Text())
		l.mu.Unlock()
		var entry struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serving" {
			l.url <- entry.URL
		}
	}
}

// length is how many lines there are.
func (l *replicaLog) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// says tells whether a line since that number has a text.
func (l *replicaLog) says(since int, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines[since:], func(line string) bool { return strings.Contains(line, text) })
}

func (l *replicaLog) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// await polls until holds returns nil, and fails with its last error.
func await(t *testing.T, within time.Duration, what string, holds func() error) {
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
		}
	}
}

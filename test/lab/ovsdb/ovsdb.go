// Package ovsdb runs a real ovsdb-server with an empty OVN northbound database:
// a child process on a unix socket, without root, which a test can kill, stop,
// continue and wipe.
package ovsdb

import (
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is an ovsdb-server for a test. The test fails if the server does not start, run or
// end as it should.
type Server struct{ process *Process }

// Start starts a server, with further arguments if any, which ends with the
// test. With go test -short it skips the test instead; without, a machine that
// lacks OVN fails it.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs ovsdb-server: run without -short")
	}
	process, err := Run(args...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, process.Close())
		if t.Failed() {
			t.Logf("ovsdb-server: %s", process.Log())
		}
	})
	return &Server{process}
}

// Endpoint is the server's address as OVN spells it, unix:PATH.
func (s *Server) Endpoint() string { return s.process.Endpoint() }

// Restart ends the server with SIGKILL if it runs, and starts it with the
// database as it is.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Restart())
}

// Wipe restarts the server with an empty database.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Wipe())
}

// Kill ends the server with SIGKILL, and waits for it to be gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Kill())
}

// Stop halts the server with SIGSTOP: it accepts connections, and answers nothing.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Signal(syscall.SIGSTOP))
}

// Continue ends what Stop began.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Signal(syscall.SIGCONT))
}

// Dump is every row of the tables, in a stable order: equal databases have equal
// dumps.
func (s *Server) Dump(t testing.TB, tables ...string) string {
	t.Helper()
	var dump bytes.Buffer
	for _, table := range tables {
		out, err := exec.Command("ovsdb-client", "--timeout=10", "--format=csv", "dump", s.Endpoint(), "OVN_Northbound", table).CombinedOutput()
		require.NoError(t, err, "dump %s: %s", table, out)
		fmt.Fprintf(&dump, "%s", out)
	}
	return dump.String()
}

// NBCtl runs ovn-nbctl on the database, like an external writer, and returns its output.
func (s *Server) NBCtl(t testing.TB, args ...string) string {
	t.Helper()
	args = append([]string{"--db=" + s.Endpoint(), "--timeout=10", "--no-leader-only"}, args...)
	out, err := exec.Command("ovn-nbctl", args...).CombinedOutput()
	require.NoError(t, err, "ovn-nbctl %v: %s: install the Debian package ovn-central", args, out)
	return string(out)
}

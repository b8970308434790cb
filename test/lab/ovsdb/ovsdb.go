// Package ovsdb runs a real ovsdb-server with an empty OVN northbound database. It is a child process on a
// unix socket, without root. Tests can kill, halt, resume and wipe it.
package ovsdb

import (
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is an ovsdb-server for a test. The test fails if the server does not start, or ends unexpectedly.
type Server struct{ process *Process }

// Start starts a server with further arguments. The server ends with the test. With go test -short, Start skips
// the test instead. Without -short, the test fails on a machine without OVN.
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

// Endpoint returns the server's address in the form of OVN: unix:PATH.
func (s *Server) Endpoint() string { return s.process.Endpoint() }

// Restart ends the server with SIGKILL if it runs, and starts it with the same database.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Restart())
}

// Wipe restarts the server with an empty database.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Wipe())
}

// Kill ends the server with SIGKILL, and waits until it has ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Kill())
}

// Stop halts the server with SIGSTOP. The kernel still accepts connections, but the server does not answer.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Signal(syscall.SIGSTOP))
}

// Continue resumes the server after Stop.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.Signal(syscall.SIGCONT))
}

// Convert converts the database to another schema.
func (s *Server) Convert(t testing.TB, schema string) {
	t.Helper()
	s.process.convert(t, schema)
}

func (p *Process) convert(t testing.TB, schema string) {
	t.Helper()
	out, err := exec.Command("ovsdb-client", "--timeout=30", "convert", p.Endpoint(), schema).CombinedOutput()
	require.NoError(t, err, "ovsdb-client convert: %s", out)
}

// Dump returns all rows of the tables in a stable order. Equal databases have equal dumps.
func (s *Server) Dump(t testing.TB, tables ...string) string {
	t.Helper()
	return s.process.dump(t, tables)
}

func (p *Process) dump(t testing.TB, tables []string) string {
	t.Helper()
	var dump bytes.Buffer
	for _, table := range tables {
		out, err := exec.Command("ovsdb-client", "--timeout=10", "--format=csv", "dump", p.Endpoint(), "OVN_Northbound", table).CombinedOutput()
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

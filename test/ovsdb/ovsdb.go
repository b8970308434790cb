// Package ovsdb runs a real ovsdb-server with an empty OVN northbound database
// for a test: a child process on a unix socket, without root, which the test can
// kill, stop, continue and wipe.
package ovsdb

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Schema is where Debian's ovn-common keeps the northbound schema.
const Schema = "/usr/share/ovn/ovn-nb.ovsschema"

const startTimeout = 10 * time.Second

// Server is one ovsdb-server and its database.
type Server struct {
	dir  string
	args []string
	proc *exec.Cmd // nil while it does not run
	log  bytes.Buffer
}

// Start starts a server, with further arguments if any, which ends with the
// test. With go test -short it skips
// the test instead; without, a machine that lacks OVN fails it.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs ovsdb-server: run without -short")
	}
	// Not t.TempDir(): a unix socket's path has 108 characters at most, and a
	// test's name is in that of its directory.
	dir, err := os.MkdirTemp("", "ovsdb")
	require.NoError(t, err)
	s := &Server{dir: dir, args: args}
	t.Cleanup(func() {
		s.Kill(t)
		require.NoError(t, os.RemoveAll(dir))
		if t.Failed() {
			t.Logf("ovsdb-server: %s", s.log.String())
		}
	})
	s.Wipe(t)
	return s
}

// Endpoint is the server's address as OVN spells it, unix:PATH.
func (s *Server) Endpoint() string { return "unix:" + s.socket() }

func (s *Server) socket() string { return filepath.Join(s.dir, "nb.sock") }

func (s *Server) database() string { return filepath.Join(s.dir, "nb.db") }

// Restart ends the server with SIGKILL if it runs, and starts it with the
// database as it is.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	args := append([]string{
		s.database(), "--remote=punix:" + s.socket(), "--unixctl=" + filepath.Join(s.dir, "nb.ctl"), "-vconsole:warn",
	}, s.args...)
	s.proc = exec.Command("ovsdb-server", args...)
	s.proc.Stdout, s.proc.Stderr = &s.log, &s.log
	s.proc.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.proc.Start(), "start ovsdb-server: install the Debian package openvswitch-switch")
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", s.socket())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, startTimeout, time.Millisecond, "ovsdb-server does not listen")
}

// Wipe starts the server anew with an empty database.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	s.Kill(t)
	require.NoError(t, os.RemoveAll(s.database()))
	out, err := exec.Command("ovsdb-tool", "create", s.database(), Schema).CombinedOutput()
	require.NoError(t, err, "create a northbound database: install the Debian packages openvswitch-switch and ovn-common: %s", out)
	s.Restart(t)
}

// Kill ends the server with SIGKILL, and waits for it to be gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.proc == nil {
		return
	}
	require.NoError(t, s.proc.Process.Kill())
	_ = s.proc.Wait() // says that it was killed
	s.proc = nil
	// The lock and the socket that are left name a process that is gone.
	_ = os.Remove(s.socket())
}

// Stop halts the server with SIGSTOP: it accepts connections, and answers nothing.
func (s *Server) Stop(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Continue ends what Stop began.
func (s *Server) Continue(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NotNil(t, s.proc, "the server does not run")
	require.NoError(t, s.proc.Process.Signal(sig))
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

// NBCtl runs ovn-nbctl on the database, as another hand would, and returns what
// it prints.
func (s *Server) NBCtl(t testing.TB, args ...string) string {
	t.Helper()
	args = append([]string{"--db=" + s.Endpoint(), "--timeout=10", "--no-leader-only"}, args...)
	out, err := exec.Command("ovn-nbctl", args...).CombinedOutput()
	require.NoError(t, err, "ovn-nbctl %v: %s: install the Debian package ovn-central", args, out)
	return string(out)
}

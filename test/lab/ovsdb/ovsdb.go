// Package ovsdb runs a real ovsdb-server with an empty OVN northbound database. It is a child process on a
// unix socket, without root. Tests can kill, halt, resume and wipe it.
package ovsdb

import (
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Server is an ovsdb-server for a test. The test fails if the server does not start, or ends unexpectedly.
type Server struct{ process *Process }

// Start starts a server with further arguments. The server ends with the test. With go test -short, Start skips
// the test instead. Without -short, the test fails on a machine without OVN.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return run(t, args, func(*Process) error { return nil })
}

// StartSouthbound is Start with an empty southbound database, on which Endpoint, Stop and Continue work.
func StartSouthbound(t testing.TB) *Server {
	t.Helper()
	return run(t, nil, func(p *Process) error {
		p.schema = "ovn/ovn-sb"
		return nil
	})
}

// StartOnDisk is Start with a disk of its own, which FillDisk fills. It needs root.
func StartOnDisk(t testing.TB, args ...string) *Server {
	t.Helper()
	return run(t, args, (*Process).mount)
}

func run(t testing.TB, args []string, prepare func(*Process) error) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs ovsdb-server: run without -short")
	}
	process, err := newProcess(args)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, process.Close())
		if t.Failed() {
			t.Logf("ovsdb-server: %s", process.Log())
		}
	})
	require.NoError(t, prepare(process))
	require.NoError(t, process.Wipe())
	return &Server{process}
}

// Endpoint returns the server's address in the form of OVN: unix:PATH.
func (s *Server) Endpoint() string { return s.process.Endpoint() }

// Journal returns the current end of the server's file.
func (s *Server) Journal(t testing.TB) Journal {
	t.Helper()
	j, err := s.process.Journal()
	require.NoError(t, err)
	return j
}

// Restart ends the server with SIGKILL if it runs, and starts it with the same database.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.TryRestart())
}

// TryRestart is Restart for a server that can refuse its database.
func (s *Server) TryRestart() error { return s.process.Restart() }

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
	require.NoError(t, s.process.convert(schema))
}

func (p *Process) convert(schema string) error {
	_, err := output("ovsdb-client", "--timeout=60", "convert", p.Endpoint(), schema)
	return err
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
		out, err := p.dumpTable(table)
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); { // it has just started, or another member leads now
			out, err = p.dumpTable(table)
		}
		require.NoError(t, err, "dump %s", table)
		fmt.Fprintf(&dump, "%s", out)
	}
	return dump.String()
}

func (p *Process) dumpTable(table string) ([]byte, error) {
	return output("ovsdb-client", "--timeout=60", "--format=csv", "dump", p.Endpoint(), "OVN_Northbound", table)
}

// NBCtl runs ovn-nbctl on the database, like an external writer, and returns its output.
func (s *Server) NBCtl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.TryNBCtl(args...)
	require.NoError(t, err)
	return out
}

// TryNBCtl is NBCtl for a server that possibly does not answer.
func (s *Server) TryNBCtl(args ...string) (string, error) { return s.process.nbctl(args) }

func (p *Process) nbctl(args []string) (string, error) {
	args = append([]string{"--db=" + p.Endpoint(), "--timeout=60", "--no-leader-only"}, args...)
	out, err := output("ovn-nbctl", args...)
	if err != nil {
		return "", fmt.Errorf("%w: install the Debian package ovn-central", err)
	}
	return string(out), nil
}

// output runs a program, and returns its output. It leaves out the log, to which a program on a busy machine adds warnings.
func output(program string, args ...string) ([]byte, error) {
	var log bytes.Buffer
	command := exec.Command(program, args...)
	command.Stderr = &log
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s", program, args, err, &log)
	}
	return out, nil
}

// FillDisk fills the disk of a server of StartOnDisk to the last byte.
func (s *Server) FillDisk(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.fill())
}

// FreeDisk ends FillDisk.
func (s *Server) FreeDisk(t testing.TB) {
	t.Helper()
	require.NoError(t, s.process.free())
}

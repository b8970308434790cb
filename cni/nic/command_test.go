package nic_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// gateway runs coe-bridge gateway on the host, and returns what it prints.
func (n *node) gateway(args ...string) (string, error) {
	n.t.Helper()
	argv := append([]string{"netns", "exec", n.ns, bridgetest.Program(n.t), "gateway"}, args...)
	argv = append(argv, "--ovs-db", n.host.OVSDB.Remote, "--state-dir", filepath.Dir(n.dir))
	out, err := exec.CommandContext(n.t.Context(), "ip", argv...).CombinedOutput()
	return string(out), err
}

// TestCommands: the commands that move NICs do what a Mover does. A dry run prints the same steps and changes nothing, and a command
// that runs again has nothing to do.
func TestCommands(t *testing.T) {
	n := newNode(t)
	had := n.simple()
	connection := n.connect("10.9.0.1")
	must := func(args ...string) string {
		t.Helper()
		out, err := n.gateway(args...)
		require.NoError(t, err, out)
		return out
	}
	steps := regexp.MustCompile(`(?m)^ .*$`)
	moves := func(command, name string, before, after func(string)) {
		t.Helper()
		planned := must(command, name, "--dry-run")
		require.Contains(t, planned, name+": would be moved\n  ")
		before(had)
		moved := must(command, name)
		require.Contains(t, moved, name+": moved\n  ")
		require.Equal(t, steps.FindAllString(planned, -1), steps.FindAllString(moved, -1))
		connection.works(t)
		after(had)
		for _, again := range [][]string{{command, name}, {command, name, "--dry-run"}} {
			require.Contains(t, must(again...), name+": nothing to do\n")
			after(had)
		}
	}
	out, err := n.gateway("bridge-to-nics", "br-phy")
	require.Error(t, err)
	require.Contains(t, out, "br-phy was not created by coe-bridge")
	n.left(had)
	moves("nics-to-bridge", theNIC, n.left, n.joined)
	require.Empty(t, must("release-nics"), "the NIC has joined since the boot")
	n.joined(had)
	moves("bridge-to-nics", theBridge, n.joined, n.left)
	require.Empty(t, must("release-nics"), "no NIC is in a bridge")

	must("nics-to-bridge", theNIC)
	record := filepath.Join(n.dir, theNIC+".json")
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	text = regexp.MustCompile(`"boot": "[^"]*"`).ReplaceAll(text, []byte(`"boot": "an earlier one"`))
	require.NoError(t, os.WriteFile(record, text, 0o600))
	require.Equal(t, theNIC+": released\n", must("release-nics"))
	ports, err := n.host.VSCtl(t.Context(), "list-ports", theBridge)
	require.NoError(t, err)
	require.Empty(t, ports)
	require.Equal(t, theNIC+": released\n", must("release-nics"), "until it joins again")
	must("nics-to-bridge", theNIC)
	n.joined(had)
	connection.works(t)
	must("bridge-to-nics", theBridge)
	n.left(had)
	connection.works(t)
}

// TestLostTerminal: the commands go on if their terminal is lost, which is possibly reached by the NIC. Here they wait for the database
// of a switch that does not answer.
func TestLostTerminal(t *testing.T) {
	var running []*exec.Cmd
	for _, args := range [][]string{
		{"init", "--node-address", "127.0.0.1", "--physical-interface", "eth1", "--physical-ip", "10.9.0.138/24", "--default-gw", "10.9.0.254"},
		{"remove", "--node-address", "127.0.0.1"}, {"nics-to-bridge", "eth1"}, {"bridge-to-nics", "breth1"}, {"release-nics"},
	} {
		socket := filepath.Join(t.TempDir(), "db.sock") // its own: a command can connect again
		silent, err := net.Listen("unix", socket)
		require.NoError(t, err)
		defer func() { _ = silent.Close() }()
		cmd := exec.CommandContext(t.Context(), bridgetest.Program(t), slices.Concat([]string{"gateway"}, args, []string{"--ovs-db", "unix:" + socket})...)
		require.NoError(t, cmd.Start())
		conn, err := silent.Accept()
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		running = append(running, cmd)
	}
	for _, cmd := range running {
		require.Error(t, cmd.Wait())
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s: it ends with an error, and not by the signal", cmd)
	}
}

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unitFile is the agent's systemd unit.
const unitFile = "../../deploy/systemd/coe-bridge-agent.service"

// asUnit is a command that limits another one as the agent's unit does, with more capabilities.
func asUnit(t *testing.T, more ...string) []string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	require.Contains(t, string(text), "\nNoNewPrivileges=yes\n")
	_, after, found := strings.Cut(string(text), "\nCapabilityBoundingSet=")
	require.True(t, found)
	line, _, _ := strings.Cut(after, "\n")
	set := "-all"
	for _, name := range append(strings.Fields(line), more...) {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	return []string{"setpriv", "--no-new-privs", "--bounding-set=" + set}
}

// TestUnitHasTheCapabilities: an agent with the capabilities of its systemd unit attaches a pod
// whose processes belong to another user. Only a runtime that names a network namespace by a
// process needs one more capability.
func TestUnitHasTheCapabilities(t *testing.T) {
	const host = "n1"
	w := newWorldWithoutAgents(t, host)
	w.deadline = patient
	w.under = asUnit(t)
	w.startAgent(host)
	s := w.pod(host, 1, "default", "a")
	process := s.process()
	s.mustAdd()
	other := w.pod(host, 2, "default", "b")
	other.mustAdd()
	await(t, "the pod has its network", func() error { return s.pings(t.Context(), other) })
	require.NoError(t, s.del())

	_, err := s.add(t.Context(), invoke{netns: process})
	require.ErrorContains(t, err, "permission denied")

	require.NoError(t, w.agents[host].Kill())
	w.under = asUnit(t, "CAP_SYS_PTRACE")
	w.startAgent(host)
	_, err = s.add(t.Context(), invoke{netns: process})
	require.NoError(t, err)
}

// process starts a process of another user in the namespace, and returns its path of the
// namespace.
func (s *sandbox) process() string {
	s.w.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", s.netns(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat")
	_, err := cmd.StdinPipe() // cat ends with the test
	require.NoError(s.w.t, err)
	require.NoError(s.w.t, cmd.Start())
	s.w.t.Cleanup(func() {
		assert.NoError(s.w.t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	})
	proc := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	await(s.w.t, "the process is in the namespace", func() error {
		if name, err := os.ReadFile(proc + "/comm"); err != nil || string(name) != "cat\n" {
			return fmt.Errorf("it is %q: %w", name, err)
		}
		return nil
	})
	return proc + "/ns/net"
}

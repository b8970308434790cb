package agent_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestChassis: agents report the chassis of their nodes, and again when the bridge has lost it. The gateways of a
// node are bound to it until it changes, and pods reach each other all the time.
func TestChassis(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--ovn-layout", string(ovn.LayoutNode))
	w.startAgents(patient)
	near, far := w.run("host1", 1, "a", "near"), w.run("host2", 2, "b", "far")
	bound := func(want map[string]string) {
		t.Helper()
		await(t, fmt.Sprintf("gateways are bound to %v", want), func() error { return w.boundTo(want) })
		_, err := lab.NBCtl(t.Context(), "--wait=sb", "sync")
		require.NoError(t, err)
		w.reach(near, far)
	}
	bound(map[string]string{"host1": "host1", "host2": "host2"})
	w.step("the bridge loses a chassis", func() {
		status, answer := w.bridge.Bridge().Do(http.MethodDelete, "/restconf/config/coe-agent:chassis/node/"+w.address("host2"), "")
		require.Equal(w.t, 2, status/100, answer)
		bound(map[string]string{"host1": "host1"})
		w.bridge.Bridge().AwaitSync(converge) // with the problems of this state
		require.NoError(w.t, w.reports(string(coe.NotEnforced), false), "a node whose chassis is not known must have no problem")
	})
	w.step("the bridge restarts", func() {
		w.bridge.Kill()
		w.reach(near, far)
		w.startBridge()
		bound(map[string]string{"host1": "host1", "host2": "host2"})
	})
	w.step("the system-id changes", func() {
		_, err := lab.Host("host1").VSCtl(t.Context(), "set", "Open_vSwitch", ".", "external_ids:system-id=other")
		require.NoError(w.t, err)
		bound(map[string]string{"host2": "host2"}) // OVN still has the former chassis
		_, err = lab.Host("host1").VSCtl(t.Context(), "set", "Open_vSwitch", ".", "external_ids:system-id=host1")
		require.NoError(w.t, err)
		bound(map[string]string{"host1": "host1", "host2": "host2"})
	})
}

// boundTo fails unless the gateways of hosts are bound to these chassis, which have claimed them, and no other gateways are.
func (w *world) boundTo(chassis map[string]string) error {
	rows, err := w.lab.NBCtl(w.t.Context(), "--format=csv", "--no-headings", "--data=bare", "--columns=name,chassis_name", "list", "Gateway_Chassis")
	if err != nil {
		return err
	}
	has := map[string]string{}
	for line := range strings.Lines(rows) {
		port, name, _ := strings.Cut(strings.TrimSpace(line), ",")
		for _, h := range w.lab.Hosts {
			if strings.Contains(port, "node:"+w.address(h.Name)+"/") {
				has[h.Name] = name
			}
		}
	}
	if fmt.Sprint(has) != fmt.Sprint(chassis) {
		return fmt.Errorf("they are bound to %v", has)
	}
	unclaimed, err := w.lab.SBCtl(w.t.Context(), "--bare", "--columns=logical_port", "find", "Port_Binding", "type=chassisredirect", "chassis=[]")
	if err == nil && unclaimed != "" {
		err = fmt.Errorf("no chassis has claimed %s", unclaimed)
	}
	return err
}

// TestChassisOfAnotherName: ovn-controller has nodes by other names than their system-id. Gateways are bound to these names, also if the
// agents do not see the processes on their nodes, as in containers.
func TestChassisOfAnotherName(t *testing.T) {
	t.Parallel()
	for name, under := range map[string][]string{
		"processes are visible": nil,
		"in a container":        inContainer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := ovnhost.ForTest(t, "host1", "host2")
			etc := t.TempDir()
			require.NoError(t, writeFile(filepath.Join(etc, "system-id-override"), "first\n"))
			require.NoError(t, lab.Host("host1").Controller.Terminate()) // Open vSwitch keeps the name host1, too
			rename(t, lab, "host1", []string{"OVN_SYSCONFDIR=" + etc})
			pid, err := lab.Host("host2").Controller.PID()
			require.NoError(t, err)
			_, err = lab.Exec(t.Context(), "host2", "ovn-appctl", "-t", fmt.Sprintf("%s/ovn-controller.%d.ctl", lab.Host("host2").Dir, pid), "exit")
			require.NoError(t, err)
			rename(t, lab, "host2", nil, "-n", "second")
			w := newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--ovn-layout", string(ovn.LayoutNode))
			w.under = under
			w.startAgents(patient)
			near, far := w.run("host1", 1, "a", "near"), w.run("host2", 2, "b", "far")
			await(t, "gateways are bound", func() error { return w.boundTo(map[string]string{"host1": "first", "host2": "second"}) })
			w.reach(near, far)
			h := lab.Host("host2")
			found, err := lab.Exec(t.Context(), h.Name, append(slices.Clone(under), bridgetest.Program(t), "doctor", "--bridge", w.bridge.Bridge().URL(), "--node-address", w.address(h.Name),
				"--ovs-db", h.OVSDB.Remote, "--ovs-run-dir", h.Dir, "--ovn-run-dir", h.Dir)...)
			require.Contains(t, fmt.Sprint(found, err), "ovn-controller has this node by the name second")
		})
	}
}

// TestChassisUnknownToOVN: an agent that does not see ovn-controller reports another name than OVN has, because an operator has removed what
// ovn-controller recorded. A bridge that follows the southbound database does not bind the gateways to it, and says what to do.
func TestChassisUnknownToOVN(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	require.NoError(t, lab.Host("host2").Controller.Terminate())
	rename(t, lab, "host2", nil, "-n", "second")
	w := newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--ovn-sb", lab.SB.Remote, "--ovn-layout", string(ovn.LayoutNode))
	w.under = inContainer
	vsctl := func(args ...string) {
		t.Helper()
		_, err := lab.Host("host2").VSCtl(t.Context(), args...)
		require.NoError(t, err)
	}
	vsctl("wait-until", "Open_vSwitch", ".", "other_config:ovn-chassis-idx-second=0")
	for _, name := range []string{"host2", "second"} {
		vsctl("remove", "Open_vSwitch", ".", "other_config", "ovn-chassis-idx-"+name)
	}
	w.startAgents(patient)
	near, far := w.run("host1", 1, "a", "near"), w.run("host2", 2, "b", "far")
	const wrong = `which has the node by the name \"second\"`
	await(t, "the problem is reported", func() error { return w.reports(wrong, true) })
	await(t, "the other node has its gateway bound", func() error { return w.boundTo(map[string]string{"host1": "host1"}) })
	w.reach(near, far)

	vsctl("set", "Open_vSwitch", ".", `other_config:ovn-chassis-idx-second=""`)
	status, answer := w.bridge.Bridge().Do(http.MethodDelete, "/restconf/config/coe-agent:chassis/node/"+w.address("host2"), "")
	require.Equal(t, 2, status/100, answer)
	require.NoError(t, w.agents["host2"].Kill())
	require.NoError(t, w.agents["host2"].Start(t.Context()))
	await(t, "both are bound", func() error { return w.boundTo(map[string]string{"host1": "host1", "host2": "second"}) })
	await(t, "the problem is gone", func() error { return w.reports(wrong, false) })
	w.reach(near, far)
}

// reports fails unless the status of the bridge has a text, or does not have it.
func (w *world) reports(text string, want bool) error {
	_, answer := w.bridge.Bridge().Do(http.MethodGet, "/restconf/operational/coe-status:status", "")
	if strings.Contains(answer, text) != want {
		return fmt.Errorf("the status is %s", answer)
	}
	return nil
}

// inContainer runs a command with processes of its own, as a container does.
var inContainer = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave"}

// rename deletes the chassis of a host, and starts ovn-controller with other options.
func rename(t *testing.T, lab *ovnhost.Lab, host string, env []string, options ...string) {
	t.Helper()
	h := lab.Host(host)
	_, err := lab.SBCtl(t.Context(), "--if-exists", "chassis-del", host)
	require.NoError(t, err)
	_, err = lab.Launch(t.Context(), ovnhost.Command{
		Name: host + "/other", Pod: host, Argv: append([]string{"ovn-controller", h.OVSDB.Remote, "-vsyslog:off"}, options...),
		Env: append([]string{"OVS_RUNDIR=" + h.Dir, "OVN_RUNDIR=" + h.Dir}, env...),
	})
	require.NoError(t, err)
}

package agent_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
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

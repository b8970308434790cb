package agent_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestFlowsInProcess attaches pods to a switch that OpenDaylight programs. ADD succeeds when the bridge has confirmed the pod and
// the switch has the flows to it. Without the socket of the bridge ADD does not wait for flows.
func TestFlowsInProcess(t *testing.T) {
	t.Parallel()
	for _, isSeen := range []bool{true, false} {
		t.Run(fmt.Sprint("flows are seen: ", isSeen), func(t *testing.T) {
			w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
			host := w.lab.Hosts[0]
			if w.flows = filepath.Join(host.Dir, "br-int.mgmt"); !isSeen {
				w.flows += ".none"
			}
			bridge := newFakeBridge(t, oneAddress)
			bridge.follow(w)
			a := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
			w.programmedBy(a)
			p := w.sandbox("host1", "web", "front", "u1", "sandbox1")
			if !isSeen {
				require.Nil(t, a.call(t.Context(), call.Add, p))
				return
			}
			_ = w.addFails(a, p, "table 0 has no flow for port")
			require.NoError(t, w.left("host1", a.dir).is(0))

			added := make(chan *types.Error, 1)
			go func() { added <- a.call(t.Context(), call.Add, p) }()
			number := ""
			await(t, "the switch has opened the port", func() error {
				out, err := host.VSCtl(t.Context(), "get", "Interface", "tap0a1b2c3d-4e", "ofport")
				if number = strings.TrimSpace(out); err == nil && (number == "[]" || number == "-1") {
					err = fmt.Errorf("it has number %s", number)
				}
				return err
			})
			require.Empty(t, added)
			add := func(what, text string) {
				out, err := exec.CommandContext(t.Context(), "ovs-ofctl", "-O", "OpenFlow13", "add-"+what, "unix:"+w.flows, text).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			for _, group := range []string{
				"group_id=150001,type=all,bucket=actions=load:0x900->NXM_NX_REG6[],resubmit(,220)",
				"group_id=210005,type=all,bucket=actions=set_field:0x9->tun_id,resubmit(,55)",
			} {
				add("group", group)
			}
			for _, flow := range []string{
				"table=0,in_port=" + number + ",actions=write_metadata:0x90000000000/0xffffff0000000001,goto_table:17",
				"table=17,metadata=0x90000000000/0xffffff0000000000,actions=write_metadata:0xb000090000030d40/0xfffffffffffffffe,goto_table:19",
				"table=17,metadata=0xb000090000000000/0xffffff0000000000,actions=write_metadata:0xc00009138c000000/0xfffffffffffffffe,goto_table:43",
				"table=50,metadata=0x9138c000000/0xfffffffff000000,dl_src=0a:58:0a:2a:00:02,actions=goto_table:51",
				"table=51,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:02,actions=load:0x900->NXM_NX_REG6[],resubmit(,220)",
				"table=21,ip,metadata=0x30d40/0xfffffe,nw_dst=10.42.0.2,actions=group:150001",
				"table=220,reg6=0x900,actions=output:" + number,
				"table=52,metadata=0x138c000000/0xffff000001,actions=write_actions(group:210005)",
			} {
				add("flow", flow)
			}
			require.Empty(t, added, "other nodes do not reach the pod")
			add("flow", "table=36,tun_id=0x186a1,actions=group:150001")
			require.Nil(t, <-added)
			require.Nil(t, a.call(t.Context(), call.Add, p), "the pod is plugged in")
			require.Nil(t, a.call(t.Context(), call.Del, p))
		})
	}
}

// programmedBy lets a fake OpenDaylight program the switch of host1, and awaits that its agent knows that.
func (w *world) programmedBy(a *inProcess) {
	w.t.Helper()
	w.openDaylight("host1")
	w.manage(a)
	_, err := w.lab.Hosts[0].VSCtl(w.t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(w.t, err)
	await(w.t, "OpenDaylight is there", func() error { return w.notReady(a) })
}

// TestFormerPortStays: if the network does not remove the former port of a pod, an ADD that sees flows gets a new port after some seconds, and waits for its flows.
func TestFormerPortStays(t *testing.T) {
	t.Parallel()
	w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
	w.flows = filepath.Join(w.lab.Hosts[0].Dir, "br-int.mgmt")
	bridge := newFakeBridge(t, oneAddress)
	bridge.say <- true // of the former port
	a := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	w.programmedBy(a)
	_ = w.addFails(a, w.sandbox("host1", "web", "front", "u1", "sandbox1"), "table 0 has no flow for port")
	require.NoError(t, w.left("host1", a.dir).is(0))
}

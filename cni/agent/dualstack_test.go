package agent_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// twoFamilies are addresses of both families, as a bridge sends them. The IPv4 address has a
// host prefix.
const twoFamilies = `"mtu":1300,"address":[` +
	`{"ip":"10.42.0.2","prefix-length":32,"gateway":"169.254.1.1"},{"ip":"fd42::2","prefix-length":64,"gateway":"fd42::1"}],"route":[` +
	`{"destination":"169.254.1.1/32"},{"destination":"0.0.0.0/0","next-hop":"169.254.1.1"},{"destination":"::/0","next-hop":"fd42::1"}]`

// TestTwoFamiliesInProcess attaches a pod with addresses of both families to a switch that OVN does not
// program.
func TestTwoFamiliesInProcess(t *testing.T) {
	w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
	bridge := newFakeBridge(t, twoFamilies)
	bridge.follow(w)
	a := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	w.openDaylight("host1")
	w.manage(a)
	_, err := w.lab.Hosts[0].VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	p := w.sandbox("host1", "web", "front", "u1", "sandbox1")
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", p.netns(), "sysctl", "-w", "net.ipv6.conf.default.disable_ipv6=1").CombinedOutput()
	require.NoError(t, err, "%s", out)

	answer := a.answer(t.Context(), call.Add, p, nil)
	require.Nil(t, answer.Error)
	require.Equal(t, 1300, answer.Result.Interfaces[1].Mtu, "the MTU from the bridge")
	require.Len(t, answer.Result.IPs, 2)
	require.Equal(t, "fd42::2/64", answer.Result.IPs[1].Address.String())
	require.Len(t, answer.Result.Routes, 3)
	again := a.answer(t.Context(), call.Add, p, nil)
	require.Nil(t, again.Error)
	require.Equal(t, answer.Result, again.Result)
	require.Nil(t, a.answer(t.Context(), call.Check, p, object{"prevResult": answer.Result}).Error)
	require.Nil(t, a.call(t.Context(), call.Del, p))
	require.NoError(t, w.left("host1", a.dir).is(0))
}

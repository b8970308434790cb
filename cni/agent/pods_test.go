package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
)

// step is a part of a test that depends on earlier steps.
func (w *world) step(name string, do func()) {
	w.t.Helper()
	whole := w.t
	defer func() { w.t = whole }()
	if !whole.Run(name, func(t *testing.T) { w.t = t; do() }) {
		whole.FailNow()
	}
}

// TestPods tests the life cycle of pods with real parts: posted to the bridge, attached by the
// plugin's binary and the agent's process, and reached through OVN.
func TestPods(t *testing.T) {
	w := newWorld(t, impatient, "host1", "host2")
	front, back, cart := w.pod("host1", 1, "web", "front"), w.pod("host1", 2, "web", "back"), w.pod("host2", 3, "shop", "cart")
	pods := []*sandbox{front, back, cart}
	w.step("every pod reaches every pod", func() {
		for _, p := range pods {
			p.mustAdd()
		}
		w.reach(pods...)
		w.awaitPods("host1", 2)
	})
	w.step("ADD again, and CHECK", func() { w.testAgain(front) })
	w.step("the answer in every version", func() { w.testVersions(front) })
	w.step("a sandbox is made again", func() { w.testAnotherSandbox(front, back, cart) })
	w.step("DEL, then ADD at once", func() {
		for range 5 {
			require.NoError(w.t, back.del())
			back.mustAdd()
		}
		w.reach(back, cart)
	})
	w.step("the agent goes and comes back", func() { w.testRestart(back, cart) })
	w.step("no packet is lost while agent and bridge are restarted", func() { w.testNoLoss(back, cart) })
	w.step("the bridge is away", func() { w.testBridgeAway(cart) })
	w.step("the bridge is killed and comes back", func() {
		w.bridge.Kill()
		cart.mustAdd()
		w.startBridge()
		late := w.pod("host2", 12, "web", "late")
		late.mustAdd()
		w.reach(late, back)
		require.NoError(w.t, late.del())
	})
	w.step("the switch's parts are restarted", func() { w.testSwitchRestarts(back, cart) })
	w.step("GC and STATUS", func() { w.testGC(back) })
	w.step("DEL", func() { w.testDel(back, cart) })
}

func (w *world) reach(pods ...*sandbox) {
	w.t.Helper()
	for _, from := range pods {
		for _, to := range pods {
			require.NoError(w.t, from.pings(w.t.Context(), to))
		}
	}
}

func (w *world) testAgain(p *sandbox) {
	t := w.t
	first := p.mustAdd()
	require.Equal(t, first, p.mustAdd())
	require.Equal(t, "eth0", first.Interfaces[1].Name)
	require.Equal(t, p.path(), first.Interfaces[1].Sandbox)
	require.Equal(t, 1442, first.Interfaces[1].Mtu, "the underlay's 1500 less geneve's")
	require.Equal(t, 1, *first.IPs[0].Interface)
	require.NoError(t, p.check(first))
	for _, change := range []struct{ spoil, mend string }{
		{"addr del %s dev eth0", "addr add %s dev eth0"},
		{"link set eth0 mtu 1000", "link set eth0 mtu 1442"},
		{"link set eth0 down", "link set eth0 up"},
	} {
		spoil := func(args string) {
			if strings.Contains(args, "%s") {
				args = fmt.Sprintf(args, first.IPs[0].Address.String())
			}
			out, err := exec.CommandContext(t.Context(), "ip", append([]string{"-n", p.netns()}, strings.Fields(args)...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		spoil(change.spoil)
		require.ErrorContains(t, p.check(first), "differs from the result of ADD", change.spoil)
		spoil(change.mend)
	}
	require.Error(t, p.check(first), "setting the link down has removed the default route")
	require.Equal(t, first.IPs, p.mustAdd().IPs, "ADD repairs the attachment")
	require.NoError(t, p.check(p.mustAdd()))
}

func (w *world) testVersions(p *sandbox) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		out, err := p.invoke(w.t.Context(), invoke{command: "ADD", version: version})
		require.NoError(w.t, err)
		var answer struct {
			CNIVersion string
			IPs        []struct{ Address, Gateway string }
			Interfaces []struct{ Name string }
		}
		require.NoError(w.t, json.Unmarshal(out, &answer))
		require.Equal(w.t, version, answer.CNIVersion)
		require.Equal(w.t, p.address.String(), answer.IPs[0].Address[:len(p.address.String())])
		require.Len(w.t, answer.Interfaces, 2)
	}
	_, err := p.invoke(w.t.Context(), invoke{command: "ADD", version: "0.2.0"})
	require.EqualValues(w.t, types.ErrIncompatibleCNIVersion, code(err))
}

// testAnotherSandbox attaches a pod whose old sandbox was never detached. The late DEL of the old
// sandbox does no harm.
func (w *world) testAnotherSandbox(p *sandbox, others ...*sandbox) {
	t := w.t
	next := w.sandbox(p.host, p.namespace, p.name, p.uid, p.container+"b")
	defer next.remove()
	next.mustAdd()
	require.Equal(t, p.address, next.address)
	p.nothingIn()
	w.reach(append(others, next)...)
	require.NoError(t, p.del())
	w.reach(append(others, next)...)
	require.NoError(t, next.del())
	require.NoError(t, next.del(), "again")
	w.awaitPods(p.host, 1)
}

func (w *world) testRestart(p *sandbox, others ...*sandbox) {
	before := p.mustAdd()
	require.NoError(w.t, w.agents[p.host].Kill())
	_, err := p.add(w.t.Context(), invoke{})
	require.EqualValues(w.t, types.ErrTryAgainLater, code(err), "the agent is not running")
	_, err = p.invoke(w.t.Context(), invoke{command: "STATUS"})
	require.EqualValues(w.t, types.ErrPluginNotAvailable, code(err))
	w.reach(append(others, p)...)
	require.NoError(w.t, w.agents[p.host].Start(w.t.Context()))
	require.Equal(w.t, before, p.mustAdd())
	w.awaitPods(p.host, 1)
}

func (w *world) testNoLoss(from, to *sandbox) {
	pinged := make(chan error, 1)
	go func() {
		out, err := w.lab.Exec(w.t.Context(), from.inLab(), "ping", "-n", "-q", "-i", "0.02", "-c", "100", "-W", "5", to.address.String())
		if err == nil && !strings.Contains(out, " 0% packet loss") {
			err = errors.New(out)
		}
		pinged <- err
	}()
	require.NoError(w.t, w.agents[to.host].Restart(w.t.Context()))
	w.bridge.Kill()
	w.startBridge()
	require.NoError(w.t, w.lab.Northd.Restart(w.t.Context()))
	require.NoError(w.t, <-pinged)
}

// testBridgeAway attaches a known pod while the bridge is down, also after a restart of the agent.
// An unknown pod fails.
func (w *world) testBridgeAway(p *sandbox) {
	t := w.t
	host := w.agents[p.host]
	known := w.pod(p.host, 10, "web", "known")
	known.mustAdd()
	require.NoError(t, known.del())
	host.relay.cut(true)
	require.NoError(t, host.Terminate())
	require.NoError(t, host.Start(t.Context()))
	unknown := w.pod(p.host, 11, "web", "unknown")
	known.mustAdd()
	w.reach(p, known)
	_, err := known.invoke(t.Context(), invoke{command: "STATUS"})
	require.NoError(t, err)
	_, err = unknown.add(t.Context(), invoke{})
	require.EqualValues(t, types.ErrTryAgainLater, code(err))
	require.ErrorContains(t, err, "web/unknown")
	require.ErrorContains(t, err, "no connection to the bridge")
	unknown.nothingIn()
	host.relay.cut(false)
	unknown.mustAdd()
	w.reach(p, known, unknown)
	for _, s := range []*sandbox{known, unknown} {
		require.NoError(t, s.del())
	}
	w.delete(10)
	w.delete(11)
	w.awaitPods(p.host, 1)
}

func (w *world) testSwitchRestarts(pods ...*sandbox) {
	host := w.lab.Host(pods[0].host)
	for _, p := range []interface{ Kill() error }{host.VSwitchd, host.Controller, host.OVSDB} {
		require.NoError(w.t, p.Kill())
	}
	await(w.t, "STATUS says that the switch is away", func() error {
		if _, err := pods[0].invoke(w.t.Context(), invoke{command: "STATUS"}); code(err) != types.ErrLimitedConnectivity {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	require.NoError(w.t, host.OVSDB.Start(w.t.Context()))
	require.NoError(w.t, host.VSwitchd.Start(w.t.Context()))
	require.NoError(w.t, host.Controller.Start(w.t.Context()))
	w.reach(pods...)
	await(w.t, "the agent is ready", func() error { return w.ready(w.t.Context(), pods[0].host) })
	pods[0].mustAdd()
	w.awaitPods(pods[0].host, 1)
}

func (w *world) testGC(stays *sandbox) {
	t := w.t
	goes := w.pod(stays.host, 20, "web", "goes")
	goes.mustAdd()
	_, err := stays.invoke(t.Context(), invoke{command: "STATUS"})
	require.NoError(t, err)
	valid := object{"cni.dev/valid-attachments": []object{{"containerID": stays.container, "ifname": "eth0"}}}
	other := object{"name": "another", "cni.dev/valid-attachments": []object{}}
	_, err = stays.invoke(t.Context(), invoke{command: "GC", conf: other})
	require.NoError(t, err)
	w.awaitPods(stays.host, 2)
	_, err = stays.invoke(t.Context(), invoke{command: "GC", conf: valid})
	require.NoError(t, err)
	require.NoError(t, w.left(stays.host, w.agents[stays.host].dir).is(1))
	goes.nothingIn()
	require.NoError(t, goes.del())
	w.delete(20)
}

// testDel detaches pods whose namespace exists, is gone, or is not given.
func (w *world) testDel(pods ...*sandbox) {
	t := w.t
	never := w.pod("host1", 30, "web", "never")
	require.NoError(t, never.del(), "DEL before ADD")
	gone := w.pod("host1", 31, "web", "gone")
	gone.mustAdd()
	gone.remove()
	require.NoError(t, gone.del())
	require.NoError(t, w.left("host1", w.agents["host1"].dir).is(1))
	swept := w.pod("host1", 32, "web", "swept")
	swept.mustAdd()
	swept.remove()
	w.awaitPods("host1", 1) // without a DEL
	for _, p := range pods {
		_, err := p.invoke(t.Context(), invoke{command: "DEL", netns: "-"})
		require.NoError(t, err)
		p.nothingIn()
		require.NoError(t, w.left(p.host, w.agents[p.host].dir).is(0))
	}
}

// get reads a tree from the bridge.
func (w *world) get(path string) (int, string) {
	w.t.Helper()
	return w.bridge.Bridge().Do(http.MethodGet, "/restconf/config/"+path, "")
}

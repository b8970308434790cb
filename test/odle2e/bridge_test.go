package odle2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/odl"
)

// beside is what the bridge says of a controller that has a renderer of COE's pods.
const beside = "has a COE renderer of its own"

// TestBridge runs a bridge on a controller of each release, from the first pod over all that
// can be killed to the last.
func TestBridge(t *testing.T) {
	odl.SkipUnlessAsked(t)
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			w := newWorld(t, release)
			w.serve()
			pods := []*pod{
				{namespace: "shop", name: "web", number: 1}, {namespace: "shop", name: "db", number: 2},
				{namespace: "bank", name: "vault", number: 3},
			}
			w.testPods(pods)
			w.testRenderer(release)
			w.testOtherWriters(pods)
			w.testPassword()
			w.testReboots(pods)
			w.testNotProgrammed(pods)
		})
	}
}

// testPods posts pods, plugs them in, and has them reach each other; one that is not plugged
// in any more says so.
func (w *world) testPods(pods []*pod) {
	w.putPods(pods...)
	w.awaitSync(patience)
	w.awaitConfirmed(false, pods...)
	w.awaitMissing(pods[0], "not plugged in yet")
	w.plug(pods...)
	w.awaitConfirmed(true, pods...)
	w.requireReach(pods...)

	require.NoError(w.t, w.c.Lab.Unplug(w.t.Context(), pods[0].port))
	w.awaitConfirmed(false, pods[0])
	w.awaitMissing(pods[0], "not plugged in yet")
	w.plug(pods[0])
	w.awaitConfirmed(true, pods...)
	w.requireReach(pods...)
	w.awaitSync(converge)
}

// testRenderer: that the controller has a renderer of its own is said at the start, once.
func (w *world) testRenderer(release odl.Release) {
	want := 0
	if release == odl.Oxygen {
		want = 1
	}
	require.Equal(w.t, want, w.bridge.Log().Count(beside))
}

// testOtherWriters deletes and changes what is ours, which is put back, and pods go on reaching
// each other.
func (w *world) testOtherWriters(pods []*pod) {
	name := pods[0].String()
	for _, list := range []string{"elan:elan-interfaces/elan-interface", "l3vpn:vpn-interfaces/vpn-interface", "ietf-interfaces:interfaces/interface"} {
		status, before := w.ask(http.MethodGet, entry(list, name), "")
		require.Equal(w.t, http.StatusOK, status)
		status, _ = w.ask(http.MethodDelete, entry(list, name), "")
		require.Equal(w.t, http.StatusOK, status)
		await(w.t, patience, "it is put back", func() error {
			if status, now := w.ask(http.MethodGet, entry(list, name), ""); status != http.StatusOK || len(now) != len(before) {
				return fmt.Errorf("%d %s, before: %s", status, now, before)
			}
			return nil
		})
		w.awaitSync(converge)
		w.awaitConfirmed(true, pods...)
		w.requireReach(pods...)
	}
	w.testChangedPort(pods)
}

// testChangedPort: another hand has an interface be on another port.
func (w *world) testChangedPort(pods []*pod) {
	path := entry("ietf-interfaces:interfaces/interface", pods[1].String())
	_, before := w.ask(http.MethodGet, path, "")
	changed := strings.ReplaceAll(before, pods[1].port.PortName, "tap00000000-00")
	require.NotEqual(w.t, before, changed)
	status, answer := w.ask(http.MethodPut, path, changed)
	require.Equal(w.t, http.StatusOK, status, answer)
	await(w.t, patience, "it is put back", func() error {
		if _, now := w.ask(http.MethodGet, path, ""); !strings.Contains(now, pods[1].port.PortName) {
			return errors.New(now)
		}
		return nil
	})
	w.awaitSync(converge)
	w.awaitConfirmed(true, pods...)
	w.requireReach(pods...)
}

// testPassword: that the controller refuses the bridge is said loudly, once.
func (w *world) testPassword() {
	const refused = "OpenDaylight refuses the bridge"
	before := w.bridge.Log().Count(refused)
	w.setPassword("wrong")
	w.putPods(&pod{namespace: "late", name: "one", number: 90})
	await(w.t, patience, "it is missed", func() error {
		if w.bridge.Log().Count("does not answer", "refuses") == 0 && w.bridge.Bridge().Status().InSync {
			return errors.New("it is in sync")
		}
		return nil
	})
	tried := w.bridge.Log().Len()
	w.putPods(&pod{namespace: "late", name: "two", number: 91})
	await(w.t, patience, "it is tried again", func() error {
		if w.bridge.Bridge().Status().InSync {
			return errors.New("it is in sync")
		}
		return nil
	})
	w.setPassword(odl.Password)
	w.awaitSync(patience)
	require.Equal(w.t, before+1, w.bridge.Log().Count(refused), "lines since: %d", w.bridge.Log().Len()-tried)
	for _, number := range []int{90, 91} {
		w.change(http.MethodDelete, "pod:coe/pods/"+(&pod{number: number}).uid(), nil)
	}
	w.awaitSync(patience)
}

// testNotProgrammed: a pod whose vpn-instance OpenDaylight makes nothing of, as another one has
// its route distinguisher, is not confirmed, and its trace says why.
func (w *world) testNotProgrammed(pods []*pod) {
	for _, p := range pods {
		require.NoError(w.t, w.c.Lab.Unplug(w.t.Context(), p.port))
		w.change(http.MethodDelete, "pod:coe/pods/"+p.uid(), nil)
	}
	w.awaitSync(patience)
	w.bridge.Stop()
	status, answer := w.ask(http.MethodPut, entry("l3vpn:vpn-instances/vpn-instance", "another"), `{"vpn-instance":[{
		"vpn-instance-name": "another", "type": "l3", "ipv4-family": {"route-distinguisher": ["100:2"],
		"vpnTargets": {"vpnTarget": [{"vrfRTValue": "100:2", "vrfRTType": "both"}]}}}]}`)
	require.Less(w.t, status, 300, answer)
	await(w.t, patience, "it is there first", func() error {
		if _, text := w.ask(http.MethodGet, "operational/odl-l3vpn:vpn-instance-op-data", ""); !strings.Contains(text, `"another"`) {
			return errors.New(text)
		}
		return nil
	})
	w.serve("--isolation", "namespace")
	p := &pod{namespace: "thief", name: "one", number: 50}
	w.putPods(p)
	w.awaitSync(patience)
	w.plug(p)
	w.awaitMissing(p, "flows not programmed")
	w.awaitConfirmed(false, p)
	flows, err := w.c.OpenFlow(w.t.Context(), w.host, "dump-flows", "table=21")
	require.NoError(w.t, err)
	require.NotContains(w.t, flows, p.port.Address.Addr().String())
}

package odle2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// beside is the message of the bridge about a controller with its own COE renderer.
const beside = "has a COE renderer of its own"

// TestBridgeOnRealOpenDaylight runs a bridge on a controller of each release. It creates pods, kills and
// restarts each program, and deletes the pods.
func TestBridgeOnRealOpenDaylight(t *testing.T) {
	odl.SkipUnlessAsked(t)
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			w := newWorld(t, release)
			w.serve()
			pods := []*pod{
				{namespace: "shop", name: "web", number: 1}, {namespace: "shop", name: "db", number: 2},
				{namespace: "bank", name: "vault", number: 3},
			}
			w.step("pods", func() { w.testPods(pods) })
			w.step("profiles", func() { w.testProfiles(pods) })
			w.step("renderer", func() { w.testRenderer(release) })
			w.step("other writers", func() { w.testOtherWriters(pods) })
			w.step("password", w.testPassword)
			w.step("reboots", func() { w.testReboots(pods) })
		})
	}
}

// testPods creates pods and plugs them in, and they reach each other. The trace of an unplugged
// pod says that it is not plugged in.
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

// testRenderer: if the controller has its own renderer, to which others could write pods, the
// bridge logs that once, when it starts.
func (w *world) testRenderer(release odl.Release) {
	want := 0
	if release == odl.Oxygen {
		want = 1
	}
	require.Equal(w.t, want, w.bridge.Log().Count(beside))
}

// testOtherWriters deletes and changes entries of the bridge. The bridge writes them again, and
// the pods still reach each other.
func (w *world) testOtherWriters(pods []*pod) {
	name := pods[0].String()
	for _, list := range []string{"elan:elan-interfaces/elan-interface", "l3vpn:vpn-interfaces/vpn-interface", "ietf-interfaces:interfaces/interface"} {
		status, before := w.ask(http.MethodGet, entry(list, name), "")
		require.Equal(w.t, http.StatusOK, status)
		status, _ = w.ask(http.MethodDelete, entry(list, name), "")
		require.Equal(w.t, http.StatusOK, status)
		await(w.t, patience, "the bridge writes the entry again", func() error {
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

// testChangedPort: an external writer moves an interface to another port.
func (w *world) testChangedPort(pods []*pod) {
	path := entry("ietf-interfaces:interfaces/interface", pods[1].String())
	_, before := w.ask(http.MethodGet, path, "")
	changed := strings.ReplaceAll(before, pods[1].port.PortName, "tap00000000-00")
	require.NotEqual(w.t, before, changed)
	status, answer := w.ask(http.MethodPut, path, changed)
	require.Equal(w.t, http.StatusOK, status, answer)
	await(w.t, patience, "the bridge writes the entry again", func() error {
		if _, now := w.ask(http.MethodGet, path, ""); !strings.Contains(now, pods[1].port.PortName) {
			return errors.New(now)
		}
		return nil
	})
	w.awaitSync(converge)
	w.awaitConfirmed(true, pods...)
	w.requireReach(pods...)
}

// testPassword: if the controller refuses the password, the bridge logs one error, and tries
// again without further errors.
func (w *world) testPassword() {
	const refused = "OpenDaylight refuses the bridge"
	late := &pod{namespace: "late", name: "one", number: 90}
	w.setPassword("wrong")
	w.putPods(late)
	await(w.t, patience, "the bridge logs the error", func() error {
		if w.bridge.Log().Count(refused) == 0 {
			return errors.New(w.bridge.Log().Last())
		}
		return nil
	})
	var first time.Time
	await(w.t, patience, "the bridge tries again", func() error {
		now := w.lastError("late")
		if first.IsZero() {
			first = now
		}
		if first.IsZero() || now.Sub(first) < 2*refusedPause {
			return fmt.Errorf("%s and %s", first, now)
		}
		return nil
	})
	w.setPassword(odl.Password)
	w.awaitSync(patience)
	require.Equal(w.t, 1, w.bridge.Log().Count(refused))
	w.change(http.MethodDelete, "pod:coe/pods/"+late.uid(), nil)
	w.awaitSync(patience)
}

// refusedPause is the time for which the bridge does not send a refused password again.
const refusedPause = 5 * time.Second

// lastError returns the time of the last failed write of a namespace.
func (w *world) lastError(namespace string) (at time.Time) {
	w.t.Helper()
	var st struct {
		Scopes []struct {
			Name string    `json:"name"`
			At   time.Time `json:"last-error-time"`
		} `json:"scope"`
	}
	_, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-status:status", &st)
	require.NoError(w.t, err)
	for _, s := range st.Scopes {
		if s.Name == namespace {
			at = s.At
		}
	}
	return at
}

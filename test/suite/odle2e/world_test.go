// Package odle2e tests the bridge on real releases of OpenDaylight, as users see it. The tests post pods
// over RESTCONF, plug ports into switches of OpenDaylight, send packets, and kill and restart all
// programs.
package odle2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

const (
	// converge is the time in which the bridge must be in sync after the controller is ready.
	converge = 15 * time.Second
	// patience is the time in which OpenDaylight must act on a busy machine.
	patience = 2 * time.Minute
	// interval is the time between two checks.
	interval = 100 * time.Millisecond
)

// object is a JSON object.
type object map[string]any

// world is a controller with one host, and a bridge.
type world struct {
	whole  *testing.T // of the whole test; the programs end with it
	t      *testing.T // of the present step
	c      *odl.Controller
	host   *ovnhost.Host
	auth   string
	bridge *bridgetest.Process
}

// pod is a pod of the world's host.
type pod struct {
	namespace, name string
	number          int
	profiles        []string    // security profiles
	port            ovnhost.Pod // the port with which it was plugged in
}

func (p *pod) String() string { return p.namespace + ":" + p.name }
func (p *pod) uid() string    { return fmt.Sprintf("0d1e2e00-c0e0-4000-8000-%012d", p.number) }

func newWorld(t *testing.T, release odl.Release) *world {
	t.Helper()
	c := odl.ForTest(t, release, "host1")
	w := &world{whole: t, t: t, c: c, host: c.Lab.Hosts[0], auth: filepath.Join(t.TempDir(), "auth")}
	w.setPassword(odl.Password)
	return w
}

// step runs a part of the test. If it fails, the later parts do not run.
func (w *world) step(name string, do func()) {
	w.whole.Helper()
	ok := w.whole.Run(name, func(t *testing.T) {
		w.t = t
		do()
	})
	w.t = w.whole
	require.True(w.t, ok, name)
}

func (w *world) setPassword(password string) {
	require.NoError(w.t, os.WriteFile(w.auth, []byte(odl.User+":"+password), 0o600))
}

// serve starts a bridge with a pool for all pods.
func (w *world) serve(args ...string) {
	w.t.Helper()
	w.bridge = bridgetest.Serve(w.whole, append([]string{
		"--data-dir", w.whole.TempDir(), "--backend", "odl", "--odl-url", w.c.URL, "--odl-auth-file", w.auth,
	}, args...)...)
	w.put("dhcp_allocation_pool:dhcp_allocation_pool/network/default", object{"network": []object{{
		"network-id": "default", "allocation-pool": []object{{"subnet": "10.42.0.0/16", "gateway": "10.42.0.1"}},
	}}})
}

func (w *world) change(method, path string, body any) {
	w.t.Helper()
	status, answer, err := w.bridge.Client().Do(w.t.Context(), method, "/restconf/config/"+path, body)
	require.NoError(w.t, err)
	require.Equal(w.t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

func (w *world) put(path string, body any) { w.t.Helper(); w.change(http.MethodPut, path, body) }

func (w *world) putPods(pods ...*pod) {
	w.t.Helper()
	for _, p := range pods {
		entry := object{
			"uid": p.uid(), "name": p.name, "network-NS": p.namespace, "host-ip-address": w.host.Address,
			"interface": []object{{"uid": p.uid(), "network-type": "VXLAN"}},
		}
		if len(p.profiles) > 0 {
			entry["coe-profiles:security-profiles"] = p.profiles
		}
		w.put("pod:coe/pods/"+p.uid(), object{"pods": []object{entry}})
	}
}

// plug plugs pods in with the data of their records, as an agent does.
func (w *world) plug(pods ...*pod) {
	w.t.Helper()
	for _, p := range pods {
		await(w.t, patience, "there is a record of "+p.String(), func() error {
			r, err := w.record(p)
			if err == nil {
				err = p.take(r, w.host.Name)
			}
			return err
		})
		require.NoError(w.t, w.c.Lab.Plug(w.t.Context(), p.port))
	}
}

// record is the record of an interface in an agent's stream.
type record struct {
	Pod       string `json:"pod-uid"`
	Name      string `json:"name"`
	Port      string `json:"parent-interface"`
	MAC       string `json:"mac-address"`
	Confirmed bool   `json:"confirmed"`
	Addresses []struct {
		IP      netip.Addr `json:"ip"`
		Length  int        `json:"prefix-length"`
		Gateway netip.Addr `json:"gateway"`
	} `json:"address"`
}

func (w *world) record(p *pod) (record, error) {
	var all struct {
		Interfaces []record `json:"interface"`
	}
	if _, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-agent:interfaces", &all); err != nil {
		return record{}, err
	}
	for _, r := range all.Interfaces {
		if r.Pod == p.uid() {
			return r, nil
		}
	}
	return record{}, fmt.Errorf("no record of %s", p)
}

// take sets the pod's port from a record.
func (p *pod) take(r record, host string) error {
	mac, err := net.ParseMAC(r.MAC)
	if err != nil || len(r.Addresses) == 0 {
		return fmt.Errorf("record of %s: %+v: %w", p, r, err)
	}
	a := r.Addresses[0]
	p.port = ovnhost.Pod{
		Host: host, Name: p.String(), UID: p.uid(), PortName: r.Port, MAC: mac,
		Address: netip.PrefixFrom(a.IP, a.Length), Gateway: a.Gateway,
	}
	return nil
}

// awaitConfirmed waits until the records of the pods are confirmed, or are not.
func (w *world) awaitConfirmed(want bool, pods ...*pod) {
	w.t.Helper()
	await(w.t, patience, "the expected confirmation", func() error {
		for _, p := range pods {
			r, err := w.record(p)
			if err != nil {
				return err
			}
			if r.Confirmed != want {
				return fmt.Errorf("%s is confirmed: %t; trace: %s", p, r.Confirmed, w.missing(p))
			}
		}
		return nil
	})
}

// missing returns the first stage that a pod has not reached, with the reason.
func (w *world) missing(p *pod) string {
	var all struct {
		Namespaces []struct {
			Pods []struct {
				UID     string `json:"uid"`
				Missing string `json:"missing"`
				Stages  []struct {
					Name   string `json:"name"`
					Detail string `json:"detail"`
				} `json:"stage"`
			} `json:"pod"`
		} `json:"namespace"`
	}
	if _, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-status:pods", &all); err != nil {
		return err.Error()
	}
	for _, n := range all.Namespaces {
		for _, one := range n.Pods {
			for _, s := range one.Stages {
				if one.UID == p.uid() && s.Name == one.Missing {
					return s.Name + ": " + s.Detail
				}
			}
		}
	}
	return ""
}

// awaitMissing waits until the trace of a pod has a reason why it is not confirmed.
func (w *world) awaitMissing(p *pod, why string) {
	w.t.Helper()
	await(w.t, patience, "the reason in the trace", func() error {
		if said := w.missing(p); !strings.Contains(said, why) {
			return fmt.Errorf("the trace says %q and not %q", said, why)
		}
		return nil
	})
}

// awaitSync waits until the bridge is in sync, and returns the duration.
func (w *world) awaitSync(within time.Duration) time.Duration {
	w.t.Helper()
	begun := time.Now()
	await(w.t, within, "in sync", func() error {
		var st bridgetest.Status
		_, err := w.bridge.Client().Read(w.t.Context(), "operational/coe-status:status", &st)
		if err == nil && !st.InSync {
			err = fmt.Errorf("not in sync: %+v", st)
		}
		return err
	})
	return time.Since(begun)
}

// requireReach waits until each pod reaches each other pod.
func (w *world) requireReach(pods ...*pod) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for _, from := range pods {
		for _, to := range pods {
			if from != to {
				require.NoError(w.t, ovnhost.Poll(ctx, func(ctx context.Context) error {
					return w.c.Lab.Ping(ctx, from.String(), to.port.Address.Addr())
				}))
			}
		}
	}
}

// ask sends a request to the controller directly.
func (w *world) ask(method, path string, body string) (int, string) {
	w.t.Helper()
	status, answer, err := w.c.Request(w.t.Context(), method, "/restconf/"+path, body)
	require.NoError(w.t, err)
	return status, string(answer)
}

// entry returns the path of an entry in the controller's config tree.
func entry(list string, key string) string { return "config/" + list + "/" + url.QueryEscape(key) }

// await waits until holds returns nil. After a timeout it fails the test with the last error.
func await(t testing.TB, within time.Duration, what string, holds func() error) {
	t.Helper()
	bridgetest.Await(t, interval, within, what, holds)
}

package odl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// eachDialect runs a test on an empty controller for each dialect.
func eachDialect(t *testing.T, test func(t *testing.T, b *odl.Backend, f *fake)) {
	for name, c := range spoken {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.release)
			cfg := f.config(t)
			cfg.Dialect = c.dialect
			test(t, open(t, cfg), f)
		})
	}
}

func observe(t *testing.T, b *odl.Backend, awaited ...string) []string {
	t.Helper()
	changed, err := b.Observe(t.Context(), awaited)
	require.NoError(t, err)
	return changed
}

// lacks returns what the network lacks of a model, by kind.
func lacks(b *odl.Backend, m netvirt.Model) map[netvirt.Kind]string {
	all := map[netvirt.Kind]string{}
	for k, o := range m {
		if text := b.Lacks(o); text != "" {
			all[k.Kind] = text
		}
	}
	return all
}

func portOf(m netvirt.Model, name string) string {
	return m[netvirt.Interface{Name: name}.Key()].(netvirt.Interface).ParentInterface
}

// TestObserve follows a pod that is written, plugged in, changed, goes down and is unplugged.
func TestObserve(t *testing.T) {
	eachDialect(t, func(t *testing.T, b *odl.Backend, f *fake) {
		const name = "a:pod-1"
		want := podsOf("a", "b")
		write(t, b, want)
		require.Len(t, lacks(b, want), 8, "nothing is known yet")

		observe(t, b)
		require.Equal(t, map[netvirt.Kind]string{
			netvirt.KindInterface: notPlugged, netvirt.KindELANInterface: notPlugged, netvirt.KindMACEntry: notPlugged,
			netvirt.KindVPNInterface: notPlugged, netvirt.KindAdjacency: notPlugged,
		}, lacks(b, want), "instances need no port")

		f.Plug(portOf(want, "b:pod-1"))
		observe(t, b)
		f.Plug(portOf(want, name))
		require.Equal(t, []string{name}, observe(t, b, name))
		require.Empty(t, lacks(b, want))
		require.Empty(t, observe(t, b))

		now := podsOf("a", "b")
		for k, o := range now {
			if a, ok := o.(netvirt.Adjacency); ok && a.Interface == name {
				delete(now, k)
				a.Address = netip.MustParseAddr("10.0.7.7")
				now.Add(a)
			}
		}
		write(t, b, now)
		require.NotEmpty(t, lacks(b, now), "the new entries were not observed yet")
		require.Equal(t, []string{name}, observe(t, b))
		require.Empty(t, lacks(b, now))
		require.Contains(t, lacks(b, want)[netvirt.KindAdjacency], "does not have its address")

		f.Down(portOf(want, name))
		require.Equal(t, []string{name}, observe(t, b, name))
		require.Contains(t, lacks(b, now)[netvirt.KindInterface], "down")
		f.Unplug(portOf(want, name))
		require.Equal(t, []string{name}, observe(t, b))
		require.Equal(t, notPlugged, lacks(b, now)[netvirt.KindInterface])
	})
}

const notPlugged = "not plugged in yet: OpenDaylight knows of no such port on a switch that it manages"

// TestNotProgrammed: a pod is plugged in, but OpenDaylight has not programmed its
// vpn-instance, because another one has its route distinguisher.
func TestNotProgrammed(t *testing.T) {
	eachDialect(t, func(t *testing.T, b *odl.Backend, f *fake) {
		want := podsOf("a")
		want.Add(netvirt.VPNInstance{Name: "a", Namespace: "a", RouteDistinguisher: "100:2"})
		delete(want, netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}.Key())
		write(t, b, want)
		for _, module := range []string{"l3vpn", "l3vpn-instances-interfaces"} {
			f.Set(module+":vpn-instances", "vpn-instance", "another", map[string]any{
				"vpn-instance-name": "another", "route-distinguisher": []any{"100:2"},
			})
		}
		f.Plug(portOf(want, "a:pod-1"))
		observe(t, b)
		require.Equal(t, []netvirt.Kind{netvirt.KindVPNInstance, netvirt.KindVPNInterface, netvirt.KindAdjacency}, slices.Sorted(maps.Keys(lacks(b, want))))
		require.Contains(t, lacks(b, want)[netvirt.KindVPNInterface], "flows not programmed: its vpn-instance is not in vpn-instance-op-data")
	})
}

// TestObserveRecorded reads the recorded state of two pods on a real Oxygen.
func TestObserveRecorded(t *testing.T) {
	recorded := map[string][]byte{}
	text, err := os.ReadFile(filepath.Join("testdata", "oxygen-operational.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var x struct {
			Path   string          `json:"path"`
			Answer json.RawMessage `json:"answer"`
		}
		require.NoError(t, json.Unmarshal(line, &x))
		recorded[x.Path] = x.Answer
	}
	b, f := start(t, odlfake.Oxygen)
	_, err = b.Read(t.Context())
	require.NoError(t, err)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		body, found := recorded[r.URL.Path]
		if found && strings.HasPrefix(r.URL.Path, "/restconf/operational") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		}
		return found
	})
	changed := observe(t, b)
	require.Subset(t, changed, []string{"default:busybox1", "default:busybox2"})
	want := netvirt.Model{}
	want.Add(
		netvirt.ELANInstance{Name: "192.168.33.12:default"}, netvirt.VPNInstance{Name: "default", Namespace: "default"},
		netvirt.Interface{Name: "default:busybox1"}, netvirt.ELANInterface{Name: "default:busybox1", ELAN: "192.168.33.12:default"},
		netvirt.VPNInterface{Name: "default:busybox1", VPN: "default"},
		netvirt.Adjacency{Interface: "default:busybox1", Address: netip.MustParseAddr("10.11.2.28"), MAC: "0a:58:0a:0b:02:1c"},
	)
	require.Empty(t, lacks(b, want))
	require.NotEmpty(t, b.Lacks(netvirt.ELANInterface{Name: "default:busybox1", ELAN: "192.168.33.13:default"}))
	require.NotEmpty(t, b.Lacks(netvirt.VPNInterface{Name: "default:busybox1", VPN: "another"}))
	require.NotEmpty(t, b.Lacks(netvirt.Adjacency{Interface: "default:busybox1", Address: netip.MustParseAddr("10.11.2.2"), MAC: "0a:58:0a:0b:02:1c"}))
}

// TestObserveIsCheap: without a change, two short lists are read. For a new pod its own
// entries are read too, and for many new pods everything. The next hop of each new pod is read.
func TestObserveIsCheap(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Poll = time.Hour
	b := open(t, cfg)
	want := netvirt.Model{}
	want.Add(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})
	for i := range 40 {
		podOn(want, "a", podName(i), 0, i)
	}
	node := netip.MustParseAddr("192.168.33.10")
	own := netvirt.NodePort{ELAN: netvirt.ELANName(node, "a"), VPN: "a", Address: node, MAC: netvirt.NodePortMAC(node)}
	want.Add(own)
	write(t, b, want)
	observe(t, b)
	requests := func(ports ...string) int {
		for _, p := range ports {
			f.Plug(p)
		}
		f.Requests()
		observe(t, b)
		return f.Requests()[http.MethodGet]
	}
	require.Equal(t, 2, requests())
	require.Equal(t, 5, requests(portOf(want, "a:pod-0")), "the last one is for the next hop of its address")
	require.Equal(t, 2, requests())
	require.NotEmpty(t, b.Lacks(own))
	require.Equal(t, 3, requests(netvirt.NodePortName(own.Name())), "it is in no vpn-instance")
	require.Empty(t, b.Lacks(own))
	require.Equal(t, 2, requests(), "it is complete without addresses")
	var ports []string
	for i := range 40 {
		ports = append(ports, portOf(want, "a:"+podName(i)))
	}
	require.Equal(t, 4+40-1, requests(ports...))
	require.Empty(t, lacks(b, want))
}

// TestObserveFails: while the controller does not answer, the last observation counts. After
// a restart of the controller everything is read.
func TestObserveFails(t *testing.T) {
	eachDialect(t, func(t *testing.T, b *odl.Backend, f *fake) {
		want := podsOf("a")
		write(t, b, want)
		f.Plug(portOf(want, "a:pod-1"))
		observe(t, b)
		require.Empty(t, lacks(b, want))
		f.Load(http.StatusServiceUnavailable)
		_, err := b.Observe(t.Context(), nil)
		require.Error(t, err)
		require.Empty(t, lacks(b, want))
		f.Load(0)
		f.Unplug()
		agree(t, b, want)
		require.Equal(t, []string{"a:pod-1"}, observe(t, b))
		require.NotEmpty(t, lacks(b, want))
	})
}

// TestFloatingIPs: floating IPs are written, and never reported as in operation.
func TestFloatingIPs(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := podsOf("a")
	ip := netvirt.FloatingIP{
		Router: "a", Port: "a:pod-1", Namespace: "a", Internal: netip.MustParseAddr("10.0.0.4"),
		External: netip.MustParseAddr("10.96.0.10"), ExternalID: "8f2a6d5e-0000-4000-8000-0000000000aa",
	}
	want.Add(ip)
	write(t, b, want)
	f.Plug(portOf(want, "a:pod-1"))
	observe(t, b)
	require.Len(t, lacks(b, want), 1)
	require.Contains(t, b.Lacks(ip), "natservice")
}

// TestMayWrite: a backend that has lost the right to write still reads, and sends no
// further write request.
func TestMayWrite(t *testing.T) {
	eachDialect(t, func(t *testing.T, _ *odl.Backend, f *fake) {
		deposed := errors.New("another leads")
		var left atomic.Int64
		cfg := f.config(t)
		cfg.MayWrite = func(context.Context) error {
			if left.Add(-1) < 0 {
				return deposed
			}
			return nil
		}
		b := open(t, cfg)
		left.Store(100)
		write(t, b, podsOf("a"))
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		left.Store(2)
		f.Requests()
		require.ErrorIs(t, b.Write(t.Context(), netvirt.Diff(have, podsOf("b", "c"))), deposed)
		seen := f.Requests()
		require.Equal(t, 2, seen[http.MethodPut]+seen[http.MethodPost]+seen[http.MethodDelete], "%v", seen)
		_, err = b.Read(t.Context())
		require.NoError(t, err)
	})
}

// TestObserveDuringWrite: an observation does not wait for a Write, which can take long.
func TestObserveDuringWrite(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := podsOf("a")
	write(t, b, want)
	f.Plug(portOf(want, "a:pod-1"))
	begun, release := make(chan struct{}, 100), make(chan struct{})
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			begun <- struct{}{}
			<-release
		}
		return false
	})
	written := make(chan error, 1)
	go func() { written <- b.Write(t.Context(), netvirt.Diff(want, podsOf("a", "b"))) }()
	<-begun
	require.Equal(t, []string{"a:pod-1"}, observe(t, b))
	close(release)
	require.NoError(t, <-written)
}

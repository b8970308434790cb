package operational_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/operational"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// lab is a network with a controller, and a writer of its entries.
type lab struct {
	*odlfake.Controller
	*operational.Network
	session *controller.Session
	mirror  *codec.Mirror
	have    netvirt.Model
}

// start starts a controller without entries. mayWrite may be nil.
func start(t *testing.T, release odlfake.Release, cfg operational.Config, mayWrite func(context.Context) error) *lab {
	t.Helper()
	fake, err := odlfake.New(release)
	require.NoError(t, err)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	password := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(password, []byte(odlfake.User+":"+odlfake.Password), 0o600))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := controller.New(controller.Config{
		AuthFile: password, Timeout: patience.Patience, ReadTimeout: patience.Patience, ConnectTimeout: patience.Patience,
		Parallel: 8, AnswerBytes: 1 << 20, MayWrite: mayWrite,
	}, log)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	session, err := client.Open(t.Context(), server.URL)
	require.NoError(t, err)
	l := &lab{Controller: fake, Network: operational.New(cfg, log), session: session, mirror: codec.NewMirror(session.Form)}
	l.Use(session)
	return l
}

// eachDialect runs a test with a controller for each dialect.
func eachDialect(t *testing.T, test func(t *testing.T, l *lab)) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, odlfake.Neon, odlfake.AsTheRFC} {
		t.Run(release.Name, func(t *testing.T) { test(t, start(t, release, operational.Config{Poll: 20 * time.Millisecond}, nil)) })
		if release.Draft02 {
			release.Draft02 = false
			t.Run(release.Name+" over RFC 8040", func(t *testing.T) { test(t, start(t, release, operational.Config{Poll: 20 * time.Millisecond}, nil)) })
		}
	}
}

// write writes the entries of a model, and forgets their state.
func (l *lab) write(t *testing.T, want netvirt.Model) {
	t.Helper()
	changes := netvirt.Diff(l.have, want)
	lists, refused := l.mirror.Operations(changes)
	require.Empty(t, refused)
	for i, all := range lists {
		for _, o := range all {
			if o.Entry == nil {
				require.NoError(t, l.session.Delete(t.Context(), &l.session.Lists[i], o.Key()))
			} else {
				require.NoError(t, l.session.Put(t.Context(), &l.session.Lists[i], o.Entry))
			}
			l.mirror.Put(o.Unit, i, o.Entry)
		}
	}
	l.have = want
	l.Forget(changes)
}

func (l *lab) observe(t *testing.T, awaited ...string) []string {
	t.Helper()
	changed, err := l.Observe(t.Context(), awaited)
	require.NoError(t, err)
	return changed
}

// lacks returns what the network lacks of a model, by kind.
func (l *lab) lacks(m netvirt.Model) map[netvirt.Kind]string {
	all := map[netvirt.Kind]string{}
	for k, o := range m {
		if text := l.Lacks(o); text != "" {
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
	eachDialect(t, func(t *testing.T, l *lab) {
		const name = "a:pod-1"
		want := odltest.PodsOf("a", "b")
		l.write(t, want)
		require.Len(t, l.lacks(want), 8, "nothing is known yet")

		l.observe(t)
		require.Equal(t, map[netvirt.Kind]string{
			netvirt.KindInterface: notPlugged, netvirt.KindELANInterface: notPlugged, netvirt.KindMACEntry: notPlugged,
			netvirt.KindVPNInterface: notPlugged, netvirt.KindAdjacency: notPlugged,
		}, l.lacks(want), "instances need no port")

		l.Plug(portOf(want, "b:pod-1"))
		l.observe(t)
		l.Plug(portOf(want, name))
		require.Equal(t, []string{name}, l.observe(t, name))
		require.Empty(t, l.lacks(want))
		require.Empty(t, l.observe(t))

		now := odltest.PodsOf("a", "b")
		for k, o := range now {
			if a, ok := o.(netvirt.Adjacency); ok && a.Interface == name {
				delete(now, k)
				a.Address = netip.MustParseAddr("10.0.7.7")
				now.Add(a)
			}
		}
		l.write(t, now)
		require.NotEmpty(t, l.lacks(now), "the new entries were not observed yet")
		require.Equal(t, []string{name}, l.observe(t))
		require.Empty(t, l.lacks(now))
		require.Contains(t, l.lacks(want)[netvirt.KindAdjacency], "does not have its address")

		l.Down(portOf(want, name))
		require.Equal(t, []string{name}, l.observe(t, name))
		require.Contains(t, l.lacks(now)[netvirt.KindInterface], "down")
		l.Unplug(portOf(want, name))
		require.Equal(t, []string{name}, l.observe(t))
		require.Equal(t, notPlugged, l.lacks(now)[netvirt.KindInterface])
	})
}

const notPlugged = "not plugged in yet: OpenDaylight knows of no such port on a switch that it manages"

// TestNotProgrammed: a pod is plugged in, but OpenDaylight has not programmed its
// vpn-instance, because another one has its route distinguisher.
func TestNotProgrammed(t *testing.T) {
	eachDialect(t, func(t *testing.T, l *lab) {
		want := odltest.PodsOf("a")
		want.Add(netvirt.VPNInstance{Name: "a", Namespace: "a", RouteDistinguisher: "100:2"})
		delete(want, netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}.Key())
		l.write(t, want)
		for _, module := range []string{"l3vpn", "l3vpn-instances-interfaces"} {
			l.Set(module+":vpn-instances", "vpn-instance", "another", map[string]any{
				"vpn-instance-name": "another", "route-distinguisher": []any{"100:2"},
			})
		}
		l.Plug(portOf(want, "a:pod-1"))
		l.observe(t)
		require.Equal(t, []netvirt.Kind{netvirt.KindVPNInstance, netvirt.KindVPNInterface, netvirt.KindAdjacency}, slices.Sorted(maps.Keys(l.lacks(want))))
		require.Contains(t, l.lacks(want)[netvirt.KindVPNInterface], "flows not programmed: its vpn-instance is not in vpn-instance-op-data")
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
	l := start(t, odlfake.Oxygen, operational.Config{}, nil)
	l.Break(func(w http.ResponseWriter, r *http.Request) bool {
		body, found := recorded[r.URL.Path]
		if found && strings.HasPrefix(r.URL.Path, "/restconf/operational") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		}
		return found
	})
	changed := l.observe(t)
	require.Subset(t, changed, []string{"default:busybox1", "default:busybox2"})
	want := netvirt.Model{}
	want.Add(
		netvirt.ELANInstance{Name: "192.168.33.12:default"}, netvirt.VPNInstance{Name: "default", Namespace: "default"},
		netvirt.Interface{Name: "default:busybox1"}, netvirt.ELANInterface{Name: "default:busybox1", ELAN: "192.168.33.12:default"},
		netvirt.VPNInterface{Name: "default:busybox1", VPN: "default"},
		netvirt.Adjacency{Interface: "default:busybox1", Address: netip.MustParseAddr("10.11.2.28"), MAC: "0a:58:0a:0b:02:1c"},
	)
	require.Empty(t, l.lacks(want))
	require.NotEmpty(t, l.Lacks(netvirt.ELANInterface{Name: "default:busybox1", ELAN: "192.168.33.13:default"}))
	require.NotEmpty(t, l.Lacks(netvirt.VPNInterface{Name: "default:busybox1", VPN: "another"}))
	require.NotEmpty(t, l.Lacks(netvirt.Adjacency{Interface: "default:busybox1", Address: netip.MustParseAddr("10.11.2.2"), MAC: "0a:58:0a:0b:02:1c"}))
}

// TestObserveIsCheap: without a change, two short lists are read. For a new pod its own
// entries are read too, and for many new pods everything. The next hop of each new pod is read.
func TestObserveIsCheap(t *testing.T) {
	l := start(t, odlfake.Oxygen, operational.Config{Poll: time.Hour}, nil)
	want := netvirt.Model{}
	want.Add(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})
	for i := range 40 {
		odltest.PodOn(want, "a", fmt.Sprintf("pod-%d", i), 0, i)
	}
	own := netvirt.NodePort{ELAN: netvirt.ELANName(odltest.Node, "a"), VPN: "a", Address: odltest.Node, MAC: netvirt.NodePortMAC(odltest.Node)}
	want.Add(own)
	l.write(t, want)
	l.observe(t)
	requests := func(ports ...string) int {
		for _, p := range ports {
			l.Plug(p)
		}
		l.Requests()
		l.observe(t)
		return l.Requests()[http.MethodGet]
	}
	require.Equal(t, 2, requests())
	require.Equal(t, 5, requests(portOf(want, "a:pod-0")), "the last one is for the next hop of its address")
	require.Equal(t, 2, requests())
	require.NotEmpty(t, l.Lacks(own))
	require.Equal(t, 3, requests(netvirt.NodePortName(own.Name())), "it is in no vpn-instance")
	require.Empty(t, l.Lacks(own))
	require.Equal(t, 2, requests(), "it is complete without addresses")
	var ports []string
	for i := range 40 {
		ports = append(ports, portOf(want, fmt.Sprintf("a:pod-%d", i)))
	}
	require.Equal(t, 4+40-1, requests(ports...))
	require.Empty(t, l.lacks(want))
}

// TestPortOfNodeOutsideELANState: a port of a node that elan-state lacks is in operation, and an interface of a pod is not.
func TestPortOfNodeOutsideELANState(t *testing.T) {
	l := start(t, odlfake.Oxygen, operational.Config{}, nil)
	want := odltest.PodsOf("a")
	own := netvirt.NodePort{ELAN: netvirt.ELANName(odltest.Node, "a"), VPN: "a", Address: odltest.Node, MAC: netvirt.NodePortMAC(odltest.Node)}
	want.Add(own)
	l.write(t, want)
	l.Plug(netvirt.NodePortName(own.Name()))
	l.Plug(portOf(want, "a:pod-1"))
	l.Break(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "elan:elan-state") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, err := fmt.Fprintf(w, `{"elan-state":{"elan":[{"name":%q}]}}`, own.ELAN)
		return err == nil
	})
	l.observe(t)
	require.Empty(t, l.Lacks(own))
	require.Contains(t, l.Lacks(netvirt.ELANInterface{Name: "a:pod-1", ELAN: own.ELAN}), "elan-state")
}

// TestFloatingIPs: floating IPs are written, and never reported as in operation.
func TestFloatingIPs(t *testing.T) {
	l := start(t, odlfake.Oxygen, operational.Config{}, nil)
	want := odltest.PodsOf("a")
	ip := netvirt.FloatingIP{
		Router: "a", Port: "a:pod-1", Namespace: "a", Internal: netip.MustParseAddr("10.0.0.4"),
		External: netip.MustParseAddr("10.96.0.10"), ExternalID: "8f2a6d5e-0000-4000-8000-0000000000aa",
	}
	want.Add(ip)
	l.write(t, want)
	l.Plug(portOf(want, "a:pod-1"))
	l.observe(t)
	require.Len(t, l.lacks(want), 1)
	require.Contains(t, l.Lacks(ip), "natservice")
}

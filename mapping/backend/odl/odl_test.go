package odl_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// spoken lists the dialects, with a controller for each.
var spoken = map[string]struct {
	release odlfake.Release
	dialect string // in Config; empty if detected
}{
	"draft-02 of Oxygen":           {release: odlfake.Oxygen},
	"draft-02 of Magnesium":        {release: withL3VPN(odlfake.Neon, odlfake.Moved)},
	"draft-02, and the flat l3vpn": {release: withL3VPN(odlfake.Neon, odlfake.Flat)},
	"RFC 8040 of Oxygen":           {release: without(odlfake.Oxygen)},
	"RFC 8040 of Neon":             {release: odlfake.Neon, dialect: "rfc8040-neon"},
	"RFC 8040 as the RFC says":     {release: odlfake.AsTheRFC},
}

// withL3VPN returns a controller with another form of l3vpn.
func withL3VPN(r odlfake.Release, form odlfake.L3VPN) odlfake.Release {
	r.L3VPN = form
	return r
}

// without returns a controller without draft-02.
func without(r odlfake.Release) odlfake.Release {
	r.Draft02 = false
	return r
}

// fake is a controller with its address.
type fake struct {
	*odlfake.Controller
	url string
}

func newFake(t *testing.T, release odlfake.Release) *fake {
	t.Helper()
	c, err := odlfake.New(release)
	require.NoError(t, err)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return &fake{c, server.URL}
}

// config returns a configuration with the fake's password and short intervals.
func (f *fake) config(t *testing.T) odl.Config {
	return odl.Config{
		URLs: f.url, AuthFile: passwordFile(t, odlfake.User+":"+odlfake.Password+"\n"),
		Timeout: 20 * time.Second, Probe: 20 * time.Millisecond, Poll: 20 * time.Millisecond, Conflict: time.Nanosecond,
	}
}

// inEachDialect runs a test for each dialect, with a fake that serves it.
func inEachDialect(t *testing.T, test func(t *testing.T, f *fake, cfg odl.Config)) {
	for name, c := range spoken {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.release)
			cfg := f.config(t)
			cfg.Dialect = c.dialect
			test(t, f, cfg)
		})
	}
}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func open(t *testing.T, cfg odl.Config) *odl.Backend {
	t.Helper()
	b, err := odl.New(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// start starts a fake and a backend on it.
func start(t *testing.T, release odlfake.Release) (*odl.Backend, *fake) {
	t.Helper()
	f := newFake(t, release)
	return open(t, f.config(t)), f
}

// small returns a model with some pods.
func small(b *odl.Backend, seed uint64, pods int) netvirt.Model {
	w := backendtest.NewWorld(seed)
	w.AddPods(pods)
	return w.Model().Select(b.Kinds())
}

// write writes a model, and checks that Read returns it.
func write(t *testing.T, b *odl.Backend, want netvirt.Model) {
	t.Helper()
	for deferred := true; deferred; {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		deferred = isDeferred(t, b.Write(t.Context(), netvirt.Diff(have, want)))
	}
	agree(t, b, want)
}

// isDeferred reports whether a Write has deferred changes. Another error fails the test.
func isDeferred(t *testing.T, err error) bool {
	t.Helper()
	var deferred *netvirt.DeferredError
	if errors.As(err, &deferred) {
		require.NotEmpty(t, deferred.Have)
		return true
	}
	require.NoError(t, err)
	return false
}

func agree(t *testing.T, b *odl.Backend, want netvirt.Model) {
	t.Helper()
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	backendtest.Agree(t, want, have)
}

// TestConformance runs the suite of all backends in every dialect.
func TestConformance(t *testing.T) {
	for name, c := range spoken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, func(t *testing.T) backendtest.Backend {
				f := newFake(t, c.release)
				f.Lag(10)
				cfg := f.config(t)
				cfg.Dialect = c.dialect
				return open(t, cfg)
			})
		})
	}
}

// TestNothingWrittenTwice: a new backend writes nothing to a controller that has all entries.
// Repeating a write sends nothing either.
func TestNothingWrittenTwice(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := small(b, 1, 20)
	write(t, b, want)
	tags := f.Entry("elan:elan-instances", "elan-instance", f.Keys("elan:elan-instances")[0])
	f.Requests()

	require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want)))
	other := open(t, f.config(t))
	agree(t, other, want)
	require.NoError(t, other.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want)))
	seen := f.Requests()
	require.Zero(t, seen[http.MethodPut]+seen[http.MethodPost]+seen[http.MethodDelete], "%v", seen)
	require.Equal(t, tags, f.Entry("elan:elan-instances", "elan-instance", f.Keys("elan:elan-instances")[0]))
}

// TestFewRequests: new entries are created with one request for each list. Before it, the operational state of each new
// elan-instance is read, or, if there are many, that of all.
func TestFewRequests(t *testing.T) {
	b, f := start(t, odlfake.Neon)
	want := small(b, 1, 20)
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	f.Requests()
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want)))
	elans := len(f.Keys("elan:elan-instances"))
	require.Equal(t, map[string]int{http.MethodPost: 6, http.MethodGet: elans}, f.Requests(), "one of them writes the identity")
}

// TestStages: a list is written after the lists that it depends on, and deleted before them.
func TestStages(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	var (
		mu      sync.Mutex
		under   = map[string]int{} // running requests, by list
		written []string
	)
	order := map[string]int{"elan:elan-instances": 0, "l3vpn:vpn-instances": 0, "ietf-interfaces:interfaces": 1, "elan:elan-interfaces": 2, "l3vpn:vpn-interfaces": 3}
	deleting := false
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		list, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/restconf/config/"), "/")
		if _, known := order[list]; !known || r.Method == http.MethodGet {
			return false
		}
		mu.Lock()
		for other := range under {
			before, after := order[other], order[list]
			if deleting {
				before, after = after, before
			}
			if under[other] > 0 && before < after {
				t.Errorf("%s and %s are written at the same time", list, other)
			}
		}
		under[list]++
		written = append(written, list)
		mu.Unlock()
		<-time.After(5 * time.Millisecond)
		mu.Lock()
		under[list]--
		mu.Unlock()
		return false
	})
	want := small(b, 1, 5)
	write(t, b, want)
	require.NotEmpty(t, written)
	require.True(t, slices.IsSortedFunc(written, func(a, b string) int { return order[a] - order[b] }), "%v", written)
	mu.Lock()
	deleting, written = true, nil
	mu.Unlock()
	write(t, b, netvirt.Model{})
	require.True(t, slices.IsSortedFunc(written, func(a, b string) int { return order[b] - order[a] }), "%v", written)
}

// TestBatchesAreBounded: a batch is bounded by its size and by the number of its entries.
func TestBatchesAreBounded(t *testing.T) {
	f := newFake(t, odlfake.Neon)
	cfg := f.config(t)
	cfg.BatchEntries, cfg.BatchBytes = 7, 2000
	b := open(t, cfg)
	var (
		mu      sync.Mutex
		longest int64
	)
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			longest = max(longest, r.ContentLength)
		}
		return false
	})
	write(t, b, small(b, 1, 20))
	require.Less(t, longest, int64(2500))
	require.Greater(t, f.Requests()[http.MethodPost], 9)
}

// TestLeavesOfOthersStay: an update deletes no leaves of other writers, and Read does not
// return them.
func TestLeavesOfOthersStay(t *testing.T) {
	inEachDialect(t, func(t *testing.T, f *fake, cfg odl.Config) {
		b := open(t, cfg)
		want := small(b, 1, 3)
		write(t, b, want)
		for k, o := range want {
			switch o := o.(type) {
			case netvirt.ELANInstance:
				o.SegmentationID += 1000
				want[k] = o
			case netvirt.Interface:
				o.ParentInterface = "tap00000000-00"
				want[k] = o
			case netvirt.VPNInterface:
				addLearnt(f, o.Name)
			case netvirt.Adjacency:
				o.MAC = "0a:58:00:00:ff:ff"
				want[k] = o
			}
		}
		elan := f.Keys("elan:elan-instances")[0]
		tag := f.Entry("elan:elan-instances", "elan-instance", elan)["elan-tag"]
		f.Set("elan:elan-instances", "elan-instance", elan, with(f.Entry("elan:elan-instances", "elan-instance", elan), "mac-timeout", 77))
		write(t, b, want)
		after := f.Entry("elan:elan-instances", "elan-instance", elan)
		require.EqualValues(t, 77, after["mac-timeout"])
		require.NotNil(t, tag)
		for _, k := range f.Keys(vpnInterfacesOf(f)) {
			require.Contains(t, f.Entry(vpnInterfacesOf(f), "vpn-interface", k)[adjacencyOf(f)], learnt)
		}
	})
}

// learnt is an adjacency that Netvirt adds to an interface for an address that it learns.
var learnt = any(map[string]any{"ip_address": "10.99.99.99/32", "mac_address": "0a:58:00:00:00:99", "adjacency_type": "learnt-ip"})

func addLearnt(f *fake, name string) {
	e := f.Entry(vpnInterfacesOf(f), "vpn-interface", name)
	list, _ := e[adjacencyOf(f)].([]any)
	f.Set(vpnInterfacesOf(f), "vpn-interface", name, with(e, adjacencyOf(f), append(list, learnt)))
}

func vpnInterfacesOf(f *fake) string {
	if len(f.Keys("l3vpn:vpn-interfaces")) > 0 {
		return "l3vpn:vpn-interfaces"
	}
	return "l3vpn-instances-interfaces:vpn-interfaces"
}

func adjacencyOf(f *fake) string {
	if vpnInterfacesOf(f) == "l3vpn:vpn-interfaces" {
		return "odl-l3vpn:adjacency"
	}
	return "adjacency"
}

func with(e map[string]any, name string, value any) map[string]any {
	e[name] = value
	return e
}

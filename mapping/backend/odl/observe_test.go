package odl_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
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

// TestObserveFails: while the controller does not answer, the last observation counts. After
// a restart of the controller everything is read.
func TestObserveFails(t *testing.T) {
	eachDialect(t, func(t *testing.T, b *odl.Backend, f *fake) {
		want := odltest.PodsOf("a")
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

// TestObserveAfterWrite: the state of entries that a Write has changed is not known until the next observation.
func TestObserveAfterWrite(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf("a")
	write(t, b, want)
	f.Plug(portOf(want, "a:pod-1"))
	observe(t, b)
	require.Empty(t, lacks(b, want))
	for k, o := range want {
		if a, ok := o.(netvirt.Adjacency); ok {
			delete(want, k)
			a.Address = netip.MustParseAddr("10.0.7.7")
			want.Add(a)
			break
		}
	}
	write(t, b, want)
	require.NotEmpty(t, lacks(b, want))
	require.Equal(t, []string{"a:pod-1"}, observe(t, b))
	require.Empty(t, lacks(b, want))
}

// TestWatchKeepsRoutes: while Watch runs, the routes of new connections are asked for.
func TestWatchKeepsRoutes(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.RoutesDelay = time.Nanosecond
	b := open(t, cfg)
	write(t, b, odltest.PodsOf("a"))
	answers := map[string]string{
		"/opendaylight-inventory:nodes":   `{"opendaylight-inventory:nodes":{"node":[{"id":"openflow:1","flow-node-inventory:port-number":40000}]}}`,
		"/odl-l3vpn:vpn-instance-op-data": `{"vpn-instance-op-data":{"vpn-instance-op-data-entry":[{"vpn-instance-name":"a","vpn-to-dpn-list":[{"dpnId":1},{"dpnId":2,"vpn-interfaces":[{"interface-name":"a:pod-2"}]}]}]}}`,
	}
	asked := make(chan struct{}, 10)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ":populate-fib-on-dpn") {
			asked <- struct{}{}
			return true
		}
		for path, text := range answers {
			if strings.HasSuffix(r.URL.Path, path) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, text)
				return true
			}
		}
		return false
	})
	watch(t, b)
	told(t, asked)
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
		write(t, b, odltest.PodsOf("a"))
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		left.Store(2)
		f.Requests()
		require.ErrorIs(t, b.Write(t.Context(), netvirt.Diff(have, odltest.PodsOf("b", "c"))), deposed)
		seen := f.Requests()
		require.Equal(t, 2, seen[http.MethodPut]+seen[http.MethodPost]+seen[http.MethodDelete], "%v", seen)
		_, err = b.Read(t.Context())
		require.NoError(t, err)
	})
}

// TestObserveDuringWrite: an observation does not wait for a Write, which can take long.
func TestObserveDuringWrite(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf("a")
	write(t, b, want)
	f.Plug(portOf(want, "a:pod-1"))
	begun, released := make(chan struct{}, 100), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			begun <- struct{}{}
			<-released
		}
		return false
	})
	written := make(chan error, 1)
	go func() { written <- b.Write(t.Context(), netvirt.Diff(want, odltest.PodsOf("a", "b"))) }()
	<-begun
	require.Equal(t, []string{"a:pod-1"}, observe(t, b))
	release()
	require.NoError(t, <-written)
}

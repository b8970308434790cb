package odl_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
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

// logged is a log for several goroutines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestHugeAnswer: 100 MB of empty or external entries need little memory. A value that is too
// long is an error, and needs little memory too.
func TestHugeAnswer(t *testing.T) {
	const list, library = "/restconf/config/elan:elan-interfaces", "/restconf/modules"
	for name, c := range map[string]struct{ path, before, entry, after, says string }{
		"something else": {
			list, `{"elan-interfaces":{"other":[`, `{"elan-instance-name":"` + strings.Repeat("x", 1000) + `","description":"another's"},`, `{}]}}`, "",
		},
		"another's entries": {
			list, `{"elan-interfaces":{"elan-interface":[`, `{"name":"` + port + `","elan-instance-name":"` + strings.Repeat("x", 200) + `"},`, `{"name":"x"}]}}`, "",
		},
		"one name":     {list, `{"elan-interfaces":{"elan-interface":[{"name":"`, strings.Repeat("x", 1000), `"}]}}`, "the answer is too long"},
		"unknown leaf": {list, `{"elan-interfaces":{"elan-interface":[{"name":"a:b","other":[`, `"x",`, `"x"]}]}}`, "the answer is too long"},
		"modules":      {library, `{"modules":{"module":[`, `{"name":"x"},`, `{"name":"x"}]}}`, "the answer is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, odlfake.Oxygen)
			cfg := f.config(t)
			cfg.Dialect, cfg.ReadTimeout = "draft-02", 10*time.Minute // for 100 MiB
			b := open(t, cfg)
			if c.path == list {
				write(t, b, odltest.PodsOf("a"))
			}
			f.Break(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != c.path {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.before)
				many := []byte(strings.Repeat(c.entry, 1+100_000/len(c.entry)))
				for range 100 << 20 / len(many) {
					if _, err := w.Write(many); err != nil {
						return true
					}
				}
				_, _ = io.WriteString(w, c.after)
				return true
			})
			require.Less(t, peakOf(func() {
				_, err := b.Read(t.Context())
				if c.says == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.says)
				}
			}), uint64(80<<20))
		})
	}
}

// peakOf returns the peak of the memory in use during a call, with little garbage.
func peakOf(do func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	runtime.GC()
	go func() {
		defer close(stopped)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	<-stopped
	return peak.Load()
}

// TestSlowPeer: the backend waits for answers that come shortly before the deadline.
func TestSlowPeer(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		pause := time.NewTimer(50 * time.Millisecond)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-r.Context().Done():
		}
		return false
	})
	write(t, b, odltest.PodsOf("a", "b"))
	write(t, b, odltest.PodsOf("b"))
}

// TestHungAfterAccept: a server that accepts connections and sends nothing, not even in the
// TLS handshake, delays a call by its timeout only. Then the next controller is used.
func TestHungAfterAccept(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts the connections
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	for _, c := range []struct {
		scheme, says     string
		answers, connect time.Duration
	}{
		{"http", "no complete answer within", 2 * time.Second, time.Minute},
		{"https", "TLS handshake timeout", time.Minute, 200 * time.Millisecond},
	} {
		f := newFake(t, odlfake.Oxygen)
		cfg := f.config(t)
		cfg.Timeout, cfg.ConnectTimeout = c.answers, c.connect
		cfg.URLs = c.scheme + "://" + silent.Addr().String() + "," + f.url
		heal(t, open(t, cfg), odltest.PodsOf("a"))

		cfg.URLs = c.scheme + "://" + silent.Addr().String()
		_, err = open(t, cfg).Read(t.Context())
		require.ErrorContains(t, err, c.says)
	}
}

// TestAnsweredLate: a controller that makes every write but answers too late gets each write
// once.
func TestAnsweredLate(t *testing.T) {
	t.Parallel()
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Timeout = 5 * time.Second
	b := open(t, cfg)
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	var mu sync.Mutex
	bodies := map[string]int{}
	f.Break(once(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true
		}
		mu.Lock()
		bodies[r.URL.Path+string(body)]++
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.ServeHTTP(httptest.NewRecorder(), withoutFault(r))
		return hang(w, r)
	}))
	want := odltest.PodsOf("a", "b")
	heal(t, b, want)
	agree(t, b, want)
	mu.Lock()
	defer mu.Unlock()
	for what, n := range bodies {
		require.Equal(t, 1, n, what)
	}
	require.Len(t, bodies, 6)
}

// TestStopsDuringWrite: the answer of a stopping controller that nothing exists is not
// trusted, even if the controller has accepted entries before.
func TestStopsDuringWrite(t *testing.T) {
	b, f := start(t, without(odlfake.Neon))
	before := odltest.PodsOf("a", "b", "c")
	write(t, b, before)
	var passed atomic.Bool
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && !passed.Swap(true) {
			return false
		}
		return passed.Load() && answer(http.StatusNotFound, "text/html", "<html>")(w, r)
	})
	err := b.Write(t.Context(), netvirt.Diff(before, odltest.PodsOf("c")))
	require.Error(t, err)
	require.NotErrorIs(t, err, netvirt.ErrRejected)
	f.Break(nil)
	write(t, b, odltest.PodsOf("c"))
}

// TestDroppedEntries: entries that a controller accepts but does not store are found by the next
// comparison.
func TestDroppedEntries(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Poll = 100 * time.Millisecond
	b := open(t, cfg)
	write(t, b, odltest.PodsOf("a"))
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPost && answer(http.StatusNoContent, "", "")(w, r)
	})
	changed := watch(t, b)
	begun := time.Now()
	for range 5 {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, odltest.PodsOf("a", "b"))))
		told(t, changed)
	}
	require.GreaterOrEqual(t, time.Since(begun), 4*cfg.Poll)
	f.Break(nil)
	write(t, b, odltest.PodsOf("a", "b"))
}

// TestExternalWriterRepeats: if an external writer undoes our writes repeatedly, this is logged once.
func TestExternalWriterRepeats(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	var log logged
	b, err := odl.New(f.config(t), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	changed := watch(t, b)
	const says = "an external writer keeps changing"
	for round, after := 0, 0; after < 3; round++ {
		require.Less(t, round, 100) // a comparison between a write and the removal begins the count again
		write(t, b, odltest.PodsOf("a"))
		f.Remove("ietf-interfaces:interfaces", "interface", "a:pod-1")
		told(t, changed)
		if strings.Contains(log.String(), says) {
			after++
		}
	}
	require.Equal(t, 1, strings.Count(log.String(), says))
}

// TestConnections: for any behaviour of the server, there are never more connections than
// concurrent requests, and all are closed in the end.
func TestConnections(t *testing.T) {
	c, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	var open, most atomic.Int64
	server := httptest.NewUnstartedServer(c)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	f := &fake{c, server.URL}
	cfg := f.config(t)
	cfg.Timeout, cfg.ReadTimeout, cfg.AnswerBytes = 200*time.Millisecond, 200*time.Millisecond, 1<<16
	b, err := odl.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, fault := range faults {
		f.Break(fault.fault)
		for range 3 {
			if have, err := b.Read(t.Context()); err == nil {
				_ = b.Write(t.Context(), netvirt.Diff(have, odltest.PodsOf("a", "b")))
			}
		}
	}
	f.Break(nil)
	heal(t, b, odltest.PodsOf("a"))
	b.Close()
	require.Eventually(t, func() bool { return open.Load() == 0 }, patience, time.Millisecond)
	require.LessOrEqual(t, most.Load(), int64(10))
}

// TestFailover: the backend uses the first of several controllers that is ready, and another
// one when it fails.
func TestFailover(t *testing.T) {
	first, second := newFake(t, odlfake.Oxygen), newFake(t, odlfake.Neon)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	cfg := first.config(t)
	cfg.URLs = strings.Join([]string{"http://" + nobody.Addr().String(), first.url, second.url + "/"}, ",")
	b := open(t, cfg)
	want := odltest.PodsOf("a")
	write(t, b, want)
	require.NotEmpty(t, first.Keys("ietf-interfaces:interfaces"))
	first.Load(http.StatusServiceUnavailable)
	heal(t, b, want)
	require.NotEmpty(t, second.Keys("ietf-interfaces:interfaces"))
}

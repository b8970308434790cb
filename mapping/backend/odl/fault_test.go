package odl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

// accepted lists the answers to a write that count as success. OpenDaylight answers a write
// without a body; a body is ignored if it is complete.
var accepted = []string{"no type", "empty", "an empty object", "other JSON"}

// faults lists what a server may answer to any request, and the expected error.
var faults = map[string]struct {
	fault odlfake.Fault
	says  string
	waits bool // the client must time out
}{
	"503":                    {answer(http.StatusServiceUnavailable, "", ""), "503", false},
	"404 of a server":        {answer(http.StatusNotFound, "text/html", "<html>Not Found</html>"), "404", false},
	"404 without a body":     {answer(http.StatusNotFound, "", ""), "404", false},
	"400 of no model":        {answer(http.StatusBadRequest, "application/json", unknownModule), "400", false},
	"401":                    {answer(http.StatusUnauthorized, "", ""), "does not accept the user and password", false},
	"403":                    {answer(http.StatusForbidden, "", ""), "does not accept the user and password", false},
	"500":                    {answer(http.StatusInternalServerError, "text/html", "<html>"), "500", false},
	"502":                    {answer(http.StatusBadGateway, "text/html", "<html>"), "502", false},
	"HTML":                   {answer(http.StatusOK, "text/html", "<html>Welcome</html>"), "not JSON", false},
	"no type":                {answer(http.StatusOK, "", "{}"), "not JSON", false},
	"truncated JSON":         {answer(http.StatusOK, "application/json", `{"elan-instances":{"elan-instance":[{"elan-inst`), "cut off", false},
	"empty":                  {answer(http.StatusOK, "application/json", ""), "", false},
	"an empty object":        {answer(http.StatusOK, "application/json", "{}"), "", false},
	"other JSON":             {answer(http.StatusOK, "application/json", `{"elan-instances":[7]}`), "", false},
	"JSON and more":          {answer(http.StatusOK, "application/json", `{"elan-instances":{}}{}`), "", false},
	"redirected":             {redirect, "", false},
	"hung":                   {hang, "no complete answer within", true},
	"cut in mid-answer":      {cut, "", false},
	"slow":                   {trickle, "no complete answer within", true},
	"endless":                {endless, "the answer is too long", false},
	"endless, and one entry": {endlessString, "the answer is too long", false},
}

const unknownModule = `{"errors":{"error":[{"error-type":"protocol","error-tag":"unknown-element","error-message":"The module named 'elan' does not exist."}]}}`

func answer(status int, media, body string) odlfake.Fault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header()["Content-Type"] = nil
		if media != "" {
			w.Header().Set("Content-Type", media)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

func redirect(w http.ResponseWriter, r *http.Request) bool {
	http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	return true
}

func hang(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client closes
	<-r.Context().Done()
	return true
}

func cut(w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"elan-instances":{"elan-instance":[`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func trickle(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{`)
	_ = http.NewResponseController(w).Flush()
	return hang(w, r)
}

func endless(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"elan-instances":{"elan-instance":[{"elan-instance-name":"x"}`)
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, strings.Repeat(`,{"elan-instance-name":"x"}`, 1000))
	}
	return true
}

func endlessString(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"`)
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, strings.Repeat("x", 10000))
	}
	return true
}

// TestFaults: a fault in any request, at the first connection or later, is reported as an
// error. No data is read from a faulty answer and nothing is rejected. When the fault is over,
// the backend writes the whole model.
func TestFaults(t *testing.T) {
	for name, c := range faults {
		for _, when := range []string{"first", "read", "write"} {
			t.Run(name+" at "+when, func(t *testing.T) {
				t.Parallel()
				f := newFake(t, odlfake.Oxygen)
				cfg := f.config(t)
				cfg.Timeout, cfg.ReadTimeout, cfg.AnswerBytes = patience, patience, 1<<16
				if c.waits {
					cfg.Timeout, cfg.ReadTimeout = 3*time.Second, 3*time.Second
				}
				b := open(t, cfg)
				before, after := odltest.PodsOf("a", "b"), odltest.PodsOf("b", "c")
				if when != "first" {
					heal(t, b, before)
				}
				f.Break(c.fault)
				err := try(t, b, when, netvirt.Diff(before, after))
				f.Break(nil)
				if err == nil {
					require.Equal(t, "write", when)
					require.Contains(t, accepted, name)
				} else {
					require.NotErrorIs(t, err, netvirt.ErrRejected)
					require.ErrorContains(t, err, c.says)
					require.NotContains(t, err.Error(), odlfake.Password+":")
				}
				heal(t, b, after)
				agree(t, b, after)
			})
		}
	}
}

// try reads or writes.
func try(t *testing.T, b *odl.Backend, when string, changes []netvirt.Change) error {
	if when == "write" {
		return b.Write(t.Context(), changes)
	}
	have, err := b.Read(t.Context())
	require.Error(t, err)
	require.Nil(t, have)
	return err
}

// heal writes a model, and repeats that until it succeeds, like reconcile.Loop.
func heal(t *testing.T, b *odl.Backend, want netvirt.Model) {
	t.Helper()
	require.Eventually(t, func() bool {
		have, err := b.Read(t.Context())
		if err != nil {
			return false
		}
		return b.Write(t.Context(), netvirt.Diff(have, want)) == nil
	}, patience, 5*time.Millisecond)
}

// TestRandomFailures: one request in ten fails at random, before or after the controller has
// processed it, with any status. In the end everything is written.
func TestRandomFailures(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), without(odlfake.Neon), odlfake.AsTheRFC} {
		t.Run(fmt.Sprint(release.Name, release.Draft02), func(t *testing.T) {
			t.Parallel()
			f := newFake(t, release)
			b := open(t, f.config(t))
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(1, 1))
			fault := func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				n, status := random.IntN(30), random.IntN(5)
				mu.Unlock()
				switch n {
				case 0:
					return answer(http.StatusInternalServerError+status, "", "")(w, r)
				case 1:
					return cut(w, r)
				case 2: // processed, but the answer is lost
					f.ServeHTTP(httptest.NewRecorder(), withoutFault(r))
					panic(http.ErrAbortHandler)
				}
				return false
			}
			for seed := range uint64(5) {
				f.Break(once(fault))
				heal(t, b, small(b, seed, 6))
				f.Break(nil)
				agree(t, b, small(b, seed, 6))
			}
		})
	}
}

type passed struct{}

func withoutFault(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), passed{}, true))
}

// once prevents that a fault meets requests that it sends itself.
func once(f odlfake.Fault) odlfake.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return r.Context().Value(passed{}) == nil && f(w, r)
	}
}

// TestRefusedEntries: entries that the controller refuses, with any status, are found among many that
// it accepts, and the others are written. An entry with status 500 must fail twice.
func TestRefusedEntries(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), odlfake.Neon, without(odlfake.Neon), odlfake.AsTheRFC} {
		for _, status := range []int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusConflict} {
			t.Run(fmt.Sprint(release.Name, release.Draft02, status), func(t *testing.T) {
				t.Parallel()
				b, f := start(t, release)
				want := odltest.PodsOf()
				for i := range 100 {
					odltest.PodOn(want, "default", fmt.Sprintf("pod-%d", i), 0, i)
				}
				f.Break(refuse(status, `"name":"default:pod-17","type"`, `"name":"default:pod-71","elan-instance-name"`))
				_, err := b.Read(t.Context())
				require.NoError(t, err)
				f.Requests()
				err = b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want))
				seen := f.Requests()
				for n := 0; n < 2 && status != http.StatusBadRequest; n++ {
					require.NotErrorIs(t, err, netvirt.ErrRejected)
					have, readErr := b.Read(t.Context())
					require.NoError(t, readErr)
					err = b.Write(t.Context(), netvirt.Diff(have, want))
				}
				var rejected *netvirt.RejectedError
				require.ErrorAs(t, err, &rejected)
				named := map[netvirt.Key]bool{}
				for _, k := range rejected.Keys {
					named[k] = true
				}
				require.Equal(t, map[netvirt.Key]bool{
					{Kind: netvirt.KindInterface, Name: "default:pod-17"}:          true,
					{Kind: netvirt.KindELANInterface, Name: "default:pod-71"}:      true,
					{Kind: netvirt.KindMACEntry, Name: "default:pod-71 10.0.0.73"}: true,
				}, named)
				if release.Draft02 {
					require.Less(t, seen[http.MethodPost]+seen[http.MethodPut], 60)
				}
				have, err := b.Read(t.Context())
				require.NoError(t, err)
				for k, o := range want {
					pod17 := strings.HasPrefix(k.Name, "default:pod-17")
					require.Equal(t, !named[k] && !pod17, have[k] == o, "%s", k)
				}
			})
		}
	}
}

// refuse refuses bodies that contain one of the texts.
func refuse(status int, texts ...string) odlfake.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		for _, text := range texts {
			if bytes.Contains(body, []byte(text)) {
				w.WriteHeader(status)
				return true
			}
		}
		return false
	}
}

// TestFailsOnce: a failure at one entry that is not repeated is not a refusal, even if the
// controller accepts other entries meanwhile.
func TestFailsOnce(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	var failed atomic.Bool
	refusal := refuse(http.StatusInternalServerError, `"name":"b:pod-1","type"`)
	want := odltest.PodsOf("a", "b", "c")
	write(t, b, odltest.PodsOf("a"))
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if failed.Load() || !refusal(w, r) {
			return false
		}
		failed.Store(bytes.Count(body, []byte(`"type"`)) == 1) // the only one
		return true
	})
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	err = b.Write(t.Context(), netvirt.Diff(have, want))
	require.ErrorContains(t, err, "500")
	require.NotErrorIs(t, err, netvirt.ErrRejected)
	write(t, b, want)
}

// TestConflict: a conflict with another transaction at one entry is not a refusal before its time is over, even if the controller
// accepts other entries meanwhile. TestRefusedEntries has one that lasts.
func TestConflict(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Conflict = time.Hour
	b := open(t, cfg)
	want := odltest.PodsOf("a", "b", "c")
	write(t, b, odltest.PodsOf("a"))
	f.Break(refuse(http.StatusConflict, `"name":"b:pod-1","type"`))
	for range 5 {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		err = b.Write(t.Context(), netvirt.Diff(have, want))
		require.ErrorContains(t, err, "409")
		require.NotErrorIs(t, err, netvirt.ErrRejected)
	}
	f.Break(nil)
	write(t, b, want)
}

// TestRefusedAlone: if there is nothing else to write, a repeated failure is a refusal.
func TestRefusedAlone(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	write(t, b, odltest.PodsOf("a"))
	want := odltest.PodsOf("a")
	odltest.PodOn(want, "a", "pod-2", 0, 9)
	f.Break(refuse(http.StatusInternalServerError, "a:pod-2"))
	for n := range 3 {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		err = b.Write(t.Context(), netvirt.Diff(have, want))
		require.Error(t, err)
		require.Equal(t, n == 2, errors.Is(err, netvirt.ErrRejected), "%v", err)
	}
}

// TestManyRefusedAlone: repeated failures at many entries are refusals too, if there is nothing else to write and the datastore accepts
// writes.
func TestManyRefusedAlone(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf("a")
	write(t, b, want)
	var names []string
	for i := range 1050 {
		names = append(names, fmt.Sprintf("a:many-%d", i))
		odltest.PodOn(want, "a", fmt.Sprintf("many-%d", i), 0, 10+i)
	}
	f.Break(refuse(http.StatusInternalServerError, "a:many-"))
	for n := range 3 {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		err = b.Write(t.Context(), netvirt.Diff(have, want))
		require.Error(t, err)
		var rejected *netvirt.RejectedError
		require.Equal(t, n == 2, errors.As(err, &rejected), "%v", err)
		if n == 2 {
			var interfaces []string
			for _, k := range rejected.Keys {
				if k.Kind == netvirt.KindInterface {
					interfaces = append(interfaces, k.Name)
				}
			}
			require.ElementsMatch(t, names, interfaces)
		}
	}
}

// TestFailsAtEverything: if the controller fails at every write but answers reads, the write
// soon stops, and rejects nothing.
func TestFailsAtEverything(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf()
	for i := range 100 {
		odltest.PodOn(want, "default", fmt.Sprintf("pod-%d", i), 0, i)
	}
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method != http.MethodGet && answer(http.StatusInternalServerError, "", "")(w, r)
	})
	f.Requests()
	err = b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want))
	require.Error(t, err)
	require.NotErrorIs(t, err, netvirt.ErrRejected)
	seen := f.Requests()
	require.Less(t, seen[http.MethodPost]+seen[http.MethodPut], 60)
	f.Break(nil)
	heal(t, b, want)
	agree(t, b, want)
}

// TestNotReady: no answer counts as data while the controller has not loaded its models.
func TestNotReady(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), without(odlfake.Neon)} {
		for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusServiceUnavailable} {
			t.Run(fmt.Sprint(release.Name, release.Draft02, status), func(t *testing.T) {
				b, f := start(t, release)
				f.Load(status)
				_, err := b.Read(t.Context())
				require.ErrorContains(t, err, "not ready")
				f.Load(0)
				want := odltest.PodsOf("a", "b")
				write(t, b, want)

				// It stops during a session: its answer that an entry does not exist is not trusted.
				f.Load(status)
				err = b.Write(t.Context(), netvirt.Diff(want, odltest.PodsOf("b")))
				if status != http.StatusOK {
					require.Error(t, err)
					require.NotErrorIs(t, err, netvirt.ErrRejected)
				}
				f.Load(0)
				heal(t, b, odltest.PodsOf("a"))
				agree(t, b, odltest.PodsOf("a"))
			})
		}
	}
}

// TestUnauthorized: a refused password is logged once, and not tried again at once. A new
// password in the file is tried at once.
func TestUnauthorized(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	f.SetPassword("changed")
	var log strings.Builder
	cfg := f.config(t)
	b, err := odl.New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	for range 50 {
		_, err := b.Read(t.Context())
		require.ErrorContains(t, err, "does not accept the user and password")
	}
	require.LessOrEqual(t, f.Requests()[http.MethodGet], 2)
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"))
	require.NotContains(t, log.String(), odlfake.Password+":")

	rewrite(t, cfg.AuthFile, "admin:changed")
	_, err = b.Read(t.Context())
	require.NoError(t, err)
	require.NotContains(t, log.String(), "changed")
}

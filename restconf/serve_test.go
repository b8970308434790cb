package restconf

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

func TestServeUntilTheEnd(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir()})
	require.NoError(t, err)
	reached, release := make(chan struct{}), make(chan struct{})
	s, err := New(Config{Auth: FixedUsers{"admin": "admin"}, Config: tree.Config{
		Schema: schema, Datastore: store,
		EntryChecks: map[string]func(*yang.Data) error{"pod:coe/pods": func(*yang.Data) error {
			close(reached)
			<-release
			return nil
		}},
	}})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()

	client := &http.Transport{}
	answered := make(chan int, 1)
	go func() {
		r, _ := http.NewRequest(http.MethodPut, "http://"+l.Addr().String()+pods+uid1, strings.NewReader(pod(uid1)))
		r.SetBasicAuth("admin", "admin")
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.RoundTrip(r)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	// A request that has begun comes to its end.
	<-reached
	cancel()
	close(release)
	require.Equal(t, 201, <-answered)
	require.NoError(t, <-served)
	client.CloseIdleConnections()
	require.NoError(t, store.Close())
	require.Eventually(t, func() bool { return ourGoroutines() == "" }, patience.Patience, 10*time.Millisecond)
}

func TestServeTLS(t *testing.T) {
	known := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer known.Close()
	b := newBed(t, func(c *Config) {
		c.TLS = &tls.Config{Certificates: known.TLS.Certificates, MinVersion: tls.VersionTLS12}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, l) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String()+coeRFC, strings.NewReader(podRFC(uid1)))
	require.NoError(t, err)
	r.SetBasicAuth("admin", "admin")
	r.Header.Set("Content-Type", "application/yang-data+json")
	resp, err := known.Client().Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "https://"+l.Addr().String()+podsRFC+uid1, resp.Header.Get("Location"))
	cancel()
	require.NoError(t, <-served)
	require.ErrorIs(t, b.Serve(t.Context(), l), net.ErrClosed)
}

// ourGoroutines are the stacks of goroutines that run our code, except the tests.
func ourGoroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "coe-bridge/restconf") && !strings.Contains(stack, "_test.go") {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}

func TestDatastoreAway(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir()})
	require.NoError(t, err)
	s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}, Timeout: patience.Patience})
	require.NoError(t, err)
	b := &bed{s, t, store}
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	require.NoError(t, store.Close())
	got := b.do("PUT", pods+uid2, pod(uid2))
	require.Equal(t, 503, got.status, got.body)
	require.Equal(t, "operation-failed", got.tag())
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Equal(t, 200, b.do("GET", pods+uid1, "").status, "reads need no etcd")
}

func TestProblemOfErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		tag    string
	}{
		{&datastore.LimitError{Flag: "--max-txn-ops", Need: "129 operations"}, 413, "too-big"},
		{fmt.Errorf("write: %w", datastore.ErrUnavailable), 503, "operation-failed"},
		{datastore.ErrFull, 503, "operation-failed"},
		{datastore.ErrClosed, 503, "operation-failed"},
		{context.DeadlineExceeded, 503, "operation-failed"},
		{errors.New("disk on fire"), 500, "operation-failed"},
		{&yang.Error{Tag: "no-such-tag"}, 500, "no-such-tag"},
		{yang.Errors{{Tag: "in-use"}, {Tag: "invalid-value"}}, 409, "in-use"},
	} {
		b := &Server{log: slog.New(slog.DiscardHandler)}
		w := httptest.NewRecorder()
		b.fail(w, httptest.NewRequest(http.MethodGet, "/", nil), wire.RFC8040, c.err)
		got := answer{w.Code, w.Header(), w.Body.String()}
		require.Equal(t, c.status, got.status, c.err)
		require.Equal(t, c.tag, got.tag())
	}
}

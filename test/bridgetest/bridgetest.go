// Package bridgetest runs a whole bridge in the process of a test, over a data
// folder that outlives it, so that a test can stop it and start it again.
package bridgetest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// User and password of every bridge in a test.
const (
	User     = "admin"
	Password = "admin"
)

// Bridge is a bridge that a test runs.
type Bridge struct {
	t      testing.TB
	cfg    bridge.Config
	url    string
	client *http.Client
	stop   func()
}

// Option changes the configuration.
type Option func(*bridge.Config)

// OVN makes the backend OVN at an endpoint.
func OVN(endpoint string) Option {
	return func(c *bridge.Config) {
		c.Backend = bridge.BackendConfig{Name: "ovn", OVN: ovn.Config{
			Endpoints: endpoint, Timeout: 2 * time.Second, Probe: time.Second,
		}}
	}
}

// Start starts a bridge with the memory backend, on loopback, over a folder of
// the test's. It is stopped when the test ends.
func Start(t testing.TB, options ...Option) *Bridge {
	b := &Bridge{t: t, client: &http.Client{Timeout: 30 * time.Second}}
	b.cfg = bridge.Config{
		HTTP: bridge.HTTPConfig{
			Listen: "127.0.0.1:0",
			Auth:   restconf.FixedUsers{User: Password},
		},
		Datastore:  datastore.Config{Dir: t.TempDir()},
		Backend:    bridge.BackendConfig{Name: "memory"},
		Mapping:    mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600},
		ReuseDelay: time.Second,
		Log:        slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(&b.cfg)
	}
	b.start()
	t.Cleanup(b.Stop)
	return b
}

// At asks a bridge that runs elsewhere, which is not to be restarted here.
func At(t testing.TB, url string) *Bridge {
	b := &Bridge{t: t, url: url, client: &http.Client{Timeout: 30 * time.Second}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *Bridge) start() {
	ctx, cancel := context.WithCancel(context.Background())
	run, err := bridge.New(ctx, b.cfg)
	require.NoError(b.t, err)
	b.url = run.URL()
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx) }()
	b.stop = func() {
		cancel()
		require.NoError(b.t, <-done)
		require.NoError(b.t, run.Close())
	}
	require.Eventually(b.t, func() bool { return b.ready() }, 20*time.Second, 5*time.Millisecond, "the bridge gets ready")
}

func (b *Bridge) ready() bool {
	answer, err := b.client.Get(b.url + "/readyz")
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode == http.StatusOK
}

// Stop stops the bridge; it may be stopped already.
func (b *Bridge) Stop() {
	if b.stop != nil {
		b.client.CloseIdleConnections()
		b.stop()
		b.stop = nil
	}
}

// Restart stops the bridge and starts another one over the same folder.
func (b *Bridge) Restart() {
	b.Stop()
	b.start()
}

// URL is the bridge's, without a slash at the end.
func (b *Bridge) URL() string { return b.url }

// Do makes a request with JSON, a path as "/restconf/config/…", and returns
// status and body.
func (b *Bridge) Do(method, path, body string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, bytes.NewBufferString(body))
	require.NoError(b.t, err)
	req.SetBasicAuth(User, Password)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err := b.client.Do(req)
	require.NoError(b.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	return answer.StatusCode, string(text)
}

// Get reads a draft-02 tree, "config/pod:coe", into out; false when it is not there.
func (b *Bridge) Get(path string, out any) bool {
	b.t.Helper()
	status, text := b.Do(http.MethodGet, "/restconf/"+path, "")
	if status == http.StatusNotFound {
		return false
	}
	require.Equal(b.t, http.StatusOK, status, text)
	var body map[string]json.RawMessage
	require.NoError(b.t, json.Unmarshal([]byte(text), &body))
	for _, content := range body {
		require.NoError(b.t, json.Unmarshal(content, out))
	}
	return true
}

// Status is what coe-status:status says.
type Status struct {
	InSync  bool `json:"in-sync"`
	Backend struct {
		Connected bool   `json:"connected"`
		LastError string `json:"last-error"`
	} `json:"backend"`
	Problems []struct {
		Namespace string `json:"namespace"`
		Kind      string `json:"kind"`
		UID       string `json:"uid"`
		Name      string `json:"name"`
		Reason    string `json:"reason"`
		Message   string `json:"message"`
	} `json:"problem"`
}

// Status reads the bridge's status.
func (b *Bridge) Status() Status {
	b.t.Helper()
	var st Status
	b.Get("operational/coe-status:status", &st)
	return st
}

// AwaitSync waits until the backend has all that is wanted.
func (b *Bridge) AwaitSync(within time.Duration) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Status().InSync }, within, 5*time.Millisecond, "in sync")
}

// Package bridgetest runs complete bridges for tests: in the process of the test, with a data directory
// that outlives the bridge, so that a test can restart it; or as processes, which can be killed
// and stopped.
package bridgetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// User and password of every bridge in a test.
const (
	User     = serve.User
	Password = serve.Password
)

// requestTimeout bounds a request of a test on a busy machine.
const requestTimeout = 30 * time.Second

// Bridge is a bridge that a test runs.
type Bridge struct {
	t      testing.TB
	cfg    bridge.Config
	url    string
	client *serve.Client
	stop   func()
}

// Option changes the configuration.
type Option func(*bridge.Config)

// OVN sets the backend OVN at an endpoint.
func OVN(endpoint string) Option {
	return func(c *bridge.Config) {
		c.Backend = bridge.BackendConfig{Name: "ovn", OVN: ovn.Config{
			Endpoints: endpoint, Timeout: 2 * time.Second, Probe: time.Second,
		}}
	}
}

// Start starts a bridge with the memory backend on loopback, with a temporary directory. The bridge
// stops at the end of the test.
func Start(t testing.TB, options ...Option) *Bridge {
	b := &Bridge{t: t}
	b.cfg = bridge.Config{
		HTTP: bridge.HTTPConfig{
			Listen: "127.0.0.1:0",
			Access: access.Config{Users: restconf.FixedUsers{User: Password}},
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

func (b *Bridge) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var run *bridge.Bridge
	WhenFree(b.t, func() (err error) {
		run, err = bridge.New(ctx, b.cfg)
		return err
	})
	b.url = run.URL()
	b.client = serve.NewClient(b.url, requestTimeout)
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx) }()
	b.stop = func() {
		cancel()
		require.NoError(b.t, <-done)
		require.NoError(b.t, run.Close())
	}
	b.awaitReady()
}

// WhenFree calls open, which opens a data directory, until the directory is free. A bridge of this process that has stopped can leave
// it locked for a moment: a program that another test starts has a copy of the lock until the kernel has executed it.
func WhenFree(t testing.TB, open func() error) {
	t.Helper()
	var err error
	Await(t, 5*time.Millisecond, patience.Patience, "the data directory is free", func() error {
		if err = open(); errors.Is(err, datastore.ErrInUse) {
			return err
		}
		return nil
	})
	require.NoError(t, err)
}

// awaitReady waits until the bridge is ready.
func (b *Bridge) awaitReady() {
	b.t.Helper()
	Await(b.t, 5*time.Millisecond, readyTimeout, "the bridge is ready", func() error {
		status, answer, err := b.client.Do(b.t.Context(), http.MethodGet, "/readyz", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET /readyz: %d %s", status, answer)
		}
		return err
	})
}

// Stop stops the bridge. It does nothing if the bridge is stopped.
func (b *Bridge) Stop() {
	if b.stop != nil {
		b.client.Close()
		b.stop()
		b.stop = nil
	}
}

// Restart stops the bridge, and starts another one with the same directory. Options change its configuration.
func (b *Bridge) Restart(options ...Option) {
	b.Stop()
	for _, o := range options {
		o(&b.cfg)
	}
	b.start()
}

// URL returns the bridge's URL, without a trailing slash.
func (b *Bridge) URL() string { return b.url }

// Client returns a client for other goroutines, or for requests that may fail. It is valid until the
// bridge restarts.
func (b *Bridge) Client() *serve.Client { return b.client }

// Do sends a request with JSON to a path such as "/restconf/config/…", and returns status and body.
func (b *Bridge) Do(method, path, body string) (int, string) {
	b.t.Helper()
	status, answer, err := b.client.Do(b.t.Context(), method, path, body)
	require.NoError(b.t, err)
	return status, answer
}

// Get reads a draft-02 tree, such as "config/pod:coe", into out; false if it does not exist.
func (b *Bridge) Get(path string, out any) bool {
	b.t.Helper()
	found, err := b.client.Read(b.t.Context(), path, out)
	require.NoError(b.t, err)
	return found
}

// Status is the content of coe-status:status.
type Status struct {
	InSync  bool `json:"in-sync"`
	Backend struct {
		Connected bool   `json:"connected"`
		LastError string `json:"last-error"`
	} `json:"backend"`
	Filled []struct {
		Name      string `json:"name"`
		Connected bool   `json:"connected"`
		InSync    bool   `json:"in-sync"`
		LastError string `json:"last-error"`
	} `json:"filled"`
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

// AwaitFilled waits until the standby backends have the requested state.
func (b *Bridge) AwaitFilled(within time.Duration, inSync bool) {
	b.t.Helper()
	Await(b.t, 5*time.Millisecond, within, "filled", func() error {
		for _, f := range b.Status().Filled {
			if f.InSync != inSync {
				return fmt.Errorf("in sync should be %t: %+v", inSync, f)
			}
		}
		return nil
	})
}

// AwaitSync waits until the backend has the whole wanted state.
func (b *Bridge) AwaitSync(within time.Duration) {
	b.t.Helper()
	Await(b.t, 5*time.Millisecond, within, "in sync", func() error {
		if st := b.Status(); !st.InSync {
			return fmt.Errorf("not in sync: %+v", st)
		}
		return nil
	})
}

// Await calls holds at each interval until it returns nil, and fails with its last error.
func Await(t testing.TB, interval, within time.Duration, what string, holds func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			require.NoError(t, err, "%s, within %s", what, within)
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err(), what)
		}
	}
}

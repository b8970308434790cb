package ovn_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// probing gives a backend only the timeouts that find a server which hangs. A busy machine takes longer than the default to connect. make
// bench-ovn measures all defaults.
func probing(c *ovn.Config) {
	c.Timeout, c.ReadTimeout = never, never
	c.ConnectTimeout = 15 * time.Second
}

// TestHungMember: a member of a clustered database that is frozen is passed over, also if it is the first endpoint and the leader: when the
// bridge starts, when it waits for changes, and when it writes. With probing, no other timeout ends the wait.
func TestHungMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// meet returns when the backend uses another member than the first one, which hangs when hang has been called.
		meet func(t *testing.T, b *ovn.Backend, hang func())
		// follower says that the first one does not lead.
		follower bool
	}{
		{name: "leader, at the start", meet: func(t *testing.T, b *ovn.Backend, hang func()) {
			hang()
			eventuallyRead(t, b)
		}},
		{name: "follower, at the start", follower: true, meet: func(t *testing.T, b *ovn.Backend, hang func()) {
			hang()
			eventuallyRead(t, b)
		}},
		{name: "leader, watching", meet: func(t *testing.T, b *ovn.Backend, hang func()) {
			eventuallyRead(t, b)
			changed, _ := watch(t, b)
			hang()
			requireChanged(t, changed)
			eventuallyRead(t, b)
		}},
		{name: "leader, writing", meet: func(t *testing.T, b *ovn.Backend, hang func()) {
			eventuallyRead(t, b)
			watch(t, b)
			hang()
			requireFails(t, writing(t, b))
			eventuallyRead(t, b)
		}},
		{name: "leader, writing before the watch begins", meet: func(t *testing.T, b *ovn.Backend, hang func()) {
			eventuallyRead(t, b)
			hang()
			result := writing(t, b)
			select {
			case err := <-result:
				require.Fail(t, "the write has ended", err)
			case <-time.After(patience.Brief): // it has the lock
			}
			watch(t, b)
			requireFails(t, result)
			eventuallyRead(t, b)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := ovsdb.StartCluster(t)
			first := cluster.Leader(t)
			if c.follower {
				first = cluster.Follower(t)
			}
			endpoints := first.Endpoint()
			for _, m := range cluster.Members {
				if m != first {
					endpoints += "," + m.Endpoint()
				}
			}
			cfg := ovn.Config{Endpoints: endpoints, Layout: ovn.LayoutNode, TLS: cluster.TLS(), Epoch: "5"}
			probing(&cfg)
			b, err := ovn.New(cfg, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			t.Cleanup(b.Close)
			var hangs time.Time
			c.meet(t, b, func() {
				first.Stop(t)
				t.Cleanup(func() { first.Continue(t) }) // before Close, which waits for a call
				hangs = time.Now()
			})
			t.Logf("passed over after %v", time.Since(hangs).Round(time.Millisecond))
		})
	}
}

// writing writes in the background, and returns a channel of the result.
func writing(t *testing.T, b *ovn.Backend) (result chan error) {
	t.Helper()
	result = make(chan error, 1)
	changes := netvirt.Diff(nil, someModel(b))
	go func() { result <- b.Write(t.Context(), changes) }()
	return result
}

func requireFails(t *testing.T, result chan error) {
	t.Helper()
	select {
	case err := <-result:
		require.Error(t, err)
	case <-time.After(patience.Patience):
		require.Fail(t, "the write goes on")
	}
}

package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// slowHosts is a backend whose hosts follow a request after a time, or that hangs.
type slowHosts struct {
	requests atomic.Int64
	hangs    atomic.Bool
	computes atomic.Bool
	follow   atomic.Bool
}

func (h *slowHosts) RequestInForce(ctx context.Context) (int, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return 0, errors.New("the database hangs")
	}
	return int(h.requests.Add(1)), nil
}

func (h *slowHosts) InForce(context.Context, int) (bool, bool, error) {
	return h.computes.Load(), h.follow.Load(), nil
}

// An EgressIP is refused if nodes have management ports, but ACLs keep namespaces apart: the mapping has none then.
func TestNoEgress(t *testing.T) {
	with := func(i mapping.Isolation, label string, kinds ...netvirt.Kind) string {
		b := &Bridge{cfg: Config{Mapping: mapping.Settings{Isolation: i}, Kubernetes: KubernetesConfig{EgressLabel: label}}}
		b.cfg.Nodes.Network = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
		return b.noEgress(netvirt.NewKindSet(kinds...))
	}
	all := netvirt.Kinds()
	require.Empty(t, with(mapping.IsolationNone, "egress", all...))
	require.Contains(t, with(mapping.IsolationNone, "", all...), "--egress-ips")
	need := "need the backend OVN with --isolation none"
	require.Contains(t, with(mapping.IsolationACLs, "egress", all...), need)
	require.Contains(t, with(mapping.IsolationNamespace, "egress", all...), need)
	require.Contains(t, with(mapping.IsolationNone, "egress", netvirt.KindManagementPort), need)
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// Many moves need one request, and nobody waits for a backend that hangs. A move counts only if it was written before the
// request, and a host that is gone does not stop it for ever.
func TestForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		written := map[string]bool{}
		node := netip.MustParseAddr("192.168.33.11")
		hosts := &slowHosts{}
		f := newForce(func(name string) (netvirt.EgressIP, bool) {
			return netvirt.EgressIP{Hosts: [2]netvirt.EgressHost{{Node: node}}, Active: 1}, written[name]
		}, hosts, slog.New(slog.DiscardHandler))
		go f.run(ctx)
		inForce := func(from, to int) (n int) {
			for i := from; i < to; i++ {
				if f.has(&coe.EgressIP{Name: fmt.Sprint(i), Hosts: [2]netip.Addr{node}, Active: 1}) {
					n++
				}
			}
			return n
		}
		for i := range 100 {
			written[fmt.Sprint(i)] = true
		}
		for range 60 {
			require.Zero(t, inForce(0, 100), "northd does not follow: there is no deadline")
			pass(time.Second)
		}
		hosts.computes.Store(true)
		hosts.follow.Store(true)
		pass(2 * time.Second)
		require.Equal(t, 100, inForce(0, 100))
		asked := hosts.requests.Load()
		require.Less(t, asked, int64(20), "one for each round")
		pass(time.Hour)
		require.Equal(t, asked, hosts.requests.Load())

		require.Zero(t, inForce(100, 101), "it is not written")
		pass(time.Minute)
		require.Zero(t, inForce(100, 101), "the backend is not a host: there is no deadline")
		written["100"] = true
		require.Zero(t, inForce(100, 101), "it was written after the last request")
		pass(time.Second)
		require.Equal(t, 1, inForce(100, 101))
		require.Empty(t, f.requests)

		hosts.follow.Store(false)
		for n := 0; n == 0; n = inForce(0, 100) {
			pass(time.Second)
		}
		pass(time.Minute)

		hosts.hangs.Store(true)
		begun := time.Now()
		for range 60 {
			require.Zero(t, inForce(0, 100), "the database hangs: there is no deadline")
			pass(time.Second)
		}
		require.Equal(t, time.Minute, time.Since(begun), "nobody has waited for the database")
	})
}

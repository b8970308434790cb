package ovn_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestChangeOfLayout: on a real OVN, pods keep their traffic when the layout changes, and when it changes back. No pod asks
// again for the MAC address of its gateway.
func TestChangeOfLayout(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1", "host2")
	model := liveModel(false)
	for _, node := range nodesOfLive {
		model.Add(node)
	}
	write(t, withLayout(t, lab, ovn.LayoutELAN), model)
	for n, p := range livePods {
		p.plug(t, lab, n)
	}
	for _, n := range []int{2, 3, 7} {
		serveName(t, lab, livePods[n])
	}
	requireAllReach(t, lab)
	for _, p := range livePods {
		keepNeighbours(t, lab, p)
	}
	for _, to := range []struct {
		layout ovn.Layout
		bind   bool
	}{{ovn.LayoutNode, false}, {ovn.LayoutELAN, false}, {ovn.LayoutNode, true}, {ovn.LayoutNode, false}} {
		var stops []func() time.Duration
		for _, pair := range [][2]int{{0, 1}, {0, 2}, {5, 0}, {3, 6}, {7, 8}, {9, 10}, {10, 2}} {
			stops = append(stops, probe(t, lab, livePods[pair[0]], livePods[pair[1]]))
		}
		begin := time.Now()
		writeByScope(t, withLayout(t, lab, to.layout, func(c *ovn.Config) { c.BindGateways = to.bind }), withGateways(model))
		require.NoError(t, lab.Sync(t.Context()))
		took := time.Since(begin)
		gateways := func(bound string) string {
			names, err := lab.SBCtl(t.Context(), "--bare", "--columns=logical_port", "find", "Port_Binding", "type=chassisredirect", bound)
			require.NoError(t, err)
			return names
		}
		require.Equal(t, to.bind, gateways("chassis!=[]") != "", "gateways that are bound to a chassis")
		require.Empty(t, gateways("chassis=[]"), "gateways that no chassis has claimed")
		requireAllReach(t, lab)
		var longest time.Duration
		for _, stop := range stops {
			longest = max(longest, stop())
		}
		t.Logf("to layout %s, gateways bound %v: %v without packets; written and in the switches after %v", to.layout, to.bind, longest, took)
		require.Less(t, longest, 5*time.Second, "the promise of docs/upgrade.md")
	}
}

// writeByScope writes a model in several writes, as a bridge does: the cluster, then each namespace.
func writeByScope(t *testing.T, b *ovn.Backend, want netvirt.Model) {
	t.Helper()
	want = want.Select(b.Kinds())
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	for _, scope := range []netvirt.Scope{netvirt.Cluster, "a", "b", "c", "d", "e", "f"} {
		var changes []netvirt.Change
		for _, c := range netvirt.Diff(have, want) {
			if c.Scope() == scope {
				changes = append(changes, c)
			}
		}
		require.NoError(t, b.Write(t.Context(), changes))
	}
}

// keepNeighbours makes the entries of a pod's neighbour table permanent.
func keepNeighbours(t *testing.T, lab *ovnhost.Lab, p livePod) {
	t.Helper()
	out, err := lab.Exec(t.Context(), p.iface(), "ip", "neigh", "show", "to", p.gateway)
	require.NoError(t, err)
	fields := strings.Fields(out)
	require.GreaterOrEqual(t, len(fields), 5, "%s knows its gateway: %s", p.iface(), out)
	require.Equal(t, "lladdr", fields[3])
	_, err = lab.Exec(t.Context(), p.iface(), "ip", "neigh", "replace", p.gateway, "lladdr", fields[4], "dev", fields[2], "nud", "permanent")
	require.NoError(t, err)
}

// probe sends packets from a pod to another one, which sends them back, until stop is called. stop returns the longest time
// without a packet.
func probe(t *testing.T, lab *ovnhost.Lab, from, to livePod) (stop func() time.Duration) {
	t.Helper()
	var server net.PacketConn
	require.NoError(t, lab.In(to.iface(), func() (err error) {
		server, err = net.ListenPacket("udp", net.JoinHostPort(to.address, "0"))
		return err
	}))
	client, err := lab.Dial(t.Context(), from.iface(), "udp", server.LocalAddr().String())
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		packet := make([]byte, 16)
		for {
			n, sender, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(packet[:n], sender)
		}
	})
	done := make(chan struct{})
	running.Go(func() {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			_, _ = client.Write([]byte("packet"))
			select {
			case <-done:
				return
			case <-every.C:
			}
		}
	})
	var longest time.Duration
	last := time.Now()
	running.Go(func() {
		packet := make([]byte, 16)
		for {
			if _, err := client.Read(packet); err != nil {
				return
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		}
	})
	return func() time.Duration {
		close(done)
		_, _ = client.Close(), server.Close()
		running.Wait()
		return max(longest, time.Since(last))
	}
}

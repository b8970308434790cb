package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/egress/nics"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// TestLostAddressWithoutSwitch: a node whose switch does not answer takes an egress address away that it does not own any more. Another node has
// it by then.
func TestLostAddressWithoutSwitch(t *testing.T) {
	ns, run := namespace.WithShell(t)
	run("ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up; ip addr add 192.0.2.10/24 dev eth0")
	n := withoutSwitch(t, ns)
	part := &uplink.Egress{Addresses: []uplink.EgressAddress{{
		Name: netvirt.EgressPortName(1, 0), Number: 1, NextHop: netvirt.EgressNextHop(1, 0), MAC: netvirt.EgressMAC(1, 0),
		Egress: netip.MustParseAddr(egressAddress), Owner: true,
	}}}
	for _, former := range []bool{false, true} { // the address is of this process, or of a former one
		var has wanted
		require.NoError(t, has.addEgress(part))
		var o outcome
		n.putEgress(has.Egress, time.Now(), &o)
		require.NoError(t, errors.Join(o.err, o.ofWays()))
		for _, owner := range []bool{true, false} {
			if former {
				n.nics = nics.New(nics.Config{Netns: ns, OfPods: isOwn, FreshFor: freshFor})
			}
			is := *part
			is.Addresses = []uplink.EgressAddress{part.Addresses[0]}
			is.Addresses[0].Owner = owner
			asks, stop := n.asking(t.Context())
			require.Error(t, n.sync(t.Context(), asks, place(), &is, time.Now()).err)
			stop()
			require.Equal(t, owner, strings.Contains(run("ip addr"), egressAddress+"/32"))
		}
	}
}

// withoutSwitch returns a node whose switch does not answer.
func withoutSwitch(t *testing.T, ns netns.NsHandle) *Node {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Log: log})
	require.NoError(t, err)
	bridge, err := uplink.New(uplink.Config{URLs: []string{"http://192.0.2.1"}, Node: place().Node, Log: log})
	require.NoError(t, err)
	return New(Config{
		Netns: ns, Switch: vswitch, Uplink: bridge, Log: log, Registry: prometheus.NewRegistry(),
		MTU: func(ctx context.Context) (int, error) { return 0, vswitch.AwaitConnection(ctx) },
	})
}

// TestCheckWithoutSwitch: a check does not wait for a switch that does not answer. It repairs the rules with what the node knows of it.
func TestCheckWithoutSwitch(t *testing.T) {
	ns, run := namespace.WithShell(t)
	n := withoutSwitch(t, ns)
	at := place()
	at.HostPorts = []uplink.PortRange{{First: 1, Last: 65535}}
	for _, known := range []bool{false, true} {
		if known {
			n.facts = &facts{mtu: 1442, databases: []uint16{16642}}
		}
		begun := time.Now()
		require.Equal(t, retryAfter, n.synced(t.Context(), at))
		require.Less(t, time.Since(begun), timeout)
		require.Contains(t, n.failure, "no connection to the switch")
		require.Equal(t, known, strings.Contains(run("nft list ruleset"), "16642"))
	}
}

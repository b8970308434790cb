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

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestLostAddressWithoutSwitch: a node whose switch does not answer takes an egress address away that it does not own any more. Another node has
// it by then.
func TestLostAddressWithoutSwitch(t *testing.T) {
	r := newRouter(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Log: log})
	require.NoError(t, err)
	bridge, err := uplink.New(uplink.Config{URLs: []string{"http://192.0.2.1"}, Node: place().Node, Log: log})
	require.NoError(t, err)
	n := New(Config{
		Netns: r.ns, Switch: vswitch, Uplink: bridge, Log: log, Registry: prometheus.NewRegistry(),
		MTU: func(context.Context) (int, error) { return 0, errors.New("the switch does not answer") },
	})
	part := &uplink.Egress{Addresses: []uplink.EgressAddress{{
		Name: netvirt.EgressPortName(1, 0), Number: 1, NextHop: netvirt.EgressNextHop(1, 0), MAC: netvirt.EgressMAC(1, 0),
		Egress: netip.MustParseAddr(egressAddress), Owner: true,
	}}}
	for _, former := range []bool{false, true} { // the address is of this process, or of a former one
		n.looked, n.owns = !former, !former
		var has wanted
		require.NoError(t, has.addEgress(part))
		var o outcome
		n.putEgress(has.egress, time.Now(), &o)
		require.NoError(t, errors.Join(o.err, o.ofWays()))
		for _, owner := range []bool{true, false} {
			is := *part
			is.Addresses = []uplink.EgressAddress{part.Addresses[0]}
			is.Addresses[0].Owner = owner
			require.Error(t, n.sync(t.Context(), place(), &is, time.Now()).err)
			require.Equal(t, owner, strings.Contains(r.run("ip", "-n", r.node, "addr"), egressAddress+"/32"))
		}
	}
}

package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// balancingPlace is the place of a node that leads its pods to services.
func balancingPlace() *uplink.Place {
	p := place()
	p.WayOut = &uplink.WayOut{Name: "node:192.168.33.11:port", MAC: "0a:58:c0:a8:21:0b"}
	return p
}

// TestWaysOut: a node has a link to each namespace with pods on it, beside its management port. The kernel takes packets by it
// from pods that are routed to the management port.
func TestWaysOut(t *testing.T) {
	p := balancingPlace()
	w, err := newWanted(p, records(map[string][]string{"a/one": {"10.42.0.2"}, "a/two": {"10.42.0.3"}, "b/one": {"10.42.0.9"}}), nil)
	require.NoError(t, err)
	w.namePorts()
	require.Len(t, w.pairs, 3)
	for _, pair := range w.pairs {
		require.Regexp(t, `^tap[0-9a-f]{8}-[0-9a-f]{2}$`, pair.port, "OpenDaylight recognises the port on every switch")
		require.Equal(t, []netip.Addr{p.Address}, pair.addresses)
		require.Equal(t, pair.link != linkName, pair.filter == "2")
		if pair.link != linkName {
			require.Regexp(t, `^node:192\.168\.33\.11:port:[ab]$`, pair.iface)
			require.Equal(t, "0a:58:c0:a8:21:0b", pair.mac.String())
			require.Empty(t, pair.routes)
		}
	}
	p.WayOut.MAC = "x"
	_, err = newWanted(p, records(map[string][]string{"a/one": {"10.42.0.2"}}), nil)
	require.ErrorContains(t, err, "MAC address")
}

package codec

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A gateway drops packets of pinned pods whose addresses it does not translate: they would leave untranslated.
func TestPinnedOutsidePods(t *testing.T) {
	o := netvirt.Gateway{
		Node: netip.MustParseAddr("192.168.33.11"), Network: netip.MustParsePrefix("100.96.0.0/16"), Transit: "100:1", Chassis: "c1",
		Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Link: netip.MustParsePrefix("169.254.64.12/30"),
		Pods: "10.42.0.0/16", Pinned: "10.0.0.0/8,10.42.1.0/24,10.43.0.0/16", Inside: "10.42.0.0/16", OnNode: "169.254.0.0/16",
	}
	m := netvirt.Model{}
	m.Add(o)
	set := testCodec.Encode(o.Key(), m, func(k netvirt.Key) netvirt.Object { return m[k] })
	actions, hops := map[string]string{}, map[string][]string{}
	for _, r := range set.Rows {
		if p, ok := r.Value.(*nb.LogicalRouterPolicy); ok {
			role := p.ExternalIDs[IDRole]
			actions[role], hops[role] = p.Action, p.Nexthops
		}
	}
	require.Equal(t, map[string]string{
		"pinned/10.0.0.0/8": "drop", "pinned/10.42.1.0/24": "reroute", "pinned/10.43.0.0/16": "drop", "inside": "drop",
	}, actions)
	require.Equal(t, []string{"169.254.64.14"}, hops["pinned/10.42.1.0/24"])
	require.Empty(t, hops["pinned/10.43.0.0/16"])
}

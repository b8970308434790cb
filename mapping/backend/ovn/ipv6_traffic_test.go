package ovn_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/dhcpclient"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestTrafficOfIPv6Hosts: on a real OVN, a host behind a pod's port configures itself. It solicits a router advertisement, which names the
// gateway, and gets its address by DHCPv6.
func TestTrafficOfIPv6Hosts(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			lab := ovnhost.ForTest(t, "host1", "host2")
			write(t, withLayout(t, lab, layout), liveModelOf(layout))
			const six = 7
			p := livePods[six]
			p.plug(t, lab, six)
			require.NoError(t, lab.Sync(t.Context()))
			route, err := lab.Advertised(t.Context(), p.iface())
			require.NoError(t, err)
			require.Contains(t, route, "default via fe80::")
			address, err := dhcpclient.AskV6(t.Context(), lab, p.iface())
			require.NoError(t, err)
			require.Equal(t, netip.MustParseAddr(p.address), address)
		})
	}
}

package remote

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
)

// A row says where a service is reached: at addresses inside the cluster, on node ports, and at other addresses.
func TestRowOfService(t *testing.T) {
	addr := netip.MustParseAddr
	s := shownService{
		Namespace: "shop", Name: "web", UID: "u",
		VIPs: []vip{{Protocol: "tcp", Address: "10.96.0.20", Port: 80}, {Protocol: "udp", Address: "10.96.0.20", Port: 53}, {Protocol: "tcp", Address: "198.51.100.10", Port: 80}, {Protocol: "tcp", Address: "2001:db8::10", Port: 80}},
		Exposed: []shownExposed{
			{Way: status.ByNodePort, Protocol: "tcp", Port: 30080}, {Way: status.ByGateway, Address: addr("10.33.74.138"), Protocol: "tcp", Port: 30080},
			{Way: status.ByNodePort, Protocol: "udp", Port: 30053}, {Way: status.ByGateway, Address: addr("10.33.74.138"), Protocol: "udp", Port: 30053},
			{Way: status.ByExternalAddress, Address: addr("198.51.100.10"), Protocol: "tcp", Port: 80},
			{Way: status.ByLoadBalancer, Address: addr("198.51.100.11"), Protocol: "tcp", Port: 80, Restricted: true},
		},
		Policy: "Local", Ready: 2, Problems: []coe.Reason{coe.NotEnforced}, cluster: []netip.Addr{addr("10.96.0.20")},
	}
	require.Equal(t, []string{
		"shop", "web", "u", "10.96.0.20 80/tcp,53/udp", "30080/tcp,30053/udp",
		"2001:db8::10 80/tcp (pods only); 10.33.74.138 30080/tcp,30053/udp (gateway); 198.51.100.10 80/tcp; 198.51.100.11 80/tcp (restricted)", "Local", "2", "NotEnforced",
	}, s.row())
}

package flags

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func TestNodeFlags(t *testing.T) {
	pools := []dhcppool.Pool{{Network: "default", Subnet: netip.MustParsePrefix("10.42.0.0/16")}}
	cfg, err := (&Nodes{network: "100.96.0.0/16", services: []string{"10.96.0.1/12"}, pods: []string{"172.16.0.0/24"}}).Config(pools)
	require.NoError(t, err)
	require.Equal(t, uint32(21844), cfg.Network.Numbers())
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, cfg.Services)
	cfg, err = (&Nodes{network: "100.96.0.0/16,fd00:96::1/64", noMasquerade: []string{"::/0"}}).Config(pools)
	require.NoError(t, err)
	require.Equal(t, "fd00:96::/64", cfg.NetworkIPv6.String())
	cfg, err = (&Nodes{network: ""}).Config(pools)
	require.NoError(t, err)
	require.False(t, cfg.Network.IsValid())
	cfg, err = (&Nodes{}).Config(pools)
	require.NoError(t, err)
	require.False(t, cfg.Network.IsValid())
	cfg, err = (&Nodes{nodePorts: NodePorts{host: []string{"8000-8100", "80"}}}).Config(pools)
	require.NoError(t, err)
	require.Equal(t, []coe.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8100}}, cfg.HostPorts)

	for name, c := range map[string]struct {
		flags Nodes
		says  string
	}{
		"no prefix":             {Nodes{network: "x"}, "--node-network"},
		"no address for a node": {Nodes{network: "100.96.0.0/30"}, "for one node at least"},
		"IPv6":                  {Nodes{network: "fd00::/64"}, "want an IPv4 prefix, and an IPv6 prefix after it"},
		"overlaps a pool":       {Nodes{network: "10.42.7.0/24"}, "it overlaps 10.42.0.0/16"},
		"overlaps OVN's links":  {Nodes{network: "100.64.0.0/10"}, "it overlaps 100.64.0.0/11"},
		"overlaps EgressIPs":    {Nodes{network: "169.254.64.0/20"}, "it overlaps 169.254.64.0/18"},
		"overlaps isolation":    {Nodes{network: "100.96.0.0/16,fd63:6f65:6272::/64"}, "it overlaps fd63:6f65:6272::/96"},
		"overlaps services":     {Nodes{network: "10.97.0.0/16", services: []string{"10.96.0.0/12"}}, "it overlaps 10.96.0.0/12"},
		"services no prefix":    {Nodes{services: []string{"10.96.0.0"}}, "--service-network"},
		"no range of ports":     {Nodes{nodePorts: NodePorts{text: "30000"}}, "--node-ports"},
		"IPv6 without NAT":      {Nodes{network: "100.96.0.0/16", noMasquerade: []string{"2001:db8::/32"}}, "--no-masquerade 2001:db8::/32: pods leave the cluster by IPv6 only if"},
		"two of IPv4":           {Nodes{network: "100.96.0.0/16,100.97.0.0/16"}, "want an IPv4 prefix, and an IPv6 prefix after it"},
		"a small one of IPv6":   {Nodes{network: "100.96.0.0/16,fd00:96::/113"}, "want a prefix of 112 bits or fewer"},
		"overlaps IPv6 pods":    {Nodes{network: "100.96.0.0/16,fd00:96::/64", pods: []string{"fd00::/16"}}, "fd00:96::/64: it overlaps fd00::/16"},
		"no NAT, no ports":      {Nodes{noMasquerade: []string{"10.0.0.0/8"}}, "--no-masquerade needs --node-network"},
		"pods no prefix either": {Nodes{pods: []string{"10.96.0.0"}}, "--pod-network"},
		"no host port":          {Nodes{nodePorts: NodePorts{host: []string{"x"}}}, "--host-ports"},
		"host and node port": {
			Nodes{nodePorts: NodePorts{"30000-32767", []string{"80", "32767"}}}, "--host-ports: 32767-32767 overlaps --node-ports 30000-32767",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.flags.Config(pools)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestEgressPort(t *testing.T) {
	cfg, err := (&Nodes{nodePorts: NodePorts{"30000-32767", []string{"8000-8100"}}}).Config(nil)
	require.NoError(t, err)
	require.NoError(t, CheckEgressPort(9177, cfg))
	require.NoError(t, CheckEgressPort(65534, cfg))
	for port, says := range map[uint16]string{
		0: "want a port from 1 to 65534", 65535: "want a port from 1 to 65534",
		29999: "port 30000 is in --node-ports 30000-32767", 32767: "port 32767 is in --node-ports",
		7999: "port 8000 is in --host-ports", 10249: "port 10250 belongs to etcd, OVN, Open vSwitch or kubelet",
	} {
		require.ErrorContains(t, CheckEgressPort(port, cfg), says)
	}
}

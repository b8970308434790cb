package ranges_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestNodesOfBackends: nodes lead to services if the backend has none. In isolated namespaces they have an address for it, and no
// management port.
func TestNodesOfBackends(t *testing.T) {
	cfg := ranges.NodesConfig{
		Network:     nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
		NetworkIPv6: nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")},
	}
	nodes := []netvirt.Kind{netvirt.KindManagementPort, netvirt.KindNodePort}
	without, with := netvirt.NewKindSet(nodes...), netvirt.NewKindSet(append(nodes, netvirt.KindServiceVIP)...)
	require.True(t, cfg.For(without, false).Balance)
	require.False(t, cfg.For(without, false).HasIPv6(), "nodes lead to services of IPv4 only")
	require.True(t, cfg.For(without, false).ManagementPorts())
	require.Empty(t, cfg.For(without, false).Reserved, "OVN alone has links of its own")
	require.True(t, cfg.For(without, true).Balance)
	require.Equal(t, cfg.Network, cfg.For(without, true).Network)
	require.False(t, cfg.For(without, true).ManagementPorts())
	require.False(t, cfg.For(with, true).Network.IsValid())
	require.False(t, cfg.For(netvirt.NewKindSet(netvirt.KindNodePort), true).Balance, "the backend joins no nodes")
	require.False(t, cfg.For(with, false).Balance)
	require.True(t, cfg.For(with, false).HasIPv6())
}

// TestServedPorts: nodes serve ports if they have a management port and the operator gives a range.
func TestServedPorts(t *testing.T) {
	network := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	ports := coe.PortRange{First: 30000, Last: 32767}
	require.Equal(t, ports, ranges.NodesConfig{Network: network, NodePorts: ports}.ServedPorts())
	require.Zero(t, ranges.NodesConfig{Network: network}.ServedPorts())
	require.Zero(t, ranges.NodesConfig{NodePorts: ports}.ServedPorts())
	host := []coe.PortRange{{First: 80, Last: 80}}
	require.Equal(t, host, ranges.NodesConfig{Network: network, HostPorts: host}.ServedHostPorts())
	require.Nil(t, ranges.NodesConfig{HostPorts: host}.ServedHostPorts())
}

package coe_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

func TestNetworksAsJSON(t *testing.T) {
	n := coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}
	text, err := json.Marshal(n)
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes":"100.96.0.0/16","pods":["10.42.0.0/16"]}`, string(text))
	var again coe.Networks
	require.NoError(t, json.Unmarshal(text, &again))
	require.True(t, n.Equal(&again))
}

// Gateways are clients of services, so nodes route their links while one leads to services.
func TestRouted(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	n := &coe.Networks{Pods: pods, Gateways: []coe.NetworkGateway{{Node: netip.MustParseAddr("192.168.33.11")}}}
	require.Equal(t, pods, n.Routed())
	other := *n
	other.Gateways = []coe.NetworkGateway{{Node: n.Gateways[0].Node, Services: true}}
	require.Equal(t, append(slices.Clone(pods), nodenet.GatewayLinks), other.Routed())
	require.False(t, n.Equal(&other))
	other.Gateways = []coe.NetworkGateway{{Node: n.Gateways[0].Node, Services: true, IPv6: true}}
	require.Equal(t, append(slices.Clone(pods), nodenet.GatewayLinks, nodenet.GatewayLinksIPv6), other.Routed())
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, pods)
}

// The pods of a node leave by its gateway with the families of the gateway, and other pods if a gateway pins them.
func TestByGateways(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	with, without := netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("192.168.33.12")
	n := &coe.Networks{Pods: prefixes("10.42.0.0/16", "fd42::/64"), Gateways: []coe.NetworkGateway{{Node: with, Pinned: prefixes("10.42.1.0/24")}}}
	require.Equal(t, prefixes("10.42.0.0/16"), n.ByGateways(with))
	require.Equal(t, prefixes("10.42.1.0/24"), n.ByGateways(without))
	n.Gateways[0].IPv6, n.Gateways[0].Pinned = true, prefixes("10.42.1.0/24", "fd42::/80", "fd00::/8")
	require.Equal(t, prefixes("10.42.0.0/16", "fd42::/64"), n.ByGateways(with))
	require.Equal(t, prefixes("10.42.1.0/24", "fd42::/64"), n.ByGateways(without))
}

package coe_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestNodeNetwork(t *testing.T) {
	n := coe.NodeNetwork{Prefix: netip.MustParsePrefix("100.96.0.0/29")}
	require.Equal(t, uint32(2), n.Numbers())
	require.Equal(t, "100.96.0.1", n.Gateway().String())
	require.Equal(t, "100.96.0.2", n.Address(1).String())
	require.Equal(t, "100.96.0.3", n.ServiceAddress(1).String())
	require.Equal(t, "100.96.0.4", n.Address(2).String())
	require.Equal(t, "100.96.0.5", n.ServiceAddress(2).String())
	require.Equal(t, "0a:58:64:60:00:04", n.MAC(2))
	for text, want := range map[string]uint32{
		"100.96.0.2": 1, "100.96.0.4": 2, "100.96.0.0": 0, "100.96.0.1": 0, "100.96.0.3": 0, "100.96.0.6": 0, "100.96.0.10": 0, "fd00::2": 0,
	} {
		require.Equal(t, want, n.Number(netip.MustParseAddr(text)), text)
	}
	require.Zero(t, n.Number(netip.Addr{}))
	require.Zero(t, coe.NodeNetwork{}.Number(n.Address(1)))
	for _, last := range []string{"100.96.0.0/16", "0.0.0.0/0"} {
		n := coe.NodeNetwork{Prefix: netip.MustParsePrefix(last)}
		require.True(t, n.Contains(n.ServiceAddress(n.Numbers())))
	}
	for _, none := range []coe.NodeNetwork{
		{}, {Prefix: netip.MustParsePrefix("100.96.0.0/30")}, {Prefix: netip.MustParsePrefix("fd00::/64")},
	} {
		require.Zero(t, none.Numbers())
	}
}

func TestNetworksAsJSON(t *testing.T) {
	n := coe.Networks{Nodes: coe.NodeNetwork{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}
	text, err := json.Marshal(n)
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes":"100.96.0.0/16","pods":["10.42.0.0/16"]}`, string(text))
	var again coe.Networks
	require.NoError(t, json.Unmarshal(text, &again))
	require.True(t, n.Equal(&again))
}

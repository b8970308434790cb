package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestGetGateways: the list of gateways says for each node by which address its pods leave, and whether the gateway works.
func TestGetGateways(t *testing.T) {
	b := bridgeFor(t, func(cfg *bridge.Config) {
		cfg.Nodes = ranges.NodesConfig{Network: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, NetworkIPv6: nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}}
	})
	out, err := run(t, "", "get", "gateways")
	require.NoError(t, err)
	require.Equal(t, "no gateways; make a node one with coe-bridge gateway init, on the node\n", out)
	post(t, b, poolsPath, pool)
	post(t, b, "/restconf/config/k8s-node:k8s-nodes-info", `{"k8s-nodes": [
		{"uid": "8f2a6d5e-0000-4000-8000-0000000000f1", "host-name": "worker-1", "internal-ip-address": "192.168.33.12"},
		{"uid": "8f2a6d5e-0000-4000-8000-0000000000f2", "host-name": "worker-2", "internal-ip-address": "192.168.33.13"}]}`)
	post(t, b, "/restconf/config/coe-gateways:gateways", `{"gateway": [
		{"node": "192.168.33.12", "chassis": "one", "address": "10.33.75.138", "prefix-length": 24, "next-hop": "10.33.75.253",
			"ipv6-address": "2001:db8:74::138", "ipv6-prefix-length": 64, "ipv6-next-hop": "fe80::1", "services": true, "pinned-subnets": ["10.11.2.0/24"]},
		{"node": "192.168.33.13", "chassis": "two", "address": "192.168.33.12", "prefix-length": 24, "next-hop": "192.168.33.1"}]}`)
	b.AwaitSync(patience.Patience)
	out, err = run(t, "", "get", "gateways")
	require.NoError(t, err)
	require.Equal(t, `NAME       NODE ADDRESS    ADDRESS                               NEXT HOP               PINNED SUBNETS   SERVICES   PROBLEM
worker-1   192.168.33.12   10.33.75.138/24,2001:db8:74::138/64   10.33.75.253,fe80::1   10.11.2.0/24     yes        -
worker-2   192.168.33.13   192.168.33.12/24                      192.168.33.1           -                no         AddressTaken
`, out)
	require.Contains(t, requireFormats(t, "get", "gateways", "192.168.33.12"), `"chassis": "one"`)
	for _, name := range []string{"192.168.33.13", "worker-2"} {
		out, err = run(t, "", "get", "gateway", name)
		require.NoError(t, err)
		require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 2)
	}
}

// TestGatewayFlags: a wrong or missing flag of the commands on gateways is an error with an example, before anything is asked.
func TestGatewayFlags(t *testing.T) {
	const gateway = " --node-address 10.33.74.10 --physical-interface eth1 --ovs-db unix:/none"
	for _, c := range []struct{ args, says string }{
		{"remove", "name the address of this node in the bridge with --node-address, such as 10.33.74.10 (coe-bridge get nodes lists them)"},
		{"remove --node-address 10.33.74.999", `--node-address "10.33.74.999": want an IPv4 or IPv6 address, such as 10.33.74.10`},
		{"init" + gateway, "want an IPv4 address each"},
		{"init --physical-ip 10.33.75.138 --default-gw 10.33.75.253" + gateway, `--physical-ip "10.33.75.138": want an address with the length of its network, such as 10.33.74.138/24`},
		{"init --physical-ip 10.33.75.138/24 --default-gw 10.33.75" + gateway, `--default-gw "10.33.75": want the address of a router, such as 10.33.74.253`},
		{"init --physical-ip 10.33.75.138/24 --default-gw 10.33.75.1 --rampout-ip-subnets 10.42" + gateway, `--rampout-ip-subnets "10.42": want a range of pods, such as 10.42.1.0/24`},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, err := run(t, "", append([]string{"gateway"}, strings.Fields(c.args)...)...)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, out)
		})
	}
}

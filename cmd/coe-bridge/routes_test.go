package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// Only nodes with a management port have routes, by the family of their addresses. Neighbouring blocks of a node become one prefix.
func TestRoutes(t *testing.T) {
	b := bridgeFor(t, func(cfg *bridge.Config) {
		cfg.Nodes = ranges.NodesConfig{
			Network:     nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
			NetworkIPv6: nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")},
		}
	})
	out, err := run(t, "", "routes")
	require.NoError(t, err)
	require.Equal(t, "no routes: no node has a management port; nodes that the bridge knows have one with --isolation none, and with --ovn-layout node\n", out)
	post(t, b, "/restconf/config/k8s-node:k8s-nodes-info", `{"k8s-nodes": [
		{"uid": "8f2a6d5e-0000-4000-8000-0000000000f1", "host-name": "worker-1", "internal-ip-address": "192.168.33.12"},
		{"uid": "8f2a6d5e-0000-4000-8000-0000000000f2", "host-name": "worker-2", "internal-ip-address": "192.168.33.13"},
		{"uid": "8f2a6d5e-0000-4000-8000-0000000000f3", "host-name": "worker-3", "internal-ip-address": "2001:db8::14"}]}`)
	tell(t, b)
	for i, ns := range []string{"next", "third"} {
		post(t, b, podsPath, fmt.Sprintf(`{"pods": [{"uid": "8f2a6d5e-0000-4000-8000-0000000000c%d", "name": "one", "network-NS": %q,
			"host-ip-address": "192.168.33.13", "interface": [{"uid": "8f2a6d5e-0000-4000-8000-0000000000c%d"}]}]}`, i, ns, i))
	}
	b.AwaitSync(patience.Patience)
	const want = `NAME       ADDRESS         PREFIXES
worker-1   192.168.33.12   10.11.2.0/29
worker-2   192.168.33.13   7.7.7.7/32,10.11.2.8/29,10.11.2.16/28
worker-3   2001:db8::14    -
`
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := run(t, "", "routes")
		require.NoError(c, err)
		require.Equal(c, want, out)
	}, patience.Patience, 50*time.Millisecond)
	require.JSONEq(t, `[{"name": "worker-1", "address": "192.168.33.12", "prefixes": ["10.11.2.0/29"]}]`, requireFormats(t, "routes", "worker-1"))
	_, err = run(t, "", "routes", "worker-9")
	require.EqualError(t, err, "routes worker-9: not found; coe-bridge routes lists all")
}

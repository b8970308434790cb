package odl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// common is the vpn of all namespaces that are not isolated.
const common = "transit:100:1"

// testIsolation tests decision 25 with ping. Pods of different namespaces reach each other as members of the
// same vpn, and do not as members of different ones, on the same host and on two hosts.
func testIsolation(t *testing.T, c *odl.Controller) {
	require.NoError(t, c.JoinHosts(t.Context()))
	putVPN(t, c, common, "100:1")
	web, shop := putNamespace(t, c, "web", 1, common), putNamespace(t, c, "shop", 2, common)
	putVPN(t, c, "bank", "100:2")
	bank := putNamespace(t, c, "bank", 3, "bank")
	putVPN(t, c, "mint", "100:3")
	mint := putNamespace(t, c, "mint", 4, "mint")

	for _, namespace := range [][]pod{web, shop, bank, mint} {
		requireReach(t, c, namespace[0], namespace[1])
		requireReach(t, c, namespace[1], namespace[2])
	}
	for _, pair := range [][2]pod{{web[0], shop[0]}, {shop[1], web[2]}, {web[1], shop[2]}} {
		requireReach(t, c, pair[0], pair[1])
		requireReach(t, c, pair[1], pair[0])
	}
	for _, pair := range [][2]pod{{bank[0], mint[0]}, {bank[1], web[0]}, {mint[1], shop[2]}} {
		requireApart(t, c, pair[0], pair[1])
		requireApart(t, c, pair[1], pair[0])
	}

	// To move a vpn-interface to another vpn, it must be removed, and written again when the removal
	// is complete.
	removeVPNInterface(t, c, bank[0], "bank")
	putVPNInterface(t, c, bank[0], common)
	requireReach(t, c, bank[0], web[2])
	requireReach(t, c, web[2], bank[0])
	requireApart(t, c, bank[1], web[2])
}

// testCommonTarget tests decision 25: a common route target does not let pods of two vpns reach each other.
func testCommonTarget(t *testing.T, c *odl.Controller) {
	pods := make([]pod, 2)
	for i, namespace := range []string{"red", "blue"} {
		rd := []string{"100:11", "100:12"}[i]
		putVPN(t, c, namespace, rd, "100:10")
		pods[i] = pod{namespace: namespace, network: i + 11, number: 11, host: c.Lab.Hosts[0]}
		putELAN(t, c, pods[i])
		putPod(t, c, pods[i], namespace)
		plug(t, c, pods[i])
	}
	requireImported(t, c, "100:11", pods[1])
	requireImported(t, c, "100:12", pods[0])
	requireApart(t, c, pods[0], pods[1])
	requireApart(t, c, pods[1], pods[0])
}

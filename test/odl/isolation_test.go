package odl_test

import (
	"testing"

	"github.com/coe-bridge/coe-bridge/test/odl"
)

// TestIsolation shows by ping what docs/decisions/0025 says: pods of different namespaces
// reach each other as members of one vpn, and do not as members of two without a common
// route target.
func TestIsolation(t *testing.T) {
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) { testIsolation(t, odl.ForTest(t, release, "host1")) })
	}
}

// common is the vpn of all namespaces that are not isolated.
const common = "common"

func testIsolation(t *testing.T, c *odl.Controller) {
	pods := map[string][]pod{}
	for i, namespace := range []string{"web", "shop", "bank", "mint"} {
		for _, number := range []int{11, 12} {
			pods[namespace] = append(pods[namespace], pod{namespace: namespace, network: i + 1, number: number, host: c.Lab.Hosts[0]})
		}
		putELAN(t, c, pods[namespace][0])
	}
	web, shop, bank, mint := pods["web"], pods["shop"], pods["bank"], pods["mint"]
	putVPN(t, c, common, "100:1", "100:1")
	putVPN(t, c, "bank", "100:2", "100:2")
	putVPN(t, c, "mint", "100:3", "100:3")
	for vpn, members := range map[string][][]pod{common: {web, shop}, "bank": {bank}, "mint": {mint}} {
		for _, namespace := range members {
			for _, p := range namespace {
				putPod(t, c, p, vpn)
			}
		}
	}
	for _, pair := range [][2]pod{{web[0], web[1]}, {shop[0], shop[1]}, {bank[0], bank[1]}, {mint[0], mint[1]}, {web[0], shop[0]}, {shop[1], web[1]}} {
		requireReach(t, c, pair[0], pair[1])
		requireReach(t, c, pair[1], pair[0])
	}
	for _, pair := range [][2]pod{{bank[0], mint[0]}, {bank[1], web[0]}, {mint[1], shop[1]}} {
		requireApart(t, c, pair[0], pair[1])
		requireApart(t, c, pair[1], pair[0])
	}
}

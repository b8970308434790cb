package state_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

func TestCensus(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF)
	block := &coe.Block{
		ELAN: "192.168.33.12:shop", Prefix: netip.MustParsePrefix("10.11.0.0/29"),
		Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/16"),
	}
	single := &coe.Block{ELAN: "192.168.33.12:shop", Prefix: netip.MustParsePrefix("169.254.1.1/32")}
	lease := func(uid, addr string, block *coe.Block, released int64) *coe.Lease {
		return &coe.Lease{
			PodUID: uid, InterfaceUID: uid, Namespace: "shop", Released: released,
			Addresses: []coe.LeasedAddress{{Address: netip.MustParseAddr(addr), Network: block.Prefix}},
		}
	}
	s.Update(func(tx *state.Tx) {
		for _, uid := range []string{"a", "b", "c"} {
			tx.PutPod(coe.RESTCONF, &coe.Pod{UID: uid, Namespace: "shop", NoNetwork: uid == "c"})
		}
		tx.PutBlock("shop", block)
		tx.PutBlock("shop", single)
		tx.PutLease(lease("a", "10.11.0.3", block, 0))
		tx.PutLease(lease("b", "7.7.7.7", single, 0))
		tx.PutLease(lease("gone", "10.11.0.4", block, 1))
		tx.PutServiceFact(&coe.ServiceFact{UID: "s", Namespace: "shop", Address: netip.MustParseAddr("10.96.0.2")})
		tx.PutService(coe.RESTCONF, &coe.Service{UID: "u", Namespace: "shop", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.4")}})
		tx.PutServiceFact(&coe.ServiceFact{UID: "t", Namespace: "shop", Address: netip.MustParseAddr("10.96.0.3"), Released: 1})
	})
	pool := state.PoolKey{Network: "default", Subnet: block.Subnet}
	require.Equal(t, state.Census{
		Pods: 2, Leased: 2,
		Given: map[state.PoolKey]int{pool: 1}, Resting: map[state.PoolKey]int{pool: 1},
		Blocks:   map[state.PoolKey]map[netip.Prefix]struct{}{pool: {block.Prefix: {}}},
		Services: map[netip.Addr]struct{}{netip.MustParseAddr("10.96.0.2"): {}, netip.MustParseAddr("10.96.0.4"): {}},
	}, s.Census())
}

package ipam_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// An egress address is nobody else's, and nobody else gets it. The external address that a node reports takes it from
// nobody, because a node could report any.
func TestEgressAddresses(t *testing.T) {
	w := newVIPWorld(t)
	w.setPools(specPool())
	w.putNodes("192.168.33.11")
	w.syncNodes()
	w.putServices(newService("shop", "s1", at("10.96.0.1"), outside("192.0.2.1")))
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "captured", HostName: "captured", InternalIP: addr("192.168.33.12"), ExternalIP: addr("192.0.2.9")})
	})
	w.setPools(specPool())
	for address, reason := range map[string]coe.Reason{
		"192.168.33.11": coe.AddressTaken, "192.168.10.9": coe.AddressTaken, "10.96.0.1": coe.AddressTaken, "192.0.2.1": coe.AddressTaken,
		"169.254.1.1": coe.AddressInvalid, "127.0.0.1": coe.AddressInvalid,
	} {
		refused := w.assigner.RefuseEgress(addr(address))
		require.NotNil(t, refused, address)
		require.Equal(t, reason, refused.Reason, address)
	}
	require.Nil(t, w.assigner.RefuseEgress(addr("192.0.2.9")))

	w.store.Update(func(tx *state.Tx) {
		tx.SetEgress([]*coe.EgressIP{{Name: "e", Number: 1, Address: addr("192.0.2.9")}}, nil)
	})
	w.setPools(specPool())
	w.putServices(newService("shop", "thief", at("10.96.0.2"), outside("192.0.2.9")))
	require.Equal(t, coe.AddressTaken, w.whyNot("shop", "thief"))
	require.Nil(t, w.assigner.RefuseEgress(addr("192.0.2.9")), "the EgressIP keeps it")
}

// An egress address is neither that of a gateway nor that of its router, and the refusal names the node of the gateway.
func TestEgressAddressOfGateway(t *testing.T) {
	w := newVIPWorld(t)
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "1", HostName: "node1", InternalIP: addr("192.168.33.11")})
	})
	gateway := &coe.Gateway{
		Node: addr("192.168.33.11"), Chassis: "c", Address: netip.MustParsePrefix("192.168.33.138/24"), NextHop: addr("192.168.33.1"),
	}
	w.store.Update(func(tx *state.Tx) { tx.PutGateway(gateway) })
	for address, says := range map[string]string{
		"192.168.33.138": "is the address of the gateway of node node1; send another",
		"192.168.33.1":   "is the next hop of the gateway of node node1; send another",
	} {
		refused := w.assigner.RefuseEgress(addr(address))
		require.NotNil(t, refused, address)
		require.Equal(t, coe.AddressTaken, refused.Reason)
		require.Contains(t, refused.Message, says)
	}
	require.Nil(t, w.assigner.RefuseEgress(addr("192.168.33.139")))
	w.store.Update(func(tx *state.Tx) { tx.DeleteGateway("192.168.33.11") })
	require.Nil(t, w.assigner.RefuseEgress(addr("192.168.33.138")))
}

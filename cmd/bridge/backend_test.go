package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestLimits: network policies are enforced by a backend that has ACLs, and the place of clients counts
// where the backend has services.
func TestLimits(t *testing.T) {
	all := netvirt.NewKindSet(netvirt.Kinds()...)
	require.Equal(t, netvirt.Limits{}, limits(BackendConfig{Name: "memory"}, all))
	require.Equal(t, ovn.Limits(ovn.LayoutELAN), limits(BackendConfig{Name: "ovn"}, all))
	node := BackendConfig{Name: "ovn", OVN: ovn.Config{Layout: ovn.LayoutNode}}
	require.True(t, limits(node, all).NodeGateways)
	require.Equal(t, odl.Limits(), limits(BackendConfig{Name: "odl"}, all))
	require.Equal(t, netvirt.Limits{NoACLs: true, NoPlaces: true, NoGateways: true}, limits(BackendConfig{Name: "memory"}, netvirt.NewKindSet(netvirt.KindInterface)))
}

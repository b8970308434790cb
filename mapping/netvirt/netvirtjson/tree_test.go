package netvirtjson_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// TestTreeOfOneState: a pod gets its address while its tree is encoded. The tree is that of the pod without the address, or with it.
func TestTreeOfOneState(t *testing.T) {
	states := [][]netvirt.Object{
		nil,
		{
			netvirt.VPNInterface{Name: "web:front", Namespace: "web", VPN: "web"},
			netvirt.Adjacency{Interface: "web:front", Namespace: "web", Address: netip.MustParseAddr("10.20.0.5"), ELAN: "web-1", Network: netip.MustParsePrefix("10.20.0.0/24")},
		},
	}
	for first := range states {
		reads := first
		got, err := netvirtjson.Tree("l3vpn:vpn-interfaces", func(yield func(netvirt.Object) bool) {
			state := states[min(reads, len(states)-1)]
			reads++
			for _, o := range state {
				if !yield(o) {
					return
				}
			}
		})
		require.NoError(t, err)
		require.Equal(t, first == 1, got != nil, "%s", got)
		if got != nil {
			require.Contains(t, string(got), "10.20.0.5")
		}
	}
}

package ipam_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

// A standby replica gets the choices for nodes from changes and from snapshots.
func TestFactsOfNodes(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	w.restart()
	w.complete()
	o := newFollower(w)
	for _, step := range []func(){
		func() { w.putNodes("192.168.33.12", "192.168.33.13") },
		func() { w.removeNode("192.168.33.12") },
		func() { w.setPools() },
		func() { w.syncNodes() },
		func() { w.removeNode("192.168.33.13") },
	} {
		for _, snapshot := range []bool{false, true} {
			step()
			o.follow(snapshot)
			want, have := w.store.Cluster(), o.store.Cluster()
			require.Equal(t, want.Networks, have.Networks)
			require.Len(t, have.Numbers, len(want.Numbers))
			for a, f := range want.Numbers {
				require.Equal(t, f, have.Numbers[a])
			}
		}
	}
}

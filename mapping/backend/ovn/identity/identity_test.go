package identity

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestUUIDs: the UUID of a row never changes, because databases contain it.
func TestUUIDs(t *testing.T) {
	k := netvirt.Key{Kind: netvirt.KindInterface, Name: "default:busybox1"}
	require.Equal(t, "a4fdca33-d331-5c26-9109-57a7d7964473", Owner("coe-bridge").UUID(nb.LogicalSwitchPortTable, k, ""))
}

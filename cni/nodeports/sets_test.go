package nodeports

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The sets of a table have IDs of their own, so the library counts none for them.
func TestSetIDs(t *testing.T) {
	for _, f := range []*Family{IPv4(), IPv6()} {
		seen := map[uint32]bool{0: true}
		for _, set := range f.Sets() {
			require.False(t, seen[set.ID], set.Name)
			seen[set.ID] = true
		}
	}
}

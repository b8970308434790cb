package nodenet_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

func TestOwnRanges(t *testing.T) {
	all := nodenet.OwnRanges()
	for i, p := range all {
		require.Equal(t, p.Masked(), p)
		require.False(t, p.Contains(netip.MustParseAddr("169.254.169.254")), "%s has the address of metadata servers", p)
		for _, other := range all[:i] {
			require.False(t, p.Overlaps(other), "%s and %s", p, other)
		}
	}
}

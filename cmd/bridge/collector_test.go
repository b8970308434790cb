package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollectorPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 32 << 20: 200, 64 << 20: 100, 256 << 20: 25, 1 << 40: 25,
	} {
		require.Equal(t, want, collectorPercent(live), "%d bytes live", live)
	}
}

package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollectorPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 64 << 20: 200, 128 << 20: 100, 512 << 20: 25, 1 << 40: 25,
	} {
		require.Equal(t, want, collectorPercent(live, false), "%d bytes live", live)
		require.Equal(t, max(want, 75), collectorPercent(live, true), "%d bytes live in a burst", live)
	}
}

func TestBurst(t *testing.T) {
	b, allocated := burst{}, uint64(0)
	asked := func(mib uint64) bool {
		allocated += mib << 20
		return b.over(allocated)
	}
	require.False(t, asked(0))
	require.False(t, asked(0))
	require.False(t, asked(50), "a burst")
	require.False(t, b.lasts(), "not yet a large one")
	require.False(t, asked(20))
	require.True(t, b.lasts())
	require.False(t, asked(1), "that seems to rest")
	require.False(t, b.lasts())
	require.False(t, asked(20), "and goes on")
	require.False(t, asked(1))
	require.True(t, asked(8))
	require.False(t, asked(0), "it is over once")
	require.False(t, asked(50))
	require.False(t, asked(0))
	require.False(t, asked(0), "it was a small one")
	require.False(t, asked(14), "which adds up")
	require.False(t, asked(0))
	require.True(t, asked(0))

	idle := func(times int) {
		for range times {
			require.False(t, asked(0))
		}
	}
	require.False(t, asked(15))
	idle(idleFor)
	require.False(t, asked(1), "it goes on")
	idle(idleFor - 1)
	require.True(t, asked(0), "it is idle")
	idle(2 * idleFor)
	require.False(t, asked(1))
	idle(idleFor)
}

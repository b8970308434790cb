package kube

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEach(t *testing.T) {
	var sum atomic.Int64
	timings, err := Each(t.Context(), 100, 7, func(_ context.Context, i int) error {
		sum.Add(int64(i))
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 99*100/2, sum.Load(), "each once")
	require.Len(t, timings.Calls, 100)
	require.IsNonDecreasing(t, timings.Calls)
}

func TestEachEndsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	_, err := Each(t.Context(), 1000, 2, func(context.Context, int) error {
		if calls.Add(1) == 3 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.Less(t, calls.Load(), int64(1000))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Each(ctx, 10, 2, func(context.Context, int) error { return broken })
	require.ErrorIs(t, err, context.Canceled)
}

func TestTimings(t *testing.T) {
	timings := Timings{Total: 2 * time.Second}
	require.Zero(t, timings.Percentile(0.5))
	for i := range 101 {
		timings.Calls = append(timings.Calls, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, 50*time.Millisecond, timings.Percentile(0.5))
	require.Equal(t, 100*time.Millisecond, timings.Percentile(1))
	require.InDelta(t, 50.5, timings.Rate(), 0.01)
	require.Equal(t, "101 in 2.00 s, 50/s, p50 50.0 ms, p99 99.0 ms", timings.String())
}

func TestAddresses(t *testing.T) {
	require.Equal(t, "10.200.0.1", NodeAddress(0).String())
	require.Equal(t, "10.200.1.0", NodeAddress(255).String())
	l := ServiceLoad{Count: 2, Endpoints: 3}
	require.Equal(t, []string{"10.128.0.1"}, l.Slice(0, 0).Endpoints[0].Addresses)
	require.Equal(t, []string{"10.128.0.6"}, l.Slice(1, 0).Endpoints[2].Addresses)
}

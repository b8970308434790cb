package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAwaitFlows: an ADD waits while flows to the pod come, and fails when no further one has come for flowsWait.
func TestAwaitFlows(t *testing.T) {
	for name, c := range map[string]struct {
		come     []time.Duration // the times at which one flow more is there
		missing  string
		deadline time.Duration
		ends     time.Duration
	}{
		"all come slowly":         {come: []time.Duration{15 * time.Second, 30 * time.Second, 48 * time.Second}, deadline: time.Minute, ends: 48 * time.Second},
		"the last one never":      {come: []time.Duration{time.Second, 2 * time.Second}, missing: "flow 2", deadline: time.Minute, ends: 22 * time.Second},
		"the deadline of the ADD": {come: []time.Duration{15 * time.Second, 29 * time.Second}, missing: "flow 2", deadline: 40 * time.Second, ends: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				err := awaitFlows(ctx, func() (string, error) {
					for i := range 3 {
						if i >= len(c.come) || time.Since(begun) < c.come[i] {
							return "flow " + string(rune('0'+i)), nil
						}
					}
					return "", nil
				})
				require.InDelta(t, c.ends.Seconds(), time.Since(begun).Seconds(), 2*flowsPoll.Seconds())
				if c.missing == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, c.missing)
			})
		})
	}
}

package odlports

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// The ports of both kinds wait for their own time, and Next is that of the first one.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		waits, complete := unprogrammed{"a": {stage: openflow.Tagged, last: now, within: 1}}, unprogrammed{"a": {stage: openflow.Complete}}
		soon, late := unused{"b": now.Add(-keepUnused)}, unused{"b": now}
		for _, c := range []struct {
			unprogrammed unprogrammed
			unused       unused
			want         time.Duration
		}{
			{unprogrammed{}, unused{}, quietEvery},
			{waits, unused{}, lookEvery},
			{unprogrammed{}, soon, retryAfter},
			{waits, soon, retryAfter},
			{waits, late, lookEvery},
			{complete, late, quietEvery},
		} {
			p := &Ports{cfg: Config{Programmed: (&node{}).programmed}, unprogrammed: c.unprogrammed, unused: c.unused}
			require.Equal(t, c.want, p.Next(), "%+v", c)
		}
		require.Zero(t, New(Config{}).Next())
		require.Equal(t, keepUnused, (&Ports{unused: late}).Next())
	})
}

package odlports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// The ports of both kinds wait for their own time, and Next is that of the first one.
func TestNext(t *testing.T) {
	now := time.Now()
	lacking, complete := waits{"a": {stage: openflow.Tagged}}, waits{"a": {stage: openflow.Complete}}
	soon, late := waits{"b": {since: now}}, waits{"b": {since: now, within: time.Hour}}
	for _, c := range []struct {
		unprogrammed, unused waits
		want                 time.Duration
	}{
		{waits{}, waits{}, 0},
		{lacking, waits{}, lookEvery},
		{waits{}, soon, retryAfter},
		{lacking, soon, retryAfter},
		{lacking, late, lookEvery},
		{complete, late, quietEvery},
	} {
		p := &Ports{unprogrammed: unprogrammed{c.unprogrammed}, unused: unused{c.unused}}
		require.Equal(t, c.want, p.Next(), "%+v", c)
	}
}

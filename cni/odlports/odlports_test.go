package odlports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ports of both kinds wait for their own time, and Next is that of the first one.
func TestNext(t *testing.T) {
	soon := func() waits { return waits{"a": {since: time.Now()}} }
	late := func() waits { return waits{"b": {since: time.Now(), within: time.Hour}} }
	for _, c := range []struct {
		unprogrammed, unused waits
		soon, late           bool
	}{
		{waits{}, waits{}, false, false},
		{soon(), waits{}, true, false},
		{waits{}, soon(), true, false},
		{soon(), late(), true, false},
		{late(), soon(), true, false},
		{late(), waits{}, false, true},
		{waits{}, late(), false, true},
	} {
		p := &Ports{unprogrammed: unprogrammed{c.unprogrammed}, unused: unused{c.unused}}
		next := p.Next()
		require.Equal(t, c.soon, next == retryAfter, "%+v", c)
		require.Equal(t, c.late, next > retryAfter, "%+v", c)
	}
}

package dhcppool_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// TestFits: as many pods as Fits says get an address in turn before the first one is refused.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		subnet, from, to string
		holders          int
	}{
		{"10.0.0.0/24", "", "", 1},
		{"10.0.0.0/24", "", "", 7},
		{"10.0.0.0/24", "", "", 32},
		{"10.0.0.0/24", "", "", 100}, // more than there are blocks
		{"10.0.0.0/20", "", "", 10},
		{"10.0.0.0/20", "", "", 51},
		{"10.0.0.0/22", "10.0.1.0", "10.0.2.255", 9},
		{"10.0.0.0/30", "", "", 2},
		{"10.0.0.0/31", "", "", 1},
		{"10.0.0.0/32", "", "", 1},
		{"fd00::/118", "", "", 3},
		{"fd00::/122", "", "", 2},
	} {
		t.Run(fmt.Sprintf("%s for %d", c.subnet, c.holders), func(t *testing.T) {
			p := pool("default", c.subnet, c.from, c.to, "")
			a, got := withPools(p), 0
			for ; got <= int(p.Size()); got++ {
				if _, _, err := a.Allocate(elan(fmt.Sprint(got%c.holders)), "default", p.Subnet.Addr().Is6(), fmt.Sprint(got)); err != nil {
					break
				}
			}
			want := p.Fits(c.holders)
			require.InDelta(t, got, want, max(2, float64(got)/50))
			t.Log(got, want)
		})
	}
	require.Zero(t, dhcppool.Pool{Subnet: pool("default", "10.0.0.0/24", "", "", "").Subnet}.Fits(0))
	require.Positive(t, pool("default", "fd00::/48", "", "", "").Fits(1000))
}

package dhcppool_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// TestFits: as many pods as Fits says get an address in turn before the first one is refused.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		subnet, from, to string
		holders          int
		nodes            bool
	}{
		{"10.0.0.0/24", "", "", 1, false},
		{"10.0.0.0/24", "", "", 7, false},
		{"10.0.0.0/24", "", "", 32, false},
		{"10.0.0.0/24", "", "", 100, false}, // more than there are blocks
		{"10.0.0.0/20", "", "", 10, false},
		{"10.0.0.0/20", "", "", 51, false},
		{"10.0.0.0/22", "10.0.1.0", "10.0.2.255", 9, false},
		{"10.0.0.0/30", "", "", 2, false},
		{"10.0.0.0/31", "", "", 1, false},
		{"10.0.0.0/32", "", "", 1, false},
		{"fd00::/118", "", "", 3, false},
		{"fd00::/122", "", "", 2, false},
		{"10.0.0.0/24", "", "", 7, true}, // too small for larger blocks
		{"10.0.0.0/20", "", "", 10, true},
		{"10.0.0.0/18", "", "", 40, true},
		{"10.0.0.0/18", "", "", 400, true},
		{"10.0.0.0/16", "", "", 3, true},
		{"10.0.0.0/16", "", "", 300, true},
		{"10.0.0.0/16", "", "", 1000, true},
		{"fd00::/118", "", "", 3, true},
	} {
		t.Run(fmt.Sprintf("%s for %d, nodes %t", c.subnet, c.holders, c.nodes), func(t *testing.T) {
			p := pool("default", c.subnet, c.from, c.to, "")
			a, got := withPools(p), 0
			a.Nodes = c.holders
			for ; got <= int(p.Size()); got++ {
				holder := elan(fmt.Sprint(got % c.holders))
				if c.nodes {
					holder = node(got % c.holders)
				}
				if _, _, err := a.Allocate(holder, "default", p.Subnet.Addr().Is6(), fmt.Sprint(got)); err != nil {
					break
				}
			}
			want := p.Fits(c.holders, c.nodes)
			require.InDelta(t, got, want, max(2, float64(got)/50))
			t.Log(got, want)
		})
	}
	require.Zero(t, dhcppool.Pool{Subnet: pool("default", "10.0.0.0/24", "", "", "").Subnet}.Fits(0, false))
	for _, wide := range []string{"fd00::/48", "fd00::/32"} {
		require.Positive(t, pool("default", wide, "", "", "").Fits(49, true))
	}
}

// TestBlocksOfNodes: the blocks of a node are as large as the pool has room for.
func TestBlocksOfNodes(t *testing.T) {
	for _, c := range []struct {
		subnet string
		nodes  int
		want   []string // blocks of one node that has the pool alone
	}{
		{"10.0.0.0/26", 8, []string{"10.0.0.0/29", "10.0.0.16/28"}},
		{"10.0.0.0/24", 3, []string{"10.0.0.0/27", "10.0.0.64/26"}},
		{"10.0.0.0/16", 3, []string{"10.0.0.0/24", "10.0.2.0/23"}},
		{"10.0.0.0/16", 1000, []string{"10.0.0.0/27", "10.0.0.64/26"}},
		{"fd00::/112", 3, []string{"fd00::/120", "fd00::100/120"}},
	} {
		p := pool("default", c.subnet, "", "", "")
		a := withPools(p)
		a.Nodes = c.nodes
		var got []string
		for i := 0; len(got) < len(c.want); i++ {
			_, b, err := a.Allocate(node(1), "default", p.Subnet.Addr().Is6(), fmt.Sprint(i))
			require.NoError(t, err)
			if s := b.Prefix.String(); !slices.Contains(got, s) {
				got = append(got, s)
			}
		}
		require.Equal(t, c.want, got)
	}
}

func node(i int) dhcppool.ELAN {
	return dhcppool.ELAN{Name: dhcppool.OfNode + fmt.Sprint(i), Own: fmt.Sprint(i)}
}

package dhcppool_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// fuzzPools lists the sets of pools that the fuzzer changes between.
var fuzzPools = [][]dhcppool.Pool{
	{specPool()},
	{pool("default", "192.168.10.0/25", "", "", "192.168.10.9"), pool("default", "fd00::/120", "", "", "")},
	{pool("e1", "192.168.10.0/28", "", "", ""), pool("default", "192.168.10.32/27", "", "", "")},
	{pool("default", "192.168.10.64/30", "", "", ""), pool("services", "192.168.10.0/28", "", "", "")},
	{pool("e1", "192.168.10.0/27", "", "", ""), pool("node", "192.168.10.32/28", "", "", ""), pool("node", "fd00::/122", "", "", "")},
	{pool("default", "192.168.0.0/19", "", "", "")}, // has room for larger blocks of nodes
	{},
}

// FuzzAllocator makes random changes and checks the Allocator's laws after each.
func FuzzAllocator(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("allocate, claim, release, sweep, change pools, and start over"))
	f.Fuzz(func(t *testing.T, story []byte) {
		s := &allocatorStory{T: t, a: dhcppool.NewAllocator(), isolated: len(story)%2 == 1}
		s.setPools(0)
		for i := 0; i+1 < len(story) && i < 400; i += 2 {
			s.step(story[i], story[i+1])
			s.laws()
		}
		s.emptied()
	})
}

type allocatorStory struct {
	*testing.T
	a        *dhcppool.Allocator
	pools    []dhcppool.Pool
	isolated bool
	owners   int
}

func (s *allocatorStory) elan(x byte) dhcppool.ELAN {
	e := dhcppool.ELAN{Name: fmt.Sprintf("e%d", x%4)}
	if x%4 == 3 {
		e = node(3)
	}
	if s.isolated {
		e.Domain = fmt.Sprint(x % 2)
	}
	return e
}

func (s *allocatorStory) setPools(x byte) {
	s.pools = fuzzPools[int(x)%len(fuzzPools)]
	s.a.SetPools(s.pools)
}

func (s *allocatorStory) step(what, x byte) {
	e := s.elan(x)
	network, _ := s.a.Serving(e.Name, "node", "default")
	s.owners++
	owner := fmt.Sprint(s.owners)
	held := s.a.State().Held
	switch what % 8 {
	case 0, 1, 2:
		got, b, err := s.a.Allocate(e, network, x%8 == 7, owner)
		if err == nil {
			s.handedOut(network, got, b)
		}
	case 3:
		want := netip.AddrFrom4([4]byte{192, 168, 10, x})
		_, _ = s.a.Claim(dhcppool.Claim{ELAN: e, Network: network, Address: want, Owner: owner, NodeNet: netip.MustParsePrefix("192.168.10.128/25")})
	case 4:
		if len(held) > 0 {
			h := held[int(x)%len(held)]
			s.a.Release(h.Domain, h.Address)
		}
	case 5:
		if _, err := s.a.AllocateSingle("", "services", owner); err != nil {
			var exhausted *dhcppool.ExhaustedError
			require.ErrorAs(s, err, &exhausted)
		}
	case 6:
		s.a.Sweep()
	case 7:
		s.setPools(x)
	}
}

// handedOut checks an address that was chosen.
func (s *allocatorStory) handedOut(network string, got netip.Addr, b dhcppool.Block) {
	require.True(s, b.Prefix.Contains(got))
	require.NotEqual(s, b.Gateway, got)
	p, found := s.a.Pool(network, b.Subnet)
	require.True(s, found)
	require.True(s, p.Subnet.Contains(got))
	require.NotEqual(s, p.Gateway, got)
	require.False(s, got.Less(p.From) || p.To.Less(got), "%s is outside of %s..%s", got, p.From, p.To)
	if got.Is4() {
		require.NotEqual(s, b.Prefix.Addr(), got)
		require.True(s, b.Prefix.Contains(got.Next()), "%s is the broadcast address of %s", got, b.Prefix)
	}
}

func (s *allocatorStory) laws() {
	state := s.a.State()
	for i, h := range state.Held { // sorted, so equal ones are neighbours
		if i > 0 {
			require.False(s, state.Held[i-1].Domain == h.Domain && state.Held[i-1].Address == h.Address)
		}
		for _, b := range state.Blocks {
			if b.ELAN.Domain == h.Domain {
				require.NotEqual(s, b.Gateway, h.Address, "a gateway is held")
				edge := b.Prefix.Contains(h.Address) && h.Address.Is4() && b.Prefix.Bits() < 31 &&
					(h.Address == b.Prefix.Addr() || !b.Prefix.Contains(h.Address.Next()))
				require.False(s, edge, "%v is the network or broadcast address of %v", h, b)
			}
		}
	}
	for i, b := range state.Blocks {
		require.True(s, b.Prefix.Contains(b.Gateway))
		require.Equal(s, b.Prefix.Masked(), b.Prefix)
		for _, c := range state.Blocks[:i] {
			exclusive := b.Network != "" && c.Network != "" && (b.ELAN.Domain == c.ELAN.Domain || b.Network == c.Network)
			require.False(s, exclusive && b.Prefix.Overlaps(c.Prefix), "%v %v", b, c)
		}
	}
	restored := dhcppool.NewAllocator()
	restored.SetPools(s.pools)
	for _, b := range state.Blocks {
		require.NoError(s, restored.RestoreBlock(b))
	}
	for _, h := range state.Held {
		require.NoError(s, restored.RestoreAddress(h))
	}
	require.Equal(s, state, restored.State())
}

// emptied checks that everything is free after all releases: a pool then serves as many
// addresses as in a new allocator.
func (s *allocatorStory) emptied() {
	for _, h := range s.a.State().Held {
		s.a.Release(h.Domain, h.Address)
	}
	s.a.Sweep()
	require.Equal(s, dhcppool.State{}, s.a.State())
	e := s.elan(1)
	network, _ := s.a.Serving(e.Name, "node", "default")
	fresh := dhcppool.NewAllocator()
	fresh.SetPools(s.pools)
	for _, v6 := range []bool{false, true} {
		want, _ := allocateAll(s.T, fresh, e, network, v6)
		got, _ := allocateAll(s.T, s.a, e, network, v6)
		require.ElementsMatch(s, want, got)
	}
}

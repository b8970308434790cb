package dhcppool_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func elan(name string) dhcppool.ELAN { return dhcppool.ELAN{Name: name} }

func specPool() dhcppool.Pool {
	return pool("default", "192.168.10.0/24", "192.168.10.3", "192.168.10.50", "192.168.10.2")
}

func withPools(pools ...dhcppool.Pool) *dhcppool.Allocator {
	a := dhcppool.NewAllocator()
	a.SetPools(pools)
	return a
}

// allocateAll takes addresses until none is left.
func allocateAll(t *testing.T, a *dhcppool.Allocator, e dhcppool.ELAN, network string, v6 bool) (addrs []netip.Addr, blocks []netip.Prefix) {
	t.Helper()
	for i := 0; ; i++ {
		got, b, err := a.Allocate(e, network, v6, fmt.Sprintf("%s/%d", e.Name, i))
		if err != nil {
			var exhausted *dhcppool.ExhaustedError
			require.ErrorAs(t, err, &exhausted)
			return addrs, blocks
		}
		require.True(t, b.Prefix.Contains(got))
		addrs = append(addrs, got)
		if len(blocks) == 0 || blocks[len(blocks)-1] != b.Prefix {
			blocks = append(blocks, b.Prefix)
		}
	}
}

func TestSpecPoolServesTwoNodes(t *testing.T) {
	a := withPools(specPool())
	first, b1, err := a.Allocate(elan("n1:default"), "default", false, "p1")
	require.NoError(t, err)
	require.Equal(t, "192.168.10.3", first.String())
	require.Equal(t, "192.168.10.0/29", b1.Prefix.String())
	require.Equal(t, "192.168.10.2", b1.Gateway.String())

	second, b2, err := a.Allocate(elan("n2:default"), "default", false, "p2")
	require.NoError(t, err)
	require.Equal(t, "192.168.10.10", second.String())
	require.Equal(t, "192.168.10.8/29", b2.Prefix.String())
	require.Equal(t, "192.168.10.9", b2.Gateway.String())
}

func TestPodCIDRServesThirtyNamespaces(t *testing.T) {
	a := withPools(pool("default", "10.11.2.0/24", "", "", ""))
	for i := range 30 {
		_, b, err := a.Allocate(elan(fmt.Sprint(i)), "default", false, fmt.Sprint(i))
		require.NoError(t, err)
		require.Equal(t, 29, b.Prefix.Bits())
	}
}

func TestBlocksGrowAndUseEveryAddress(t *testing.T) {
	a := withPools(pool("default", "10.0.0.0/24", "", "", ""))
	addrs, blocks := allocateAll(t, a, elan("e"), "default", false)
	require.Equal(t, "[10.0.0.0/29 10.0.0.16/28 10.0.0.32/27 10.0.0.64/26 10.0.0.128/25 10.0.0.8/29]", fmt.Sprint(blocks))
	require.Len(t, addrs, 256-3*6)
}

func TestWholeSubnetOfELAN(t *testing.T) {
	a := withPools(pool("10.0.0.1:x", "10.5.0.0/24", "", "", "10.5.0.254"), pool("default", "10.6.0.0/24", "", "", ""))
	network, found := a.Serving("10.0.0.1:x", "x", "default")
	require.True(t, found)
	require.Equal(t, "10.0.0.1:x", network)
	addrs, blocks := allocateAll(t, a, elan("10.0.0.1:x"), network, false)
	require.Equal(t, "[10.5.0.0/24]", fmt.Sprint(blocks))
	require.Len(t, addrs, 253)
	require.Equal(t, "10.5.0.1", addrs[0].String())
}

func TestPoolsAreUsedInOrder(t *testing.T) {
	a := withPools(pool("default", "10.0.9.0/30", "", "", ""), pool("default", "10.0.1.0/29", "", "", ""), pool("default", "fd00::/64", "", "", ""))
	_, blocks := allocateAll(t, a, elan("e"), "default", false)
	require.Equal(t, "[10.0.9.0/30 10.0.1.0/29]", fmt.Sprint(blocks))
	got, b, err := a.Allocate(elan("e"), "default", true, "v6")
	require.NoError(t, err)
	require.Equal(t, "fd00::2", got.String())
	require.Equal(t, "fd00::/120", b.Prefix.String())
	require.Equal(t, "fd00::1", b.Gateway.String())
}

func TestExhaustedNamesThePool(t *testing.T) {
	a := withPools(specPool())
	allocateAll(t, a, elan("e"), "default", false)
	_, _, err := a.Allocate(elan("other"), "default", false, "x")
	require.EqualError(t, err, `pool "default" has no address left for elan-instance other `+
		`(192.168.10.0/24 has 48, given out in blocks for each node and namespace); widen allocate-from and allocate-to or post a further subnet`)
}

func TestReleasedAddressesAreReusedLast(t *testing.T) {
	a := withPools(pool("default", "10.0.0.0/29", "", "", ""))
	addrs, _ := allocateAll(t, a, elan("e"), "default", false)
	require.Len(t, addrs, 5)
	a.Release("", addrs[3])
	a.Release("", addrs[1])
	for _, want := range []netip.Addr{addrs[3], addrs[1]} {
		got, _, err := a.Allocate(elan("e"), "default", false, "again")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Empty(t, a.Sweep())
	for _, x := range addrs {
		a.Release("", x)
	}
	require.Len(t, a.Sweep(), 1)
	require.Equal(t, dhcppool.State{}, a.State())
	_, b, err := a.Allocate(elan("other"), "default", false, "x")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.0/29", b.Prefix.String())
}

func TestChangedPoolsKeepAddresses(t *testing.T) {
	a := withPools(pool("default", "10.0.0.0/24", "", "", ""))
	first, _, err := a.Allocate(elan("e"), "default", false, "1")
	require.NoError(t, err)
	before := a.State()
	a.SetPools([]dhcppool.Pool{pool("default", "10.0.0.0/16", "10.0.0.4", "", "")})
	require.Equal(t, before, a.State())

	second, b, err := a.Allocate(elan("e"), "default", false, "2")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.8/29", b.Prefix.String(), "the block of the old subnet hands out no more addresses")
	a.Release("", first)
	a.Release("", second)
	require.Len(t, a.Sweep(), 2)
	_, b, err = a.Allocate(elan("e"), "default", false, "3")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.0/29", b.Prefix.String())
	require.Equal(t, "10.0.0.1", b.Gateway.String(), "the new pool's default")
}

func TestClaim(t *testing.T) {
	net24 := netip.MustParsePrefix("10.11.2.0/24")
	for name, c := range map[string]struct {
		address, network string
		nodeNet          netip.Prefix
		prefix, gateway  string
		err              string
	}{
		"from no pool, in the pod-cidr":    {address: "10.11.2.28", nodeNet: net24, prefix: "10.11.2.1/32", gateway: "10.11.2.1"},
		"from no pool, no pod-cidr":        {address: "10.11.2.28", prefix: "169.254.1.1/32", gateway: "169.254.1.1"},
		"from no pool, IPv6":               {address: "fd01::28", prefix: "fe80::1/128", gateway: "fe80::1"},
		"the pod-cidr's first":             {address: "10.11.2.1", nodeNet: net24, prefix: "169.254.1.1/32", gateway: "169.254.1.1"},
		"in a pool, free":                  {address: "10.0.0.100", network: "default", prefix: "10.0.0.96/29", gateway: "10.0.0.97"},
		"in a pool, the block's own first": {address: "10.0.0.97", network: "default", prefix: "10.0.0.96/29", gateway: "10.0.0.98"},
		"in a pool, a block's last":        {address: "10.0.0.103", network: "default", prefix: "169.254.1.1/32", gateway: "169.254.1.1"},
		"in the elan's block":              {address: "10.0.0.5", network: "default", prefix: "10.0.0.0/29", gateway: "10.0.0.1"},
		"in another's block":               {address: "10.0.0.13", network: "default", prefix: "169.254.1.1/32", gateway: "169.254.1.1"},
		"beside the pool's range":          {address: "10.0.0.230", network: "default", prefix: "169.254.1.1/32", gateway: "169.254.1.1"},
		"a block's gateway":                {address: "10.0.0.9", network: "default", err: "is the gateway of block 10.0.0.8/29 of other"},
		"a block's broadcast":              {address: "10.0.0.7", network: "default", err: "network or broadcast"},
		"the subnet's broadcast":           {address: "10.0.0.255", network: "default", err: "network or broadcast"},
		"held":                             {address: "10.0.0.10", network: "default", err: "is held by 2"},
		"loopback":                         {address: "127.0.0.1", err: "loopback"},
		"multicast":                        {address: "224.1.1.1", err: "multicast"},
		"unspecified":                      {address: "::", err: "unspecified"},
		"mapped":                           {address: "::ffff:10.1.1.1", err: "IPv6 form"},
	} {
		t.Run(name, func(t *testing.T) {
			a := withPools(pool("default", "10.0.0.0/24", "", "10.0.0.200", ""))
			_, _, err := a.Allocate(elan("e"), "default", false, "1")
			require.NoError(t, err)
			_, _, err = a.Allocate(elan("other"), "default", false, "2")
			require.NoError(t, err)
			before := a.State()
			b, err := a.Claim(dhcppool.Claim{
				ELAN: elan("e"), Network: c.network, Address: addr(c.address), Owner: "me", NodeNet: c.nodeNet,
			})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, before, a.State())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.prefix, b.Prefix.String())
			require.Equal(t, c.gateway, b.Gateway.String())
			a.Release("", addr(c.address))
			a.Sweep()
			require.Equal(t, before, a.State())
		})
	}
}

func TestClaimedAddressIsNotHandedOut(t *testing.T) {
	a := withPools(pool("default", "10.0.0.0/28", "", "", ""))
	for _, x := range []string{"10.0.0.2", "10.0.0.9"} {
		_, err := a.Claim(dhcppool.Claim{ELAN: elan("single"), Address: addr(x), Owner: x})
		require.NoError(t, err)
	}
	addrs, _ := allocateAll(t, a, elan("e"), "default", false)
	require.Equal(t, "[10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.11 10.0.0.12 10.0.0.13 10.0.0.14]", fmt.Sprint(addrs))
	a.Release("", addr("10.0.0.2"))
	got, _, err := a.Allocate(elan("e"), "default", false, "x")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.2", got.String())
}

func TestClaimMovesToAnotherELAN(t *testing.T) {
	a := withPools(pool("default", "10.0.0.0/24", "", "", ""))
	claim := dhcppool.Claim{ELAN: elan("e1"), Network: "default", Address: addr("10.0.0.4"), Owner: "me"}
	_, err := a.Claim(claim)
	require.NoError(t, err)
	claim.ELAN = elan("e2")
	b, err := a.Claim(claim)
	require.NoError(t, err)
	require.Equal(t, "169.254.1.1/32", b.Prefix.String(), "e1's block exists until it is swept")
	require.Len(t, a.Sweep(), 1)
	require.Len(t, a.State().Held, 1)
}

func TestIsolatedDomains(t *testing.T) {
	a := withPools(pool("a", "10.0.0.0/24", "", "", ""), pool("b", "10.0.0.0/24", "", "", ""), pool("default", "10.1.0.0/24", "", "", ""))
	in := func(ns string) dhcppool.ELAN { return dhcppool.ELAN{Name: "n:" + ns, Domain: ns} }
	_, b1, err := a.Allocate(in("a"), "a", false, "1")
	require.NoError(t, err)
	_, b2, err := a.Allocate(in("b"), "b", false, "2")
	require.NoError(t, err)
	require.Equal(t, b1.Prefix, b2.Prefix, "pools of two networks may overlap if namespaces are isolated")
	_, b3, err := a.Allocate(in("c"), "default", false, "3")
	require.NoError(t, err)
	_, b4, err := a.Allocate(in("d"), "default", false, "4")
	require.NoError(t, err)
	require.NotEqual(t, b3.Prefix, b4.Prefix, "blocks of one pool differ")
}

func TestAllocateSingle(t *testing.T) {
	a := withPools(pool("services", "10.96.0.0/29", "", "", ""))
	_, err := a.Claim(dhcppool.Claim{ELAN: elan("e"), Address: addr("10.96.0.3"), Owner: "pod"})
	require.NoError(t, err)
	var got []string
	for i := range 4 {
		x, err := a.AllocateSingle("", "services", fmt.Sprint(i))
		require.NoError(t, err)
		got = append(got, x.String())
	}
	require.Equal(t, []string{"10.96.0.2", "10.96.0.4", "10.96.0.5", "10.96.0.6"}, got)
	_, err = a.AllocateSingle("", "services", "x")
	require.ErrorContains(t, err, `pool "services" has no address left`)
	a.Release("", addr("10.96.0.4"))
	x, err := a.AllocateSingle("", "services", "x")
	require.NoError(t, err)
	require.Equal(t, "10.96.0.4", x.String())
}

func TestRestoreRefuses(t *testing.T) {
	a := withPools(specPool())
	block := dhcppool.Block{ELAN: elan("e"), Prefix: netip.MustParsePrefix("10.0.0.0/29"), Gateway: addr("10.0.0.1"), Network: "gone", Subnet: netip.MustParsePrefix("10.0.0.0/24")}
	require.NoError(t, a.RestoreBlock(block))
	require.ErrorContains(t, a.RestoreBlock(block), "exists already")
	block.ELAN, block.Prefix = elan("f"), netip.MustParsePrefix("10.0.0.0/28")
	require.ErrorContains(t, a.RestoreBlock(block), "overlaps block 10.0.0.0/29 of e")
	held := dhcppool.Held{Address: addr("10.0.0.2"), Owner: "o", ELAN: "e", Prefix: netip.MustParsePrefix("10.0.0.0/29")}
	require.NoError(t, a.RestoreAddress(held))
	require.ErrorContains(t, a.RestoreAddress(held), "held by o")
	held.Address, held.ELAN = addr("10.0.0.3"), "f"
	require.ErrorContains(t, a.RestoreAddress(held), "f has no block")
}

func TestIDs(t *testing.T) {
	ids := dhcppool.NewIDs(2, 4)
	require.NoError(t, ids.Restore("old", 3))
	require.Error(t, ids.Restore("other", 3))
	require.Error(t, ids.Restore("old", 4))
	get := func(name string, want uint32) {
		t.Helper()
		id, found := ids.Get(name)
		require.True(t, found)
		require.Equal(t, want, id)
	}
	get("a", 2)
	get("b", 4)
	get("a", 2)
	_, found := ids.Get("c")
	require.False(t, found)
	ids.Release("old")
	ids.Release("a")
	get("c", 3)
	get("d", 2)
	require.Equal(t, map[string]uint32{"b": 4, "c": 3, "d": 2}, ids.State())
}

func BenchmarkAllocate(b *testing.B) {
	a := withPools(pool("default", "10.0.0.0/8", "", "", ""))
	elans := make([]dhcppool.ELAN, 2000)
	for i := range elans {
		elans[i] = elan(fmt.Sprint(i))
	}
	i := 0
	for b.Loop() {
		_, _, err := a.Allocate(elans[i%len(elans)], "default", false, "o")
		require.NoError(b, err)
		i++
	}
}

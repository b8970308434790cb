package policyroute

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

func twice(t *testing.T, do func() (bool, error)) {
	t.Helper()
	for _, want := range []bool{true, false} {
		changed, err := do()
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
}

// TestTables: the kernel chooses the number of the routing table of a link. A link that comes
// back has another table, and what an earlier release has left goes.
func TestTables(t *testing.T) {
	ns, run := namespace.WithShell(t)
	router := netip.MustParseAddr("100.96.0.1")
	routers := map[string]netip.Addr{"one": router, "two": router, "missing": router}
	create := func(links ...string) {
		for _, link := range links {
			run("ip link add " + link + " type veth peer name peer-" + link + "; ip link set " + link + " up")
		}
	}
	tables := func() (all []int) {
		for _, link := range []string{"one", "two"} {
			index, err := strconv.Atoi(strings.TrimSpace(run("ip -o link show " + link + " | cut -d: -f1")))
			require.NoError(t, err)
			table := strconv.Itoa(firstTable + index)
			require.Contains(t, run("ip rule"), "iif "+link+" lookup "+table)
			require.Contains(t, run("ip route show table "+table), "default via 100.96.0.1 dev "+link)
			all = append(all, index)
		}
		require.Equal(t, 2, strings.Count(run("ip rule"), "207:"))
		require.Equal(t, 2, strings.Count(run("ip route show table all"), "default via 100.96.0.1"))
		return all
	}
	run("ip link set lo up")
	create("one", "two")
	run("ip route add default via 100.96.0.1 dev one onlink proto 206 table 1900000000" +
		"; ip rule add iif one table 1900000000 priority 207 protocol 206; ip route add default via 100.96.0.1 dev one onlink table 1900000001")
	twice(t, func() (bool, error) { return Put(ns, routers) })
	require.Contains(t, run("ip route show table 1900000001"), "default", "of others")
	run("ip route flush table 1900000001")
	before := tables()
	require.NotEqual(t, before[0], before[1])

	run("ip link del one")
	create("one")
	twice(t, func() (bool, error) { return Put(ns, routers) })
	require.NotEqual(t, before[0], tables()[0])
}

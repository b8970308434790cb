package access

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBudgets(t *testing.T) {
	at := time.Unix(1000, 0)
	f := newFailures(addressBudget)
	here, there := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	for range pairBudget.burst {
		require.Zero(t, f.wait(here, "ann", at))
		f.failed(here, "ann", at)
	}
	require.Equal(t, pairBudget.every, f.wait(here, "ann", at))
	require.Zero(t, f.wait(there, "ann", at))
	require.Zero(t, f.wait(here, "bob", at))
	require.Equal(t, time.Second, f.wait(here, "ann", at.Add(pairBudget.every-time.Second)))
	require.Zero(t, f.wait(here, "ann", at.Add(pairBudget.every)))
	f.failed(here, "ann", at.Add(pairBudget.every))
	require.Equal(t, pairBudget.every, f.wait(here, "ann", at.Add(pairBudget.every)))

	// Attempts with other names use up the address's allowance, except for names that logged in from it.
	f.succeeded(here, "cy")
	for i := range addressBudget.burst {
		f.failed(here, fmt.Sprint(i), at)
	}
	require.Positive(t, f.wait(here, "bob", at))
	require.Zero(t, f.wait(here, "cy", at))
	require.Zero(t, f.wait(there, "bob", at))

	// Other addresses use up what a user has.
	for i := range userBudget.burst {
		f.failed(netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32), "dan", at)
	}
	require.Positive(t, f.wait(there, "dan", at))
	require.Zero(t, f.wait(there, "bob", at))
	require.Zero(t, f.wait(there, "dan", at.Add(time.Hour)))
}

// However many names and addresses fail, what is kept is bounded; and who fails
// again and again stays in it.
func TestFailuresAreBounded(t *testing.T) {
	f := newFailures(addressBudget)
	at := time.Unix(1000, 0)
	guesser := netip.MustParsePrefix("192.0.2.1/32")
	for i := range 10 * maxTracked {
		if i%(maxTracked/2) == 0 {
			f.failed(guesser, "ann", at)
		}
		from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		f.failed(from, fmt.Sprint("name", i), at)
		f.succeeded(from, fmt.Sprint("name", i))
	}
	for _, kept := range []recent[uint64, time.Time]{f.pairs, f.addrs, f.users} {
		require.LessOrEqual(t, len(kept.young)+len(kept.old), 2*maxTracked)
	}
	require.LessOrEqual(t, len(f.succeededFrom.young)+len(f.succeededFrom.old), 2*maxTracked)
	require.Positive(t, f.wait(guesser, "ann", at))
}

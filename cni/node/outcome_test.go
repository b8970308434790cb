package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// A failure of one egress address fails neither the others nor the connection of the node.
func TestOutcomeOfWays(t *testing.T) {
	var o outcome
	broken := errors.New("broken")
	require.True(t, o.step("coeg1-2", "link", func() (bool, error) { return true, nil }))
	require.False(t, o.step("coeg2-2", "link", func() (bool, error) { return false, broken }))
	o.note("coeg2-2", "port", true, nil)
	require.NoError(t, o.err)
	require.Equal(t, map[string]error{"coeg2-2": errors.Join(broken)}, o.ways)
	require.ErrorIs(t, o.ofWays(), broken)
	require.Equal(t, []string{"link", "port"}, o.changes)
	o.note(portName, "port", true, broken)
	require.ErrorIs(t, o.err, broken)
}

// While OpenDaylight is away, the first pod of a namespace on a node does not disconnect the node, whose other ports forward.
func TestPortsThatWait(t *testing.T) {
	all := []pair{{link: linkName}, {link: "a"}, {link: "b"}}
	for _, c := range []struct {
		pairs        []pair
		waiting      []string
		disconnected bool
	}{
		{all, nil, false},
		{all, []string{"b"}, false},
		{all, []string{"a", "b"}, false},
		{all, []string{linkName}, true},
		{all[1:], []string{"b"}, false},
		{all[1:], []string{"a", "b"}, true},
		{nil, nil, false},
	} {
		t.Run(fmt.Sprintf("%d pairs, %q wait", len(c.pairs), c.waiting), func(t *testing.T) {
			var o outcome
			o.putPorts(c.pairs, func(p pair) (bool, error) {
				if slices.Contains(c.waiting, p.link) {
					return false, fmt.Errorf("add port: %w", ovs.ErrWaits)
				}
				return true, nil
			})
			require.Equal(t, c.disconnected, o.err != nil)
			require.Equal(t, len(c.waiting) > 0, errors.Is(errors.Join(o.err, o.waits), ovs.ErrWaits), "it is tried again")
		})
	}
}

func TestSooner(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 1, 1}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		require.Equal(t, c.want, sooner(c.a, c.b))
	}
}

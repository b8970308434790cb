package agent

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// Calls at the same time do not get the same host port. A lock that was taken last is released first.
func TestClaims(t *testing.T) {
	var all claims
	of := func(name string, number uint16) plan {
		return plan{
			at:   &attachment{pod: pod{namespace: "shop", name: name}},
			port: vif.Port{Name: name, HostPorts: []vif.HostPort{{Address: netip.IPv4Unspecified(), Protocol: "tcp", Number: number, Pod: 80}}},
		}
	}
	release, err := all.take(of("a", 8000))
	require.NoError(t, err)
	_, err = all.take(of("b", 8000))
	require.ErrorContains(t, err, "host port tcp 0.0.0.0:8000 belongs to pod shop/a")
	_, err = all.take(of("c", 8001))
	require.NoError(t, err)
	release()
	_, err = all.take(of("b", 8000))
	require.NoError(t, err)

	var order []int
	var u undo
	u.hold(func() { order = append(order, 1) })
	u.hold(func() { order = append(order, 2) })
	u.end()
	require.Equal(t, []int{2, 1}, order)
}

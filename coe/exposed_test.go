package coe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestPortRange(t *testing.T) {
	r, err := coe.ParsePortRange("30000-32767")
	require.NoError(t, err)
	require.Equal(t, "30000-32767", r.String())
	for port, in := range map[uint16]bool{0: false, 29999: false, 30000: true, 32767: true, 32768: false} {
		require.Equal(t, in, r.Contains(port), port)
	}
	require.False(t, coe.PortRange{}.Contains(0))
	require.Equal(t, "(none)", coe.PortRange{}.String())
	for _, bad := range []string{"", "30000", "0-1", "2-1", "1-65536", "1-2x", " 1-2", "01-2", "1 - 2", "-1-2"} {
		_, err := coe.ParsePortRange(bad)
		require.ErrorContains(t, err, "two ports in ascending order", "%q", bad)
	}
}

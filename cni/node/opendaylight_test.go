package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControllersOf(t *testing.T) {
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")},
		controllersOf([]string{"ssl:[2001:db8::5]:6640", "tcp:192.0.2.5:6640", "tcp:192.0.2.5:16640", "tcp:odl.example:6640"}))
}

// Ports of OpenDaylight in elan-instances without interfaces are unused, unless a wanted pair needs the port or the link.
func TestUnusedPorts(t *testing.T) {
	ends := map[string]string{
		"tap00000001-01": linkOf("gone"), "tap00000002-02": linkOf("used"), "tap00000003-03": linkOf("renamed"),
		"tap00000004-04": linkName, "tap00000005-05": "", portOf("ovn"): linkOf("ovn"),
	}
	pairs := []pair{{port: "tap00000002-02", link: linkOf("used")}, {port: "tap00000006-06", link: linkOf("renamed")}}
	require.Equal(t, []string{"tap00000001-01"}, unusedPorts(ends, pairs))
}

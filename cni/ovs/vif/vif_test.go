package vif_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

func TestPortOf(t *testing.T) {
	want := vif.Port{
		Name: "coe1", Interface: "if", PodUID: "uid", MAC: "0a:00:00:00:00:01", DefaultGateway: "false",
		Addresses:  []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
		Attachment: vif.Attachment{Network: "coe", Container: "c", IfName: "eth0", Netns: "/run/netns/c"},
		HostPorts: []vif.HostPort{
			{Address: netip.IPv4Unspecified(), Protocol: "tcp", Number: 8080, Pod: 80},
			{Address: netip.MustParseAddr("fd00::1"), Protocol: "udp", Number: 53, Pod: 5353},
		},
	}
	ids := want.ExternalIDs()
	got, ours := vif.PortOf(want.Name, ids)
	require.True(t, ours)
	require.Equal(t, want, got)
	require.True(t, vif.IsOf(ids, want.Attachment))
	require.False(t, vif.IsOf(ids, vif.Attachment{Container: "c", IfName: "net1"}))

	ids[vif.KeyHostPorts] += " udp/x tcp/0.0.0.0/0/80 ip/0.0.0.0/1/1"
	got, _ = vif.PortOf(want.Name, ids)
	require.Equal(t, want.HostPorts, got.HostPorts, "the others count")
	require.Equal(t, []string{"udp/x", "tcp/0.0.0.0/0/80", "ip/0.0.0.0/1/1"}, got.Unreadable)

	_, ours = vif.PortOf("eth1", map[string]string{vif.KeyInterface: "if"})
	require.False(t, ours)
}

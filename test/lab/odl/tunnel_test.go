package odl

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

func TestWithoutTunnel(t *testing.T) {
	hosts := []*ovnhost.Host{
		{Name: "host1", Address: netip.MustParseAddr("172.31.99.11")},
		{Name: "host2", Address: netip.MustParseAddr("172.31.99.12")},
	}
	var tunnels []tunnel
	require.NoError(t, json.Unmarshal([]byte(`[
		{"oper-state": "up", "src-info": {"tep-ip": "172.31.99.11"}, "dst-info": {"tep-ip": "172.31.99.12"}},
		{"oper-state": "down", "src-info": {"tep-ip": "172.31.99.12"}, "dst-info": {"tep-ip": "172.31.99.11"}}
	]`), &tunnels))
	require.Equal(t, []string{"host2 to host1: it is down"}, withoutTunnel(hosts, tunnels))
	require.Equal(t, []string{"host2 to host1"}, withoutTunnel(hosts, tunnels[:1]))
	tunnels[1].State = "up"
	require.Empty(t, withoutTunnel(hosts, tunnels))
}

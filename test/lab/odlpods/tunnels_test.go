package odlpods_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestTunnelsOnRealOpenDaylight connects seven switches at the same time. All get tunnels to all. A node that has lost its tunnels gets
// them again when its switch connects again, as docs/opendaylight.md tells operators.
func TestTunnelsOnRealOpenDaylight(t *testing.T) {
	odl.SkipUnlessAsked(t)
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			c := odl.Alone(t, release, "host1", "host2", "host3", "host4", "host5", "host6", "host7")
			lab, err := odlpods.New(t.Context(), odlpods.Config{Controller: c, Bin: odlpods.Programs(t), CallDeadline: time.Minute})
			require.NoError(t, err)
			require.NoError(t, lab.StartBridge(t.Context(), "none"))
			require.NoError(t, lab.ApplyNodes(t.Context()))
			require.NoError(t, lab.StartAgents(t.Context()))
			require.NoError(t, lab.AwaitNetwork(t.Context()))

			host := lab.Hosts[0]
			removeTunnels(t, c, host)
			_, err = host.VSCtl(t.Context(), "del-manager") // the agent restores it
			require.NoError(t, err)
			require.NoError(t, lab.AwaitNetwork(t.Context()))
		})
	}
}

// removeTunnels removes the tunnels of a host from the configuration of its switch in OpenDaylight, and waits until the switch has none.
func removeTunnels(t *testing.T, c *odl.Controller, host *ovnhost.Host) {
	t.Helper()
	const switches = "/restconf/config/network-topology:network-topology/topology/ovsdb:1"
	status, answer, err := c.Request(t.Context(), http.MethodGet, switches, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	type option struct{ Option, Value string }
	var all struct {
		Topology []struct {
			Node []struct {
				ID    string `json:"node-id"`
				Ports []struct {
					ID      string   `json:"tp-id"`
					Options []option `json:"ovsdb:options"`
				} `json:"termination-point"`
			} `json:"node"`
		} `json:"topology"`
	}
	require.NoError(t, json.Unmarshal(answer, &all))
	removed := 0
	for _, node := range all.Topology[0].Node {
		for _, port := range node.Ports {
			if !slices.Contains(port.Options, option{"local_ip", host.Address.String()}) {
				continue
			}
			path := switches + "/node/" + url.QueryEscape(node.ID) + "/termination-point/" + url.QueryEscape(port.ID)
			status, answer, err := c.Request(t.Context(), http.MethodDelete, path, "")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "%s", answer)
			removed++
		}
	}
	require.NotZero(t, removed)
	require.NoError(t, odlpods.Await(t.Context(), func(ctx context.Context) error {
		names, err := host.VSCtl(ctx, "--bare", "--columns=name", "find", "Interface", "type=vxlan")
		if err == nil && strings.TrimSpace(names) != "" {
			err = errors.New("the switch has tunnels: " + names)
		}
		return err
	}))
}

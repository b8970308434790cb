package preview_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestJoined: Joined names the groups that have an interface's port in Rows, and sets with one of its
// addresses.
func TestJoined(t *testing.T) {
	for seed := range uint64(8) {
		w := backendtest.NewWorld(seed)
		for range 30 {
			w.Step()
		}
		w.Join()
		model := w.Model()
		database, err := preview.New(model, codec.LayoutELAN)
		require.NoError(t, err)
		rows := database.Rows()
		ports := map[string]preview.Row{}
		for _, r := range rows {
			if r.Table == "Logical_Switch_Port" {
				ports[r.Name] = r
			}
		}
		for k := range model {
			if k.Kind != netvirt.KindInterface {
				continue
			}
			joined := database.Joined(k.Name)
			for _, r := range rows {
				members, _ := r.Columns["ports"].([]string)
				switch {
				case r.Table == "Port_Group":
					require.Equal(t, slices.Contains(members, ports[k.Name].UUID), slices.Contains(joined, r.UUID), "%s in %s", k, r.Name)
				case r.Table == "Address_Set" && slices.Contains(joined, r.UUID):
					require.NotEmpty(t, r.Columns["addresses"], "%s in %s", k, r.Name)
				}
			}
		}
	}
}

// TestRows: rows are named and sorted for people, and New refuses a model with a dangling
// reference.
func TestRows(t *testing.T) {
	m := netvirt.Model{}
	m.Add(
		netvirt.Transit{RouteTarget: "100:1"}, netvirt.Node{Address: netip.MustParseAddr("192.0.2.1")},
		netvirt.VPNInstance{Name: "default", Namespace: "default", RouteDistinguisher: "100:2", Transit: "100:1"},
		netvirt.ELANInstance{Name: "192.0.2.1:default", SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.Subnet{
			ELAN: "192.0.2.1:default", VPN: "default", Prefix: netip.MustParsePrefix("10.11.2.0/29"), Gateway: netip.MustParseAddr("10.11.2.1"),
		},
	)
	database, err := preview.New(m, codec.LayoutELAN)
	require.NoError(t, err)
	rows := database.Rows()
	var listed []string
	for _, r := range rows {
		listed = append(listed, r.Table+": "+r.Name)
		if ids, marked := r.Columns["external_ids"].(map[string]string); marked {
			require.Equal(t, "coe-bridge", ids["coe-bridge/owner"])
		}
	}
	require.Equal(t, []string{
		"Logical_Switch: 192.0.2.1:default",
		"Logical_Switch_Port: switch:192.0.2.1:default/10.11.2.0/29",
		"Logical_Router: default", "Logical_Router: transit:100:1",
		"Logical_Router_Port: router:192.0.2.1:default/10.11.2.0/29",
		"Logical_Router_Port: router:default:from-transit", "Logical_Router_Port: router:default:to-transit",
		"Logical_Router_Static_Route: 0.0.0.0/0 router:default:to-transit",
		"Logical_Router_Static_Route: 10.11.2.0/29 router:default:from-transit",
		"Logical_Router_Static_Route: ::/0 router:default:to-transit",
		"Load_Balancer_Group: coe-bridge/elsewhere/100:1", "Load_Balancer_Group: coe-bridge/node/192.0.2.1/",
		"Load_Balancer_Group: coe-bridge/transit/100:1", "Load_Balancer_Group: coe-bridge/vpn/default",
		"DHCP_Options: 10.11.2.0/29",
	}, listed)
	require.Equal(t, []string{rows[1].UUID}, rows[0].Columns["ports"])

	delete(m, netvirt.Key{Kind: netvirt.KindVPNInstance, Name: "default"})
	_, err = preview.New(m, codec.LayoutELAN)
	require.ErrorContains(t, err, "refers to vpn-instance default, which is not in the model")
}

// A port has flows for each IPv6 address, also for one that is written without "::".
func TestLogicalFlowsOfIPv6(t *testing.T) {
	of := func(addresses string) int {
		return preview.LogicalFlows([]preview.Row{{Table: nb.LogicalSwitchPortTable, Columns: map[string]any{"addresses": []string{addresses}}}})
	}
	const mac = "0a:58:0a:0b:00:02"
	require.Equal(t, of(mac+" 10.11.0.2 fd00:10::2"), of(mac+" 10.11.0.2 fd00:10:1:2:3:4:5:6"))
	require.Greater(t, of(mac+" fd00:10:1:2:3:4:5:6"), of(mac+" 10.11.0.2"))
}

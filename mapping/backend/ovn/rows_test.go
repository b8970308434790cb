package ovn_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestRowsMatchWrite: Rows returns exactly the rows that a database has after Write,
// column by column.
func TestRowsMatchWrite(t *testing.T) {
	server := ovsdb.Start(t)
	for seed := range uint64(8) {
		server.Wipe(t)
		owner := fmt.Sprintf("owner-%d", seed)
		layout := []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode}[seed%2]
		b := open(t, server, func(c *ovn.Config) { c.Owner, c.Layout = owner, layout })
		w := backendtest.NewWorld(seed)
		for range 30 {
			w.Step()
		}
		model := w.ModelFor(b)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, model)))

		preview, err := ovn.Preview(model, owner, layout)
		require.NoError(t, err)
		rows := preview.Rows()
		predicted := map[string]map[string]any{}
		for _, r := range rows {
			columns := map[string]any{}
			for name, value := range r.Columns {
				columns[name] = plain(t, asJSON(t, value))
			}
			predicted[r.Table+" "+r.UUID] = columns
		}
		require.Len(t, predicted, len(rows), "each row is listed once")
		require.Equal(t, written(t, server), predicted)
		b.Close()
	}
}

// written returns all rows of the database, with the columns that are not empty.
func written(t *testing.T, server *ovsdb.Server) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, name := range tables {
		out, err := exec.Command("ovsdb-client", "--timeout=10", "--format=json", "dump", server.Endpoint(), "OVN_Northbound", name).Output()
		require.NoError(t, err)
		var dump struct {
			Headings []string `json:"headings"`
			Data     [][]any  `json:"data"`
		}
		require.NoError(t, json.Unmarshal(out, &dump))
		for _, cells := range dump.Data {
			columns := map[string]any{}
			for i, cell := range cells {
				if value := plain(t, cell); value != nil {
					columns[dump.Headings[i]] = value
				}
			}
			uuid := columns["_uuid"].([]string)[0]
			delete(columns, "_uuid")
			all[name+" "+uuid] = columns
		}
	}
	return all
}

// plain converts a value of OVSDB (RFC 7047, section 5.1) or of our own JSON to a
// comparable form: a bool, a number, a sorted []string or a map; nil for an empty value.
func plain(t *testing.T, value any) any {
	t.Helper()
	switch v := value.(type) {
	case bool:
		if v {
			return v
		}
	case float64:
		if v != 0 {
			return v
		}
	case string:
		if v != "" {
			return []string{v}
		}
	case map[string]any:
		return v
	case []any:
		return plainList(t, v)
	default:
		require.Failf(t, "unexpected type", "%T %v", value, value)
	}
	return nil
}

func plainList(t *testing.T, v []any) any {
	t.Helper()
	switch {
	case len(v) == 2 && v[0] == "uuid":
		return []string{v[1].(string)}
	case len(v) == 2 && v[0] == "set":
		return plainList(t, v[1].([]any))
	case len(v) == 2 && v[0] == "map":
		m := map[string]any{}
		for _, pair := range v[1].([]any) {
			m[pair.([]any)[0].(string)] = pair.([]any)[1]
		}
		if len(m) == 0 {
			return nil
		}
		return m
	}
	var set []string
	for _, e := range v {
		set = append(set, plain(t, e).([]string)...)
	}
	if set == nil {
		return nil
	}
	slices.Sort(set)
	return set
}

func asJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	var out any
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

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
		preview, err := ovn.Preview(model, "", ovn.LayoutELAN)
		require.NoError(t, err)
		rows := preview.Rows()
		ports := map[string]ovn.Row{}
		for _, r := range rows {
			if r.Table == "Logical_Switch_Port" {
				ports[r.Name] = r
			}
		}
		for k := range model {
			if k.Kind != netvirt.KindInterface {
				continue
			}
			joined := preview.Joined(k.Name)
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

// TestRows: rows are named and sorted for people, and Preview refuses a model with a dangling
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
	preview, err := ovn.Preview(m, "", ovn.LayoutELAN)
	require.NoError(t, err)
	rows := preview.Rows()
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
	_, err = ovn.Preview(m, "", ovn.LayoutELAN)
	require.ErrorContains(t, err, "it refers to vpn-instance default, which is not in the database")
}

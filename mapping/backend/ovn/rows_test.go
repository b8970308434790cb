package ovn_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestRowsMatchWrite: package preview lists exactly the rows that a database has after Write,
// column by column.
func TestRowsMatchWrite(t *testing.T) {
	server := ovsdb.Start(t)
	for seed := range uint64(8) {
		server.Wipe(t)
		layout := []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode}[seed%2]
		b := open(t, server, func(c *ovn.Config) { c.Layout = layout })
		w := backendtest.NewWorld(seed)
		for range 30 {
			w.Step()
		}
		model := w.ModelFor(b)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, model)))

		expected, err := preview.New(model, layout)
		require.NoError(t, err)
		rows := expected.Rows()
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

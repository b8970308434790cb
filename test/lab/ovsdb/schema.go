package ovsdb

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// northbound is the name of the northbound schema.
const northbound = "ovn/ovn-nb"

// Schema returns the path of a schema, for example openvswitch/vswitch. It is of the same installation as the ovsdb-tool in PATH.
func Schema(name string) string {
	root := "/usr"
	if tool, err := exec.LookPath("ovsdb-tool"); err == nil {
		if bin, err := filepath.EvalSymlinks(filepath.Dir(tool)); err == nil { // /bin is a link to /usr/bin
			root = filepath.Dir(bin)
		}
	}
	return filepath.Join(root, "share", name+".ovsschema")
}

// ChangedSchema returns the path of the installed northbound schema after a change of its tables, for Server.Convert.
func ChangedSchema(t testing.TB, change func(tables map[string]any)) string {
	t.Helper()
	text, err := os.ReadFile(Schema(northbound))
	require.NoError(t, err)
	var schema map[string]any
	require.NoError(t, json.Unmarshal(text, &schema))
	delete(schema, "cksum")
	schema["version"] = "99.0.0"
	tables, ok := schema["tables"].(map[string]any)
	require.True(t, ok)
	change(tables)
	text, err = json.Marshal(schema)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "nb.ovsschema")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// ColumnsOf returns the columns of a table of a schema. It panics without such a table.
func ColumnsOf(tables map[string]any, table string) map[string]any {
	return tables[table].(map[string]any)["columns"].(map[string]any)
}

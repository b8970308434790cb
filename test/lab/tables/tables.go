// Package tables checks the Go structs that are generated from the schema of an OVSDB database, and
// writes them with the flag -update.
package tables

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/modelgen"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the structs of the tables")

// RequireGenerated requires that the working directory has the structs of every table of the
// schema in a file there, and that the model has these tables and no others.
func RequireGenerated(t *testing.T, packageName, schemaFile string, model model.ClientDBModel) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	var schema ovsdb.DatabaseSchema
	require.NoError(t, json.Unmarshal(text, &schema))
	require.Equal(t, schema.Name, model.Name())
	require.ElementsMatch(t, slices.Collect(maps.Keys(schema.Tables)), slices.Collect(maps.Keys(model.Types())))

	dir := t.TempDir()
	if *update {
		dir = "."
	}
	generator, err := modelgen.NewGenerator()
	require.NoError(t, err)
	for name, table := range schema.Tables {
		args := modelgen.GetTableTemplateData(packageName, name, &table)
		file := modelgen.FileName(name)
		require.NoError(t, generator.Generate(filepath.Join(dir, file), modelgen.NewTableTemplate(), args))
		want, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "%s is out of date: run go generate in its folder", file)
	}
}

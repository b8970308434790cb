package nb_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/modelgen"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"
)

// TestGenerated compares the generated files with the files that go generate would write
// from the schema.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("ovn-nb.ovsschema")
	require.NoError(t, err)
	var schema ovsdb.DatabaseSchema
	require.NoError(t, json.Unmarshal(text, &schema))

	dir := t.TempDir()
	generator, err := modelgen.NewGenerator()
	require.NoError(t, err)
	files := []string{"model.go"}
	for name, table := range schema.Tables {
		args := modelgen.GetTableTemplateData("nb", name, &table)
		file := modelgen.FileName(name)
		require.NoError(t, generator.Generate(filepath.Join(dir, file), modelgen.NewTableTemplate(), args))
		files = append(files, file)
	}
	require.NoError(t, generator.Generate(filepath.Join(dir, "model.go"),
		modelgen.NewDBTemplate(), modelgen.GetDBTemplateData("nb", schema)))

	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "%s is out of date: run go generate ./mapping/backend/ovn/nb", file)
	}
}

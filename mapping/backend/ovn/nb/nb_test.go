package nb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/test/lab/tables"
)

// TestGenerated checks that the generated files match the schema.
func TestGenerated(t *testing.T) {
	model, err := nb.FullDatabaseModel()
	require.NoError(t, err)
	tables.RequireGenerated(t, "nb", "ovn-nb.ovsschema", model)
}

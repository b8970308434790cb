package vswitch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
	"github.com/coe-bridge/coe-bridge/test/lab/tables"
)

// TestGenerated checks that the generated files match the schema.
func TestGenerated(t *testing.T) {
	model, err := vswitch.FullDatabaseModel()
	require.NoError(t, err)
	tables.RequireGenerated(t, "vswitch", "vswitch.ovsschema", model)
}

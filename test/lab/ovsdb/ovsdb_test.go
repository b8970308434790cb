package ovsdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

func TestServer(t *testing.T) {
	s := ovsdb.Start(t)
	s.NBCtl(t, "ls-add", "one")
	before := s.Dump(t, "Logical_Switch", "Logical_Router")
	require.Contains(t, before, "one")

	s.Restart(t)
	require.Equal(t, before, s.Dump(t, "Logical_Switch", "Logical_Router"))

	s.Stop(t)
	s.Continue(t)
	s.Wipe(t)
	require.NotContains(t, s.Dump(t, "Logical_Switch"), "one")
}

package ovsdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

func TestServer(t *testing.T) {
	s := ovsdb.Start(t)
	s.NBCtl(t, "ls-add", "one")
	before := s.Dump(t, "Logical_Switch", "Logical_Router")
	require.Contains(t, before, "one")

	empty, begun := s.Journal(t), time.Now().Truncate(time.Millisecond)
	s.NBCtl(t, "ls-add", "two")
	last, err := empty.Last()
	require.NoError(t, err)
	require.False(t, last.Before(begun) || last.After(time.Now()), last)
	before = s.Dump(t, "Logical_Switch", "Logical_Router")

	s.Restart(t)
	require.Equal(t, before, s.Dump(t, "Logical_Switch", "Logical_Router"))

	s.Stop(t)
	s.Continue(t)
	s.Wipe(t)
	require.NotContains(t, s.Dump(t, "Logical_Switch"), "one")
}

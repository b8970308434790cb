package reads

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSessions(t *testing.T) {
	var r Sessions[string]
	require.False(t, r.Ended("a"), "nothing was read")
	r.Used("a")
	require.False(t, r.Ended("a"))
	require.True(t, r.Ended(""), "the session has ended")
	require.False(t, r.Ended(""), "reported once")

	r.Used("a")
	r.Used("b")
	require.True(t, r.Ended("b"), "the caller of the first Read relies on the session a")
	require.False(t, r.Ended("b"))
}

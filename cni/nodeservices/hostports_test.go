package nodeservices

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCallsForHostPorts: a check answers the calls that waited when it began. The next one answers the others, which need it.
func TestCallsForHostPorts(t *testing.T) {
	h := hostPorts{asked: make(chan struct{}, 1)}
	first, second := make(chan error, 1), make(chan error, 1)
	h.ask(first)
	require.Len(t, h.asked, 1)
	h.begin()
	require.Empty(t, h.asked)
	h.ask(second)
	h.failure = nil
	h.end()
	require.NoError(t, <-first)
	require.Empty(t, second)
	require.Len(t, h.asked, 1)
	h.begin()
	h.end()
	require.ErrorContains(t, <-second, "the node is not connected to the pod network")
	require.Empty(t, h.asked)
}

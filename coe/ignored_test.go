package coe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Every setting has a text, and all texts together fit into an Event.
func TestIgnoredTexts(t *testing.T) {
	require.Empty(t, coe.Ignored(0).String())
	all := map[string]bool{}
	for flag := coe.HostPort; flag <= coe.HealthCheck; flag <<= 1 {
		all[flag.String()] = true
	}
	require.Len(t, all, 12)
	require.NotContains(t, all, "")
	whole := (coe.HealthCheck<<1 - 1).String()
	require.Equal(t, 11, strings.Count(whole, "; "))
	require.Less(t, len(whole), 1024)
}

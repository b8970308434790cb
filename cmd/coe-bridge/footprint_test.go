package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/footprint"
)

// The pages of the program that nobody uses any more go from memory, and the program
// goes on.
func TestReleaseProgram(t *testing.T) {
	before := residentProgram(t)
	require.NoError(t, footprint.ReleaseProgram())
	require.Less(t, residentProgram(t), before*3/4, "of %d kB", before)
	_, err := run(t, "", "version")
	require.NoError(t, err)
}

// residentProgram is how much of its files this process has in memory, in kB.
func residentProgram(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "RssFile:")
	require.True(t, found)
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kilobytes
}

package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSampleOfLayout: upgrade.md shows what the program prints in a test of its own.
func TestSampleOfLayout(t *testing.T) {
	printed, err := os.ReadFile(filepath.Join("..", "..", "cmd", "coe-bridge", "testdata", "plan", "layout-node.txt"))
	require.NoError(t, err)
	shown, err := os.ReadFile(filepath.Join("..", "..", "docs", "upgrade.md"))
	require.NoError(t, err)
	require.Contains(t, string(shown), "\n```\n"+string(printed)+"```\n")
}

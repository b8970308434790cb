package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "", "a longer one"} {
		require.NoError(t, Write(path, []byte(content), 0o600))
		has, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(has))
	}
	is, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), is.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}

// A file that cannot be replaced stays unchanged, and no other file is left.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	require.Error(t, Write(filepath.Join(dir, "none", "file"), nil, 0o600))
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.Mkdir(taken, 0o700))
	require.Error(t, Write(taken, []byte("x"), 0o600))
	require.DirExists(t, taken)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestClean(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Clean(filepath.Join(dir, "none")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, tempPrefix+"1"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
	require.NoError(t, Clean(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "kept", entries[0].Name())
}

package files

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// TestSettle: a file in progress is loaded when two checks find the same content.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "one")
	var taken []string
	f := New("test", slog.New(slog.DiscardHandler))
	require.NoError(t, f.Follow(Set{Flag: "x", Paths: []string{path}, Load: func(contents [][]byte) error {
		taken = append(taken, string(contents[0]))
		return nil
	}}))
	for _, growing := range []string{"t", "tw", "two"} {
		write(t, path, growing)
		f.Look()
	}
	require.Equal(t, []string{"one"}, taken)
	f.Look()
	f.Look()
	require.Equal(t, []string{"one", "two"}, taken)
	write(t, path, strings.Repeat("x", maxFile+1))
	f.Look()
	f.Look()
	require.Equal(t, []string{"one", "two"}, taken, "the file is too large")
}

package bridgetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// AuthFile writes a file for --auth-file, and returns its path. Each user's password is the user's name;
// roles has the roles.
func AuthFile(t testing.TB, roles map[string]string) (path string) {
	t.Helper()
	var lines bytes.Buffer
	for name, role := range roles {
		passwd := exec.CommandContext(t.Context(), Program(t), "passwd", "--role", role, name)
		passwd.Stdin = strings.NewReader(name + "\n")
		line, err := passwd.Output()
		require.NoError(t, err)
		lines.Write(line)
	}
	path = filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o600))
	return path
}

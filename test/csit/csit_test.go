package csit

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/python"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// Every suite passes, and no case is left out.
func TestSuites(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Robot Framework and ovsdb-server: run without -short")
	}
	venv, err := python.Venv(t.Context(), t.Output(), "requirements.txt")
	require.NoError(t, err)
	args := []string{"--outputdir", t.ArtifactDir(), "--consolecolors", "off"}
	for name, value := range startController(t).variables() {
		args = append(args, "--variable", name+":"+value)
	}
	robot := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "robot"), append(args, "suites")...)
	robot.Env = append(os.Environ(), "NO_PROXY=*")
	var said bytes.Buffer
	robot.Stdout = io.MultiWriter(t.Output(), &said)
	robot.Stderr = robot.Stdout
	require.NoError(t, robot.Run(), "how many cases failed")
	require.NotContains(t, said.String(), "skipped")
}

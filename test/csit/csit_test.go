package csit

import (
	"bytes"
	"flag"
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

var at = flag.String("controller", "", "URL of a running controller, for the cases with the tag odl alone; a bridge is started without")

// Every suite passes, and no case is left out.
func TestSuites(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Robot Framework and ovsdb-server: run without -short")
	}
	if *at != "" {
		robot(t, "--include", "odl", "--variable", "CONTROLLER:"+*at)
		return
	}
	var args []string
	for name, value := range startController(t).variables() {
		args = append(args, "--variable", name+":"+value)
	}
	require.NotContains(t, robot(t, args...), "skipped")
}

// robot runs the suites and returns what it says; it fails when a case does. The results are
// where go test -artifacts says.
func robot(t *testing.T, args ...string) (said string) {
	t.Helper()
	venv, err := python.Venv(t.Context(), t.Output(), "requirements.txt")
	require.NoError(t, err)
	args = append(args, "--outputdir", t.ArtifactDir(), "--consolecolors", "off", "suites")
	cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "robot"), args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=*")
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(t.Output(), &out)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Run(), "the exit status is the number of cases that failed")
	return out.String()
}

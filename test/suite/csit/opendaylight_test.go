package csit

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// startPatience bounds the start of a controller on a busy machine.
const startPatience = "15 min"

// TestRealOpenDaylight runs the suites on a real OpenDaylight Oxygen. The cases with the tag odl
// must pass, and the others must fail. The test prints the failed ones as a table of differences.
func TestRealOpenDaylight(t *testing.T) {
	c := odl.ForTest(t, odl.Oxygen)
	command := installPower(t, power{"/kill": c.Kill, "/start": again(t, c.Start)})
	cases := robot(t, map[string]string{
		"CONTROLLER": c.URL, "KILL_COMMAND": command("/kill"), "START_COMMAND": command("/start"), "START_PATIENCE": startPatience,
	}, "--exclude", "ovnORopendaylightORbackend", "--exclude", "rebootNOTodl") // a killed OpenDaylight does not always lose the same data
	showDifferences(t, cases)
	for _, r := range cases {
		if slices.Contains(r.Tags, "odl") {
			require.Equal(t, passed, r.Status.Value, "%s / %s: %s", r.Suite, r.Name, r.Status.Message)
		} else {
			require.Equal(t, failed, r.Status.Value, "%s / %s passes there too: give it the tag odl", r.Suite, r.Name)
		}
	}
}

// TestBridgeOnRealOpenDaylight runs the suites on a bridge whose backend is a real OpenDaylight.
func TestBridgeOnRealOpenDaylight(t *testing.T) {
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			c := odl.ForTest(t, release)
			credentials := filepath.Join(t.TempDir(), "opendaylight")
			require.NoError(t, os.WriteFile(credentials, []byte(odl.User+":"+odl.Password+"\n"), 0o600))
			variables := startController(t, "--backend", "odl", "--odl-url", c.URL, "--odl-auth-file", credentials, "--address-reuse-delay", "1s").variables()
			variables["OPENDAYLIGHT"], variables["START_PATIENCE"] = c.URL, startPatience
			maps.Copy(variables, backendPower(t, c.Kill, again(t, c.Start), again(t, c.Wipe)))
			requirePassed(t, robot(t, variables, "--exclude", "ovn"))
		})
	}
}

// again returns do with a context that is not canceled at the end of the test.
func again(t *testing.T, do func(context.Context) error) func() error {
	return func() error { return do(context.WithoutCancel(t.Context())) }
}

// showDifferences prints the failed cases, and writes the table to the artifacts.
func showDifferences(t *testing.T, cases []result) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| suite | case | OpenDaylight Oxygen |\n|---|---|---|\n")
	for _, c := range cases {
		if c.Status.Value == failed {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", c.Suite, c.Name, strings.ReplaceAll(c.brief(), "|", "\\|"))
		}
	}
	t.Logf("where OpenDaylight Oxygen differs:\n%s", table.String())
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), "differences.md"), []byte(table.String()), 0o644))
}

package csit

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

var at = flag.String("controller", "", "URL of a running controller, on which only the cases with the tag odl run; default: a bridge is started")

// TestSuites: every case passes on a bridge with OVN, except the cases of another backend, and none is
// skipped.
func TestSuites(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Robot Framework and ovsdb-server: run without -short")
	}
	if *at != "" {
		requirePassed(t, robot(t, map[string]string{"CONTROLLER": *at}, "--include", "odl"))
		return
	}
	cases := robot(t, onOVN(t), "--exclude", "opendaylight")
	requirePassed(t, cases)
	for _, c := range cases {
		require.NotEqual(t, skipped, c.Status.Value, c.Name)
	}
}

func requirePassed(t *testing.T, cases []result) {
	t.Helper()
	for _, c := range cases {
		require.NotEqual(t, failed, c.Status.Value, "%s: %s", c.Name, c.Status.Message)
	}
}

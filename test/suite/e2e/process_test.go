package e2e

import (
	"os"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// process is a bridge to be killed and started again, over a data folder that
// outlives it.
type process struct{ *bridgetest.Process }

// startProcess starts coe-bridge serve with the OVN backend. It ends with the test.
func startProcess(t *testing.T, nb string, args ...string) process {
	t.Helper()
	args = append([]string{"--data-dir", t.TempDir(), "--backend", "ovn", "--ovn-nb", nb}, args...)
	return process{bridgetest.Serve(t, args...)}
}

// rest is how the bridge is asked until it is started again.
func (p process) rest() rest { return rest{p.Client()} }

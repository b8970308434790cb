package e2e

import (
	"os"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// process is a bridge that tests kill and start again with the same data folder.
type process struct{ *bridgetest.Process }

// startProcess starts coe-bridge serve with the OVN backend. It ends with the test.
func startProcess(t *testing.T, nb string, args ...string) process {
	t.Helper()
	args = append([]string{"--data-dir", t.TempDir(), "--backend", "ovn", "--ovn-nb", nb}, args...)
	return process{bridgetest.Serve(t, args...)}
}

// rest returns a client of the bridge. It is valid until the bridge is started again.
func (p process) rest() rest { return rest{p.Client()} }

package hostile_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
)

// TestMain runs this program as an etcd server if a test has started it as one.
func TestMain(m *testing.M) {
	served, err := etcd.Serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !served {
		os.Exit(bridgetest.Main(m))
	}
}

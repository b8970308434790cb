// Command benchscale simulates clusters of up to 1,000 nodes, and prints what each program of coe-bridge and OVN needs for them. The API
// server is synthetic, and most nodes are only a chassis in the southbound database and a stream of an agent. All other parts are
// real: two bridges on an etcd, OVN's databases, ovn-northd, and three nodes with ovn-controller and Open vSwitch.
//
// It needs root and the Debian packages of OVN and Open vSwitch.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "100", Measure: measureCluster(100)},
	{Name: "300", Measure: measureCluster(300)},
	{Name: "1000", Measure: measureCluster(1000)},
}

func main() {
	if served, err := etcd.Serve(); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, "benchscale:", err)
			os.Exit(1)
		}
		return
	}
	figures.Main("benchscale", measurements, func(ctx context.Context) (*bench, func() error, error) {
		w, built, err := process.Open(ctx, "benchscale", "")
		if err != nil {
			return nil, nil, err
		}
		return &bench{w, built}, w.Close, nil
	})
}

// bench has the data that all measurements share.
type bench struct {
	*figures.Workspace
	built process.Built
}

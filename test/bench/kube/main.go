// Command benchkube measures the performance figures of coe-bridge with Kubernetes, and prints them
// with their bounds. It uses a real API server, a real northbound database without northd, and a
// bridge in its own process. The reference of a figure runs alternating with it, so that changes of
// the machine's speed affect both.
//
// It needs ovsdb-server and the Go toolchain, but neither root nor a running OVN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "start", Measure: measureStart},
	{Name: "storm", Measure: measureStorm},
	{Name: "annotate", Measure: measureAnnotations},
	{Name: "churn", Measure: measureChurn},
	{Name: "restart", Measure: measureRestart},
	{Name: "takeover", Measure: measureTakeOver},
	{Name: "large", Measure: measureLarge},
	{Name: "tenant", Measure: measureTenant},
}

func main() {
	if served, err := etcd.Serve(); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, "benchkube:", err)
			os.Exit(1)
		}
		return
	}
	program := flag.String("bridge", "", "`file` of the coe-bridge to measure; default: the program is built from this source tree")
	figures.Main("benchkube", measurements, func(ctx context.Context) (*bench, func() error, error) {
		b, err := newBench(ctx, *program)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	})
}

// bench has the data that all measurements share.
type bench struct {
	*figures.Workspace
	built process.Built
	null  string // the null controller
}

func newBench(ctx context.Context, program string) (*bench, error) {
	w, built, err := process.Open(ctx, "benchkube", program)
	if err != nil {
		return nil, err
	}
	b := &bench{Workspace: w, built: built}
	b.Say("building the null controller")
	if b.null, err = buildNull(ctx, b.Dir); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

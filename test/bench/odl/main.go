// Command benchodl measures the performance figures of the OpenDaylight backend, and prints them with
// their bounds. It uses a real controller (Oxygen) without switches, and runs the bridge in its own
// process. The references are clients that send the same requests to the controller, alternating
// with the bridge, so that changes of the machine's speed affect both.
//
// It needs root and the prerequisites of test/lab/odl.
package main

import (
	"context"
	"flag"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "start", Measure: measureStart},
	{Name: "latency", Measure: measureLatency},
	{Name: "large", Measure: measureLarge},
}

func main() {
	profile := flag.String("cpuprofile", "", "write a CPU profile of the measurements to a `file`")
	figures.Main("benchodl", measurements, func(ctx context.Context) (*bench, func() error, error) {
		b, err := newBench(ctx, *profile)
		return b, b.close, err
	})
}

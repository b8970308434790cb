// Command benchodl measures the figures that the OpenDaylight backend is held to, on a
// real controller (Oxygen) that manages no switch, with the bridge in this process, and
// prints them beside their bounds. What a figure compares with are bare clients that send
// the controller the same requests, by turns with the bridge, so that the machine's moods
// meet both alike.
//
// It needs root and what test/odl needs.
package main

import (
	"context"
	"flag"

	"github.com/coe-bridge/coe-bridge/test/figures"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "start", Measure: measureStart},
	{Name: "latency", Measure: measureLatency},
	{Name: "large", Measure: measureLarge},
}

func main() {
	profile := flag.String("cpuprofile", "", "write a CPU profile of what is measured to a `file`")
	figures.Main("benchodl", measurements, func(ctx context.Context) (*bench, func() error, error) {
		b, err := newBench(ctx, *profile)
		return b, b.close, err
	})
}

// Command benchovn measures what pods cost OVN, and prints the figures with their bounds. The API server is synthetic: its objects
// are there at once, and its events come when a measurement wants them. All other parts are real. The reference of a
// figure runs alternating with it, so that changes of the machine's speed affect both.
//
// It needs root and the Debian packages of OVN and Open vSwitch.
package main

import (
	"context"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "layouts", Measure: measureLayouts},
	{Name: "change", Measure: changeOf(500)},
	{Name: "change-2000", Measure: changeOf(2000), Named: true},
	{Name: "change-5000", Measure: changeOf(5000), Named: true},
	{Name: "hung", Measure: measureHung},
	{Name: "arrivals", Measure: measureArrivals},
	{Name: "burst", Measure: measureBurst},
	{Name: "steady", Measure: measureSteady},
	{Name: "rows", Measure: measureRows},
	{Name: "flat", Measure: measureFlat},
}

func main() {
	figures.Main("benchovn", measurements, func(ctx context.Context) (*bench, func() error, error) {
		w, built, err := process.Open(ctx, "benchovn", "")
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

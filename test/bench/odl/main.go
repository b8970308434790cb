// Command benchodl measures the performance figures of the OpenDaylight backend, and prints them with
// their bounds. The controller is real (Oxygen). Most measurements use one without switches, and run the bridge in this
// process. The others use two hosts, with a bridge and agents as processes. The references are clients that send the same requests to
// the controller, alternating with the bridge, so that changes of the machine's speed affect both.
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
	{Name: "pods", Measure: measurePods},
	{Name: "failover", Measure: measureFailover},
	{Name: "start", Measure: onController(measureStart)},
	{Name: "latency", Measure: onController(measureLatency)},
	{Name: "large", Measure: onController(measureLarge)},
}

func main() {
	profile := flag.String("cpuprofile", "", "write a CPU profile of the measurements to a `file`")
	figures.Main("benchodl", measurements, func(context.Context) (*bench, func() error, error) {
		b, err := newBench(*profile)
		return b, b.close, err
	})
}

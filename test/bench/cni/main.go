// Command benchcni measures the performance figures of the CNI plugin and the node agent, and
// prints them with their bounds. It uses hosts with Open vSwitch and OVN in network namespaces,
// and the bridge and the agents as processes. The reference of a figure runs alternating with it,
// so that changes of the machine's speed affect both.
//
// It needs root, the Debian packages of test/lab/ovnhost, and the Go toolchain. It builds the
// reference plugins into a cache.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "plug", Measure: measurePlug},
	{Name: "whole", Measure: measureWhole},
	{Name: "traffic", Measure: measureTraffic},
}

func main() {
	figures.Main("benchcni", measurements, func(ctx context.Context) (*bench, func() error, error) {
		b := &bench{begun: time.Now()}
		if err := b.build(ctx); err != nil {
			return nil, nil, errors.Join(err, b.close())
		}
		return b, b.close, nil
	})
}

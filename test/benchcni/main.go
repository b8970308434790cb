// Command benchcni measures the figures that the CNI plugin and the node agent are held
// to: on real hosts with Open vSwitch and OVN in network namespaces, with bridge and
// agents as processes of their own, and prints them beside their bounds. What a figure
// compares with runs by turns with it, so that the machine's moods meet both alike.
//
// It needs root, the Debian packages of test/ovnhost, and the Go toolchain, with which
// it builds the reference plugins into a cache.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/figures"
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

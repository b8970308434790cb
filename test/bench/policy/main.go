// Command benchpolicy measures the performance figures of network policies on OVN, and prints them with
// their bounds. The API server is synthetic: its objects are there at once, and its events come when a
// measurement wants them. All other parts are real. The reference of a figure runs alternating with it, so
// that changes of the machine's speed affect both.
//
// It needs root and the Debian packages of OVN and Open vSwitch.
package main

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "label", Measure: measureLabel},
	{Name: "join", Measure: measureJoin},
	{Name: "verdict", Measure: measureVerdict},
	{Name: "except", Measure: measureExcept},
	{Name: "start", Measure: measureStart},
	{Name: "memory", Measure: measureMemory},
}

func main() {
	figures.Main("benchpolicy", measurements, func(ctx context.Context) (*bench, func() error, error) {
		w, built, err := process.Open(ctx, "benchpolicy", "")
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

// run starts a bridge for a cluster.
func (b *bench) run(ctx context.Context, c *cluster, northbound string) (*process.Bridge, error) {
	return process.Start(ctx, process.Config{
		Built: b.built, Kubeconfig: c.api.Kubeconfig, Northbound: northbound,
		Data: process.OnFolder(c.dir), AnnotateQPS: process.Unlimited,
	})
}

// start starts a bridge for a cluster, and waits until it is in sync and follows the cluster.
func (b *bench) start(ctx context.Context, c *cluster, northbound string) (*process.Bridge, error) {
	br, err := b.run(ctx, c, northbound)
	if err != nil {
		return nil, err
	}
	if err := c.follow(ctx, br); err != nil {
		return nil, errors.Join(err, br.Stop())
	}
	return br, nil
}

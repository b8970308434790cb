package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	memoryPods   = 50_000
	memoryBound  = 600e6
	restartBound = 5 * time.Second
	podsPerBody  = 1000
	megabyte     = 1e6
)

// measureMemory writes 50,000 pods to a bridge with the memory backend, in its own process, and
// reads its resident memory. Then it stops the bridge, starts it again, and measures the time from
// the start of the process until it is in sync.
func measureMemory(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	b.Say("building the bridge")
	program, err := serve.Build(ctx, b.Dir)
	if err != nil {
		return nil, err
	}
	dir, err := b.Folder("memory")
	if err != nil {
		return nil, err
	}
	args := []string{"--auth-file", b.usersFile, "--data-dir", dir}
	full, err := b.fullChild(ctx, program, args)
	if err != nil {
		return nil, err
	}
	b.Say("the bridge has its pods, and %.0f MB resident; starting it again", full/megabyte)
	begun := time.Now()
	again, err := startChild(ctx, program, args)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, again.stop()) }()
	if err := again.awaitSync(ctx, memoryPods); err != nil {
		return nil, err
	}
	restart := time.Since(begun)
	after, peak, err := again.Settled(ctx)
	if err != nil {
		return nil, err
	}
	b.Say("the bridge is in sync again after %s", figures.Short(restart))
	return []figures.Figure{
		{
			Name:     "memory with 50,000 pods in 200 namespaces",
			Measured: fmt.Sprintf("%.0f MB resident (%.0f MB after a restart, %.0f MB during it)", full/megabyte, after/megabyte, peak/megabyte),
			Bound:    fmt.Sprintf("at most %.0f MB", memoryBound/megabyte), Within: max(full, after) <= memoryBound,
		},
		figures.AtMost("with these, process start to in-sync", restart, restartBound),
	}, nil
}

// fullChild fills a bridge, and stops it when it is in sync. It returns the resident memory before
// the stop.
func (b *bench) fullChild(ctx context.Context, program string, args []string) (bytes float64, err error) {
	c, err := startChild(ctx, program, args)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	b.Say("filling the bridge with 50,000 pods, 1,000 in a request")
	if err := c.fill(ctx, synth.Cluster{Nodes: 100, Namespaces: 200}, memoryPods, podsPerBody); err != nil {
		return 0, err
	}
	bytes, _, err = c.Settled(ctx)
	return bytes, err
}

// served is a bridge in its own process.
type served struct {
	*client
	*serve.Process
}

func startChild(ctx context.Context, program string, args []string) (*served, error) {
	p, err := serve.Start(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	return &served{newClient(p.URL), p}, nil
}

func (c *served) stop() error {
	c.Close()
	return c.Stop()
}

// Package inprocess runs a bridge in the process of a benchmark.
package inprocess

import (
	"context"
	"errors"
	"fmt"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
)

// Bridge is a bridge in this process.
type Bridge struct {
	*bridge.Bridge
	end  context.CancelFunc
	done chan error // nil until it runs
}

// New creates a bridge. Start starts it.
func New(ctx context.Context, cfg bridge.Config) (*Bridge, error) {
	made, err := bridge.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Bridge{Bridge: made}, nil
}

// Start runs the bridge until Stop.
func (b *Bridge) Start(ctx context.Context) {
	ctx, b.end = context.WithCancel(ctx)
	b.done = make(chan error, 1)
	go func() { b.done <- b.Run(ctx) }()
}

// Stop ends the bridge, and waits until it has ended.
func (b *Bridge) Stop() error {
	var err error
	if b.done != nil {
		b.end()
		err = <-b.done
	}
	if err := errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	hungBound  = 5 * time.Second
	hungRounds = 3
	hungLimit  = 2 * time.Minute
)

// measureHung freezes the first of two servers of the northbound database, and takes the time until the backend has read the other one. The servers
// are not clustered, so no election is part of the time.
func measureHung(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	for _, situation := range []struct {
		name string
		meet func(context.Context, *ovn.Backend, func() error) error
	}{
		{"the bridge starts", func(ctx context.Context, backend *ovn.Backend, freeze func() error) error {
			return errors.Join(freeze(), read(ctx, backend))
		}},
		{"the bridge waits for changes", func(ctx context.Context, backend *ovn.Backend, freeze func() error) error {
			return whileWatched(ctx, backend, func(ended <-chan struct{}) error {
				if err := freeze(); err != nil {
					return err
				}
				select {
				case <-ended:
					return read(ctx, backend)
				case <-ctx.Done():
					return fmt.Errorf("the server that hangs is not left: %w", ctx.Err())
				}
			})
		}},
		{"the bridge writes", func(ctx context.Context, backend *ovn.Backend, freeze func() error) error {
			return whileWatched(ctx, backend, func(<-chan struct{}) error {
				if err := freeze(); err != nil {
					return err
				}
				model := netvirt.Model{}
				model.Add(netvirt.VPNInstance{Name: "a", Namespace: "a", RouteDistinguisher: "100:2"})
				if backend.Write(ctx, netvirt.Diff(nil, model)) == nil {
					return errors.New("the server that hangs has answered")
				}
				return read(ctx, backend)
			})
		}},
	} {
		var longest time.Duration
		for range hungRounds {
			took, err := passOver(ctx, situation.meet)
			if err != nil {
				return nil, err
			}
			longest = max(longest, took)
		}
		b.Say("a server that hangs is passed over when %s: after %s", situation.name, figures.Short(longest))
		all = append(all, figures.AtMost("a server hangs when "+situation.name+", until the next one is read, the longest of three", longest, hungBound))
	}
	return all, nil
}

// passOver returns the time from the freeze of the first server until meet returns.
func passOver(ctx context.Context, meet func(context.Context, *ovn.Backend, func() error) error) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, hungLimit)
	defer cancel()
	first, err := ovsdb.Run()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	second, err := ovsdb.Run()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	cfg := ovn.Config{Endpoints: first.Endpoint() + "," + second.Endpoint(), Layout: ovn.LayoutNode}
	backend, err := ovn.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	defer backend.Close()
	var frozen time.Time
	err = meet(ctx, backend, func() error {
		frozen = time.Now()
		return first.Signal(syscall.SIGSTOP)
	})
	return time.Since(frozen), err
}

// read reads the database until it succeeds.
func read(ctx context.Context, backend *ovn.Backend) error {
	return ovnhost.Poll(ctx, func(ctx context.Context) error {
		_, err := backend.Read(ctx)
		return err
	})
}

// whileWatched calls do while the backend, which has read the first server, watches it. ended gets a value when it does not rely on that server any more.
func whileWatched(ctx context.Context, backend *ovn.Backend, do func(ended <-chan struct{}) error) error {
	if err := read(ctx, backend); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan struct{}, 1)
	running.Go(func() {
		_ = backend.Watch(watching, func() { // it ends with an error of its context
			select {
			case ended <- struct{}{}:
			default:
			}
		})
	})
	return do(ended)
}

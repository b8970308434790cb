package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/cmd/footprint"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

const (
	// memoryLimit is what the agent's own data stay below, by collecting garbage in
	// time: a node has other uses for its memory. The program itself comes on top.
	memoryLimit = 20 << 20
	// cleanupTimeout bounds coe-bridge agent --cleanup.
	cleanupTimeout = time.Minute
	// healthTimeout is for who asks for health or metrics.
	healthTimeout = 10 * time.Second
)

// serve answers calls until ctx is done. Calls that are under way then are undone; what
// they need for that goes on until they are.
func (f *agentFlags) serve(ctx context.Context, p agentParts, log *slog.Logger) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	installed, err := f.cni.config(f.socket, log)
	if err != nil {
		return err
	}
	calls, err := call.Listen(ctx, f.socket)
	if err != nil {
		return err
	}
	stopHealth, err := f.serveHealth(p, log)
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	defer stopHealth()
	defer f.cni.leave(installed)
	needed, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { p.ovs.Run(needed) })
	managed, release := context.WithCancel(needed)
	var managing sync.WaitGroup
	defer managing.Wait() // by the connection to the switch, which goes on until then
	defer release()
	managing.Go(func() { p.ovs.KeepManaged(managed, p.managed, p.uplink.Network) })
	running.Go(func() { p.files.Run(needed) })
	running.Go(func() { p.uplink.Run(needed) })
	running.Go(func() { p.agent.Run(needed) })
	running.Go(func() { p.own.Run(needed) })
	if f.cni.install {
		running.Go(func() { installed.Run(ctx) })
	}
	if err := footprint.ReleaseProgram(); err != nil {
		log.Warn("the program's pages stay in memory", "err", err)
	}
	log.Info("answering coe-cni", "socket", f.socket, "node", f.node, "version", version)
	return call.Serve(ctx, calls, log, p.agent.Answer)
}

// serveHealth answers on --health-listen until stop is called.
func (f *agentFlags) serveHealth(p agentParts, log *slog.Logger) (stop func(), err error) {
	if f.healthListen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", f.healthListen)
	if err != nil {
		return nil, fmt.Errorf("--health-listen: %w", err)
	}
	server := &http.Server{Handler: p.agent.HTTP(p.registry), ReadHeaderTimeout: healthTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health is answered no more", "err", err)
		}
	}()
	log.Info("answering health and metrics", "address", l.Addr())
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// cleanUp removes what the agent has made and keeps. No other agent may run meanwhile.
func (f *agentFlags) cleanUp(ctx context.Context, p agentParts, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	installed, err := f.cni.config(f.socket, log)
	if err != nil {
		return err
	}
	l, err := call.Listen(ctx, f.socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if err := installed.Remove(); err != nil { // first: nobody is to call any more
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { p.ovs.Run(ctx) })
	if err := errors.Join(p.agent.Cleanup(ctx), p.own.Cleanup(ctx)); err != nil {
		return err
	}
	if _, err := p.ovs.Manage(ctx, ovs.Management{}); err != nil { // last: OpenDaylight has seen the ports go
		return err
	}
	if err := os.RemoveAll(f.stateDir); err != nil {
		return fmt.Errorf("remove what was kept: %w", err)
	}
	return nil
}

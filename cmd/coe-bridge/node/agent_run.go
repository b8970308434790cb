package node

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
	// memoryLimit bounds the memory of the agent's data, without the program itself. The
	// node needs its memory for pods.
	memoryLimit = 20 << 20
	// cleanupTimeout bounds coe-bridge agent --cleanup.
	cleanupTimeout = time.Minute
	// healthTimeout bounds the header of a request for health or metrics, answerTimeout the answer, and idleTimeout the wait for another
	// request: a client that does not read must not keep others from the metrics.
	healthTimeout = 10 * time.Second
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
)

// serve answers calls until ctx is done. Calls that are in progress then are undone, and the
// parts that this needs end last.
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
	connected, release := context.WithCancel(needed)
	var using sync.WaitGroup
	defer using.Wait() // they need the connection to the switch: one gives a port back that is being replaced
	defer release()
	using.Go(func() { p.ovs.KeepManaged(connected, p.managed, p.uplink.Network) })
	using.Go(func() { p.own.Run(connected) })
	if f.backend == ovs.OVN {
		running.Go(func() { p.ovs.KeepPhysical(needed, p.physical) })
		running.Go(func() { p.agent.KeepChassis(needed) })
		running.Go(func() { p.agent.KeepDirect(needed) })
	} else {
		running.Go(func() { p.agent.KeepDHCP(needed) })
	}
	running.Go(func() { p.files.Run(needed) })
	running.Go(func() { p.uplink.Run(needed) })
	running.Go(func() { p.agent.Run(needed) })
	running.Go(func() { p.nics.Run(needed) })
	if f.cni.install {
		running.Go(func() { installed.Run(ctx) })
	}
	if err := footprint.ReleaseProgram(); err != nil {
		log.Warn("return unused memory of the program to the kernel", "err", err)
	}
	log.Info("answering coe-cni", "socket", f.socket, "node", f.node, "version", f.version)
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
	server := healthServer(p.agent.HTTP(p.registry))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve health and metrics", "err", err)
		}
	}()
	log.Info("answering health and metrics", "address", l.Addr())
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// healthServer returns the server of health and metrics.
func healthServer(answers http.Handler) *http.Server {
	return &http.Server{
		Handler: answers, ReadHeaderTimeout: healthTimeout, ReadTimeout: healthTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
	}
}

// cleanUp removes all that the agent has created. No other agent must run at that time.
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
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { p.ovs.Run(ctx) })
	if err := p.nics.CheckCleanup(ctx); err != nil {
		return fmt.Errorf("nothing was removed: %w", err)
	}
	if err := installed.Remove(); err != nil { // first: no more calls must come
		return err
	}
	if err := errors.Join(p.own.Services().CleanupPods(ctx), p.agent.Cleanup(ctx), p.own.Cleanup(ctx), p.nics.Cleanup(ctx)); err != nil {
		return err
	}
	if err := p.ovs.MapPhysical(ctx, ovs.Physical{Node: p.physical.Node}); err != nil {
		return err
	}
	if _, err := p.ovs.Manage(ctx, ovs.Management{}); err != nil { // last: OpenDaylight must see the ports go
		return err
	}
	if err := os.RemoveAll(f.stateDir); err != nil {
		return fmt.Errorf("remove --state-dir: %w", err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
)

const (
	takeOverRounds  = 3
	takeOverKilled  = 5 * time.Second
	takeOverStopped = time.Second
)

// measureTakeOver has two bridges on one etcd with 5,000 pods. It ends the leader, and creates a
// pod at once. The measured time is from the signal until the row of that pod exists. In this time
// the other bridge is elected, catches up, loads the records, chooses an address and writes.
func measureTakeOver(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	data, err := etcd.Run(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	b.Say("making 5,000 pods for two bridges on one etcd")
	if _, err := w.plane.MakePods(ctx, load(pods, "base-")); err != nil {
		return nil, err
	}
	p, err := w.startPair(ctx, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for _, how := range []struct {
		name   string
		signal syscall.Signal
		bound  time.Duration
	}{{"kill -9", syscall.SIGKILL, takeOverKilled}, {"a clean stop", syscall.SIGTERM, takeOverStopped}} {
		var took []time.Duration
		for n := range takeOverRounds {
			one, err := p.takeOver(ctx, how.signal, fmt.Sprintf("after-%s-%d-", how.signal, n))
			if err != nil {
				return nil, fmt.Errorf("take over after %s: %w", how.name, err)
			}
			b.Say("taken over after %s, round %d of %d: %s", how.name, n+1, takeOverRounds, figures.Short(one))
			took = append(took, one)
		}
		all = append(all, figures.AtMost("two bridges, 5,000 pods: "+how.name+" of the leader to the row of a new pod, slowest", slices.Max(took), how.bound))
	}
	return all, nil
}

// pair are two bridges on one etcd, of which the first leads.
type pair struct {
	w    *world
	data *etcd.Cluster
	all  []*process.Bridge
}

func (w *world) startPair(ctx context.Context, data *etcd.Cluster) (p *pair, err error) {
	p = &pair{w: w, data: data}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if err := p.add(ctx); err != nil {
		return nil, err
	}
	if _, err := p.all[0].AwaitSync(ctx, pods); err != nil {
		return nil, err
	}
	return p, p.add(ctx)
}

// add starts another bridge, and waits until it is a standby replica and has read all its sources.
func (p *pair) add(ctx context.Context) error {
	br, err := process.Start(ctx, p.w.config(p.w.plane.Kubeconfig(), p.w.nb, process.OnEtcd(p.data.Endpoints()), "0"))
	if err != nil {
		return err
	}
	p.all = append(p.all, br)
	if len(p.all) == 1 {
		return nil
	}
	return br.AwaitKnown(ctx)
}

// stop ends the standby replica first, so that it is not elected meanwhile.
func (p *pair) stop() error {
	var errs []error
	for _, br := range slices.Backward(p.all) {
		errs = append(errs, br.Stop())
	}
	return errors.Join(errs...)
}

// takeOver ends the leader with a signal, and measures. Then it starts another bridge, which
// becomes the standby replica.
func (p *pair) takeOver(ctx context.Context, signal syscall.Signal, prefix string) (took time.Duration, err error) {
	rows, err := watchRows(ctx, p.w.nb.Endpoint())
	if err != nil {
		return 0, err
	}
	defer rows.Stop()
	leader := p.all[0]
	p.all = p.all[1:]
	begun := time.Now()
	if err := leader.Signal(signal); err != nil {
		return 0, err
	}
	if err := p.w.createPod(ctx, load(1, prefix).Pod(0)); err != nil {
		return 0, err
	}
	seen, err := rows.await(ctx, prefix, 1)
	if err != nil {
		return 0, err
	}
	_ = leader.Wait() // it was killed, or has stopped
	leader.Client.Close()
	next := p.all[0]
	if _, err := next.AwaitSync(ctx, pods); err != nil {
		return 0, err
	}
	end := last(seen)
	if elected, _ := next.Elected(); elected.After(end) { // the old leader has still written the row
		end = elected
	}
	return end.Sub(begun), p.add(ctx)
}

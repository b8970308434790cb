package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
)

const (
	clusterMembers = 3
	failoverRounds = 3
	failoverRatio  = 1.5
)

// measureFailover kills the leader of a cluster of three. At the same time a new pod comes, and a script writes the entries of a port to
// another member until they are accepted.
func measureFailover(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	h, err := b.startHosts(ctx, clusterMembers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var mean comparison
	for n := range failoverRounds {
		one, err := h.failover(ctx, n+1)
		if err != nil {
			return nil, err
		}
		mean.ours += one.ours / failoverRounds
		mean.bare += one.bare / failoverRounds
	}
	return []figures.Figure{mean.besideScript("The leader of three is killed, to an answer to the next pod", failoverRatio)}, nil
}

// failover kills the leader, and starts it again when the pod and the port are answered. It returns when a further pod is.
func (h *hosts) failover(ctx context.Context, round int) (one comparison, err error) {
	leader, err := realodl.Leader(h.members, realodl.ConfigShard)
	if err != nil {
		return one, err
	}
	other := h.members[0]
	if other == leader {
		other = h.members[1]
	}
	if err := leader.Kill(); err != nil {
		return one, err
	}
	begun := time.Now()
	var (
		removePort func() error
		scripted   = make(chan error, 1)
	)
	go func() {
		var err error
		_, removePort, err = h.port(ctx, other)
		one.bare = time.Since(begun)
		scripted <- err
	}()
	_, remove, err := h.pod(ctx)
	one.ours = time.Since(begun)
	if err := errors.Join(err, <-scripted); err != nil {
		return one, err
	}
	h.Say("the leader of three is killed, round %d of %d: pod %s, port of a script %s", round, failoverRounds, figures.Short(one.ours), figures.Short(one.bare))
	if err := errors.Join(remove(), removePort(), leader.Start(ctx)); err != nil {
		return one, err
	}
	_, remove, err = h.pod(ctx)
	if err == nil {
		err = remove()
	}
	return one, err
}

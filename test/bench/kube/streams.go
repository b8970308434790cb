package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/agents"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const snapshotTimeout = 30 * time.Second

// streams follows the streams of all nodes, as their agents do, and notes the time of each pod's
// record.
type streams struct {
	*moments
	*agents.Streams
}

// follow follows the streams, and returns when each has sent its first snapshot.
func follow(ctx context.Context, b *process.Bridge) (*streams, error) {
	var all []netip.Addr
	for n := range nodes {
		all = append(all, kube.NodeAddress(n))
	}
	told := newMoments("stream events")
	s := &streams{told, agents.New(all, func(r agents.Record) { told.note(key(r.Namespace, r.Pod)) })}
	s.At(b.URL)
	if err := s.Await(ctx, snapshotTimeout); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

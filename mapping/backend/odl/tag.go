package odl

import (
	"context"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// tagWait bounds the wait until the controller has tagged elan-instances; it is less than
// the deadline of a Write. tagPoll is the interval of the checks.
const (
	tagWait = 10 * time.Second
	tagPoll = 50 * time.Millisecond
)

// lookTagged reads elan-instances when all of them are tagged, or when tagWait is over. The
// controller tags an elan-instance some time after it was written, and writes all its leaves
// again as they were. An earlier change or deletion would be undone by that.
func (w *write) lookTagged(ctx context.Context, keys []string) (map[string]codec.Entry, error) {
	timeout := time.NewTimer(tagWait)
	defer timeout.Stop()
	poll := time.NewTicker(tagPoll)
	defer poll.Stop()
	for {
		found, err := w.Look(ctx, &w.Lists[codec.ELANInstances], keys)
		if err != nil || allTagged(found) {
			return found, err
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			return found, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func allTagged(found map[string]codec.Entry) bool {
	for _, e := range found {
		if !isTagged(e) {
			return false
		}
	}
	return true
}

// isTagged reports whether an elan-instance is tagged, or does not exist.
func isTagged(e codec.Entry) bool { return e == nil || e.(*codec.ELANInstance).Tagged() }

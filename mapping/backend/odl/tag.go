package odl

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
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
func (w *write) lookTagged(ctx context.Context, keys []string) (map[string]entry, error) {
	timeout := time.NewTimer(tagWait)
	defer timeout.Stop()
	poll := time.NewTicker(tagPoll)
	defer poll.Stop()
	for {
		found, err := w.look(ctx, &w.lists[elanInstances], keys)
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

func allTagged(found map[string]entry) bool {
	for _, e := range found {
		if !isTagged(e) {
			return false
		}
	}
	return true
}

// isTagged reports whether an elan-instance is tagged, or does not exist.
func isTagged(e entry) bool { return e == nil || e.(*elanInstance).tagged() }

// tagged reports whether the controller has tagged the elan-instance.
func (e *elanInstance) tagged() bool {
	var leaves struct {
		Tag uint32 `json:"elan-tag"`
	}
	return len(e.Others) > 0 && json.Unmarshal(e.Others, &leaves) == nil && leaves.Tag != 0
}

package odl

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
)

// tagWait bounds how long the controller is given to tag elan-instances, and tagPoll is
// between two looks at them. It is less than a Write is given.
const (
	tagWait = 10 * time.Second
	tagPoll = 50 * time.Millisecond
)

// lookTagged reads what there is under keys of elan-instances, when all of it is tagged. The
// controller tags one in its own time after it was written, by writing the whole of it once
// more as it was then: what is changed or deleted before that would come back. A
// controller that does not tag is not waited for longer than tagWait.
func (w *write) lookTagged(ctx context.Context, keys []string) (map[string]entry, error) {
	patience := time.NewTimer(tagWait)
	defer patience.Stop()
	poll := time.NewTicker(tagPoll)
	defer poll.Stop()
	for {
		found, err := w.look(ctx, &w.lists[elanInstances], keys)
		if err != nil || allTagged(found) {
			return found, err
		}
		select {
		case <-poll.C:
		case <-patience.C:
			return found, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func allTagged(found map[string]entry) bool {
	for _, e := range found {
		if e != nil && !e.(*elanInstance).tagged() {
			return false
		}
	}
	return true
}

// tagged tells whether the controller has given the elan-instance its tag.
func (e *elanInstance) tagged() bool {
	var leaves struct {
		Tag uint32 `json:"elan-tag"`
	}
	return len(e.Foreign) > 0 && json.Unmarshal(e.Foreign, &leaves) == nil && leaves.Tag != 0
}

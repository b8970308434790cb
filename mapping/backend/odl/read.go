package odl

import (
	"context"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// readAll reads all our entries.
func readAll(ctx context.Context, s *controller.Session) (*codec.Mirror, error) {
	m := codec.NewMirror(s.Form)
	var (
		mu      sync.Mutex
		absence absence
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := controller.Together(ctx, s.Parallel(), codec.ListCount+1, func(ctx context.Context, l int) (err error) {
		defer func() {
			if err != nil {
				cancel(err) // the other lists are not needed any more
			}
		}()
		var (
			entries []codec.Entry
			there   bool
		)
		if l == codec.ListCount {
			m.Identity, err = readIdentity(ctx, s)
			there = m.Identity != ""
		} else {
			there, err = s.ReadList(ctx, &s.Lists[l], func(e codec.Entry) {
				if m.MayBeOurs(l, e) {
					e.Normalize()
					entries = append(entries, e.Own())
				}
			})
		}
		if err == nil && !there {
			err = absence.confirm(func() error { return s.Ready(ctx) })
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			m.Put(codec.UnitAt(l, e.Key()), l, e)
		}
		return err
	})
	if err != nil {
		return nil, context.Cause(ctx) // the first
	}
	m.KeepOurs()
	return m, nil
}

// absence checks answers that data does not exist: a controller that starts or stops gives
// the same answer.
type absence struct {
	mu      sync.Mutex
	checked time.Time // start of the last check that found the controller ready
}

// confirm returns an error if the controller is not ready. It does not ask it again if
// another check that began after this call has found it ready.
func (a *absence) confirm(ready func() error) error {
	called := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.checked.After(called) {
		return nil
	}
	started := time.Now()
	err := ready()
	if err == nil {
		a.checked = started
	}
	return err
}

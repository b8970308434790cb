package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// undo is how the steps of a call are undone, and what is held until then.
type undo struct {
	steps []func(context.Context) error
	held  []func()
}

// before notes how a step is undone. That is done before the step is begun, since one
// that fails may have been done in part.
func (u *undo) before(step func(context.Context) error) { u.steps = append(u.steps, step) }

// hold has something let go at the end of the call.
func (u *undo) hold(release func()) { u.held = append(u.held, release) }

// end lets go of what is held.
func (u *undo) end() {
	for _, release := range u.held {
		release()
	}
}

// run undoes the steps, the last first, even after ctx has ended. What can't be undone
// is swept away later.
func (u *undo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		if err := step(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo: %w", err))
		}
	}
	return errors.Join(errs...)
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// undo holds the undo steps of a call, and the locks that it holds until its end.
type undo struct {
	steps []func(context.Context) error
	held  []func()
}

// before registers the undo of a step. Call it before the step: a step that fails may have
// been done in part.
func (u *undo) before(step func(context.Context) error) { u.steps = append(u.steps, step) }

// hold registers a function to call at the end of the call.
func (u *undo) hold(release func()) { u.held = append(u.held, release) }

// end calls the functions that hold registered, the last first.
func (u *undo) end() {
	for _, release := range slices.Backward(u.held) {
		release()
	}
}

// run undoes the steps, the last first, even if ctx has ended. The sweep removes what
// cannot be undone.
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

package bridge

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// group runs the parts of a bridge in parallel: when one ends, all end.
type group struct {
	*errgroup.Group
	ctx context.Context
}

func newGroup(ctx context.Context) group {
	g, ctx := errgroup.WithContext(ctx)
	return group{g, ctx}
}

// errEnded ends the other parts when a part ends without an error.
var errEnded = errors.New("ended")

func (g group) run(what string, part func(context.Context) error) {
	g.Go(func() error {
		if err := part(g.ctx); err != nil && g.ctx.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return errEnded
	})
}

// wait waits until all parts have ended. It returns the first error, or nil if the group was
// stopped.
func (g group) wait() error {
	if err := g.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// group runs the parts of a bridge side by side: when one ends, all end.
type group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// errEnded is why the others end when a part ends without an error.
var errEnded = errors.New("ended")

func (g *group) run(what string, part func(context.Context) error) {
	g.wg.Go(func() {
		if err := part(g.ctx); err != nil && g.ctx.Err() == nil {
			g.cancel(fmt.Errorf("%s: %w", what, err))
		}
		g.cancel(errEnded)
	})
}

// wait returns when all parts have ended: with the error of the first that
// failed, or nil when they were told to end.
func (g *group) wait() error {
	g.wg.Wait()
	err := context.Cause(g.ctx)
	if errors.Is(err, errEnded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

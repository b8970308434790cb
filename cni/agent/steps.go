package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// timed runs a step of a call and records its duration. It fails if ctx ends before or
// during the step; a step whose context has ended does not start.
func (a *Agent) timed(ctx context.Context, name string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("before step %s: %w", name, err)
	}
	a.log.Debug("step started", "step", name)
	begun := time.Now()
	err := do()
	took := time.Since(begun)
	a.log.Debug("step finished", "step", name, "took", took, "err", err)
	a.metrics.steps.WithLabelValues(name).Observe(took.Seconds())
	if steps, is := ctx.Value(stepsKey{}).(*steps); is {
		steps.list = append(steps.list, fmt.Sprintf("%s %s", name, took.Round(time.Millisecond)))
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("after step %s: %w", name, err)
	}
	return nil
}

// steps has the steps of a call and how long each took, in the order of their ends. The steps within
// a step come before it.
type steps struct{ list []string }

var _ slog.LogValuer = (*steps)(nil)

// LogValue implements slog.LogValuer.
func (s *steps) LogValue() slog.Value { return slog.StringValue(strings.Join(s.list, ", ")) }

// stepsKey is the key of the steps in the context of a call.
type stepsKey struct{}

func withSteps(ctx context.Context) (context.Context, *steps) {
	s := &steps{}
	return context.WithValue(ctx, stepsKey{}, s), s
}

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// lossy is a backend that takes a write and does not tell so, once when it is asked to.
type lossy struct {
	*world
	lose atomic.Bool
}

func (b *lossy) Write(ctx context.Context, changes []netvirt.Change) error {
	err := b.world.Write(ctx, changes)
	if err == nil && b.lose.Swap(false) {
		return errors.New("connection lost")
	}
	return err
}

// reached is what a Source is told, of namespaces.
type reached struct {
	anew    string
	changes int
}

func startLossy(t *testing.T) (*lossy, *reconcile.Loop, <-chan reached) {
	b, told := &lossy{world: newWorld()}, make(chan reached, 100)
	source := b.source()
	source.Reached = func(anew []netvirt.Scope, changes []netvirt.Change) {
		anew = slices.DeleteFunc(anew, func(s netvirt.Scope) bool { return s == netvirt.Cluster })
		if len(anew)+len(changes) > 0 {
			told <- reached{fmt.Sprint(anew), len(changes)}
		}
	}
	l := reconcile.New(reconcile.Config{}, "memory", b, source,
		reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b, l, told
}

// What the backend took without the loop knowing it is told with the scope, since
// there is no change of it any more.
func TestReachedAfterLostAnswer(t *testing.T) {
	b, l, told := startLossy(t)
	next := func() (r reached) {
		select {
		case r = <-told:
		case <-time.After(5 * time.Second):
			require.FailNow(t, "nothing was reached")
		}
		return r
	}
	b.want("shop", 1)
	l.Mark("shop")
	require.Equal(t, reached{"[shop]", 1}, next())
	b.want("shop", 2)
	l.Mark("shop")
	require.Equal(t, reached{"[]", 1}, next(), "its changes tell all")
	b.lose.Store(true)
	b.want("shop", 3)
	l.Mark("shop")
	require.Equal(t, reached{"[shop]", 0}, next(), "the change was made by a write that failed")
}

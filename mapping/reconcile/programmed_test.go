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
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
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

// programmed is what a Listener is notified of, without the cluster's scope.
type programmed struct {
	scopes, pods string
}

func startLossy(t *testing.T) (*lossy, *reconcile.Loop, <-chan programmed) {
	b, told := &lossy{world: newWorld()}, make(chan programmed, 100)
	notified := listener{programmed: func(scopes []netvirt.Scope, pods []string) {
		scopes = slices.DeleteFunc(scopes, func(s netvirt.Scope) bool { return s == netvirt.Cluster })
		if len(scopes)+len(pods) > 0 {
			told <- programmed{fmt.Sprint(scopes), fmt.Sprint(pods)}
		}
	}}
	l := reconcile.New(reconcile.Config{Listener: notified}, "memory", b, b.source(),
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

// A write whose answer is lost leaves no change to notify of: the scope is named instead.
func TestProgrammedAfterLostAnswer(t *testing.T) {
	b, l, told := startLossy(t)
	next := func() (r programmed) {
		select {
		case r = <-told:
		case <-time.After(patience.Patience):
			require.FailNow(t, "nothing was programmed")
		}
		return r
	}
	b.pods("shop", "web")
	l.Mark("shop")
	require.Equal(t, programmed{"[shop]", "[web]"}, next())
	b.pods("shop", "web", "db")
	l.Mark("shop")
	require.Equal(t, programmed{"[]", "[db]"}, next(), "its pods are all that changed")
	b.lose.Store(true)
	b.pods("shop", "web", "db", "cache")
	l.Mark("shop")
	require.Equal(t, programmed{"[shop]", "[]"}, next(), "the change was made by a write that failed")
}

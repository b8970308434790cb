package reconcile

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// onePod is a Source with one interface.
type onePod struct{}

func (onePod) Want(netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	o := netvirt.Interface{Namespace: "shop", Name: "shop:web"}
	return netvirt.Model{o.Key(): o}.Parts(), nil
}
func (onePod) Scopes() []netvirt.Scope { return []netvirt.Scope{"shop"} }
func (onePod) Complete() bool          { return true }
func (onePod) Revision() int64         { return 1 }
func (onePod) CaughtUp() bool          { return true }

// absent is a network without any interface.
type absent struct{ *memory.Backend }

func (absent) Observe(context.Context, []string) ([]string, error) { return nil, nil }
func (absent) Lacks(netvirt.Object) string                         { return "it is not there" }
func (absent) Identity() string                                    { return "" }

// TestObserveIsWokenAfterTheLoopKnowsTheWrite: a look before that would find nothing awaited,
// and the next look would be late.
func TestObserveIsWokenAfterTheLoopKnowsTheWrite(t *testing.T) {
	l := New(Config{}, "absent", absent{memory.New()}, onePod{}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx := t.Context()
	_, err := l.read(ctx)
	require.NoError(t, err)
	<-l.written
	want, _ := l.want("shop")
	changes, _ := l.diff("shop", want, true)
	_, _, err = l.write(ctx, changes)
	require.NoError(t, err)
	require.Empty(t, l.written, "nothing is awaited yet")
	require.Empty(t, l.awaited())

	l.forget() // an external writer changes the backend at the same moment
	require.NoError(t, l.process(ctx, []netvirt.Scope{"shop"}))
	require.Len(t, l.written, 1)
	require.Equal(t, []string{"shop:web"}, l.awaited())
}

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// lagging is a backend whose network has interfaces some time after it, or never.
type lagging struct {
	*world
	there, seen map[string]bool // interfaces in the network, and as Observe saw last; w.mu
	asked       [][]string      // what was awaited at each look
	fails       error
	takes, each time.Duration // of the next look, and of each further one
}

func newLagging() *lagging {
	return &lagging{world: newWorld(), there: map[string]bool{}, seen: map[string]bool{}}
}

// Observe implements reconcile.Observer.
func (b *lagging) Observe(_ context.Context, awaited []string) (changed []string, err error) {
	var takes time.Duration
	b.set(func() { takes, b.takes = b.takes, b.each })
	elapse(takes)
	b.set(func() {
		slices.Sort(awaited)
		b.asked = append(b.asked, awaited)
		if err = b.fails; err != nil {
			return
		}
		for name, there := range b.there {
			if b.seen[name] != there {
				b.seen[name] = there
				changed = append(changed, name)
			}
		}
	})
	return changed, err
}

// Identity implements reconcile.Observer.
func (b *lagging) Identity() string { return "" }

// Lacks implements reconcile.Observer.
func (b *lagging) Lacks(o netvirt.Object) (text string) {
	name := ""
	switch o := o.(type) {
	case netvirt.Interface:
		name = o.Name
	case netvirt.NodePort:
		name = o.Name()
	default:
		return ""
	}
	b.set(func() {
		if !b.seen[name] {
			text = "it is not there"
		}
	})
	return text
}

// looks is how often the network was looked at since the last call.
func (b *lagging) looks() (n int) {
	b.set(func() { n, b.asked = len(b.asked), nil })
	return n
}

func (b *lagging) comes(names ...string) {
	b.set(func() {
		for _, name := range names {
			b.there[name] = true
		}
	})
}

// run runs a loop in a bubble of synctest; told is what Observed was called with.
func (b *lagging) run(t *testing.T) (l *reconcile.Loop, told func() [][]string) {
	var all [][]string
	cfg := reconcile.Config{Listener: listener{observed: func(pods []string) { b.set(func() { all = append(all, pods) }) }}}
	l = reconcile.New(cfg, "lagging", b, b.source(), reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l, func() (told [][]string) {
		b.set(func() { told, all = all, nil })
		return told
	}
}

// elapse lets time of the bubble go by.
func elapse(d time.Duration) { <-time.After(d) }

func confirmed(l *reconcile.Loop) (names []string) {
	for o := range l.Confirmed {
		names = append(names, o.Key().Name)
	}
	slices.Sort(names)
	return names
}

// TestObserved follows interfaces that the backend has and the network gets later.
func TestObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web", "db")
		b.comes("shop:web")
		l, told := b.run(t)
		elapse(100 * time.Millisecond)
		require.True(t, l.Status().InSync, "what the network lacks keeps nothing from being in sync")
		require.True(t, l.Observed())
		require.Equal(t, [][]string{nil}, told(), "after the first look all is new")
		require.Equal(t, []string{"shop", "shop:web"}, confirmed(l))
		st := l.Status().Scopes[1]
		require.Equal(t, netvirt.Scope("shop"), st.Scope)
		require.Equal(t, 3, st.Objects)
		require.Equal(t, 2, st.Confirmed)
		require.Equal(t, []reconcile.Lack{{Reason: "it is not there", Objects: 1, Example: netvirt.Key{Kind: netvirt.KindInterface, Name: "shop:db"}}}, st.Lacks)
		require.Equal(t, 2, l.Count(netvirt.KindInterface), "it counts as written")

		b.comes("shop:db")
		elapse(1100 * time.Millisecond)
		require.Equal(t, [][]string{{"db"}}, told())
		require.Empty(t, l.Status().Scopes[1].Lacks)
		require.Equal(t, []string{"shop", "shop:db", "shop:web"}, confirmed(l))

		b.set(func() { b.there["shop:web"] = false })
		elapse(5 * time.Second)
		require.Equal(t, [][]string{{"web"}}, told())
		require.True(t, l.Status().InSync)
	})
}

// TestNodePortIsAwaited: a pod is confirmed when its node's port in its elan-instance is there too. Then the
// Listener learns of the pods of the elan-instance.
func TestNodePortIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		here, there := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2")
		elan := netvirt.ELANName(here, "shop")
		b.pods("shop", "web", "far")
		port := netvirt.NodePort{ELAN: elan, VPN: "shop", Address: here, MAC: netvirt.NodePortMAC(here)}
		b.set(func() {
			m := b.models["shop"]
			m.Add(port,
				netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN}, netvirt.ELANInterface{Name: "shop:web", Namespace: "shop", ELAN: elan},
				netvirt.ELANInstance{Name: netvirt.ELANName(there, "shop"), SegmentType: netvirt.SegmentVXLAN},
				netvirt.ELANInterface{Name: "shop:far", Namespace: "shop", ELAN: netvirt.ELANName(there, "shop")})
		})
		b.comes("shop:web", "shop:far")
		l, told := b.run(t)
		elapse(100 * time.Millisecond)
		told()
		confirms := func(pod string, node netip.Addr) bool {
			return l.Confirms(&coe.Lease{Namespace: "shop", Name: "shop:" + pod, PodUID: pod, InterfaceUID: pod, Node: node})
		}
		require.False(t, confirms("web", here))
		require.True(t, confirms("far", there), "its node has no port in its elan-instance")

		elapse(5 * time.Second)
		b.set(func() { require.Contains(t, b.asked, []string{"shop:web"}) })
		b.comes(port.Name())
		elapse(1100 * time.Millisecond)
		require.Equal(t, [][]string{{"web"}}, told())
		require.True(t, confirms("web", here))
	})
}

// TestPaceOfLooks: the network is looked at seldom while nothing is awaited, and at once when
// something was written.
func TestPaceOfLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minute = time.Minute - 300*time.Millisecond // no look begins at the same moment
		b := newLagging()
		l, _ := b.run(t)
		elapse(time.Second)
		b.looks()
		elapse(minute)
		require.LessOrEqual(t, b.looks(), 31, "nothing is awaited")

		b.pods("shop", "web")
		l.Mark("shop")
		elapse(900 * time.Millisecond)
		require.GreaterOrEqual(t, b.looks(), 2, "something was written")
		b.comes("shop:web")
		elapse(1100 * time.Millisecond)
		require.Len(t, confirmed(l), 2)
		elapse(10 * time.Second)
		b.looks()
		elapse(minute)
		require.LessOrEqual(t, b.looks(), 31)

		b.pods("shop", "web", "never")
		l.Mark("shop")
		elapse(minute)
		require.LessOrEqual(t, b.looks(), 66, "what does not come is awaited with patience")
		elapse(1500 * time.Millisecond)
		b.set(func() { require.Equal(t, []string{"shop:never"}, b.asked[0]) })
	})
}

// TestSlowLook: a look that has waited for half a minute is followed by another one soon.
func TestSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web")
		l, _ := b.run(t)
		elapse(5 * time.Second)
		b.set(func() { b.takes = 30 * time.Second })
		elapse(32 * time.Second)
		b.comes("shop:web")
		elapse(12 * time.Second)
		require.Equal(t, []string{"shop", "shop:web"}, confirmed(l))
	})
}

// TestSlowLooksOfAnElection: looks that wait for a network, and one that fails among them, are followed by a short rest.
func TestSlowLooksOfAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web")
		l, _ := b.run(t)
		elapse(5 * time.Second)
		b.set(func() { b.each = 28 * time.Second })
		elapse(30 * time.Second)
		b.set(func() { b.fails = errors.New("it is away") })
		elapse(30 * time.Second)
		b.set(func() { b.fails = nil })
		elapse(60 * time.Second)
		b.set(func() { b.each = 0 })
		b.comes("shop:web")
		elapse(28*time.Second + 21*time.Second)
		require.Equal(t, []string{"shop", "shop:web"}, confirmed(l))
	})
}

// TestSlowLooks: steadily slow looks take a tenth of the time, if the rest after them is not too long.
func TestSlowLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web")
		b.run(t)
		elapse(5 * time.Second)
		b.set(func() { b.each = 2 * time.Second })
		elapse(time.Minute)
		b.looks()
		elapse(400 * time.Second)
		took := 2 * time.Second * time.Duration(b.looks())
		require.LessOrEqual(t, took, 40*time.Second)
		require.GreaterOrEqual(t, took, 32*time.Second)
	})
}

// TestLookThatFails: what was seen last counts.
func TestLookThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web")
		b.comes("shop:web")
		b.set(func() { b.fails = errors.New("it is away") })
		l, told := b.run(t)
		elapse(10 * time.Second)
		require.False(t, l.Observed())
		require.Empty(t, told())
		require.Equal(t, []string{"shop"}, confirmed(l))
		b.set(func() { b.fails = nil })
		elapse(1100 * time.Millisecond)
		require.Equal(t, [][]string{nil}, told())
		b.set(func() { b.fails = errors.New("it is away") })
		elapse(time.Minute)
		require.Len(t, confirmed(l), 2)
		require.Empty(t, told())
		require.LessOrEqual(t, b.looks(), 90)
	})
}

// TestStandbyObserves: a standby reports what the network lacks, too.
func TestStandbyObserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLagging()
		b.pods("shop", "web")
		b.leader(t)
		l := reconcile.New(reconcile.Config{}, "lagging", b, b.source(), reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		l.Look(t.Context())
		require.True(t, l.Status().InSync)
		require.Equal(t, []string{"shop"}, confirmed(l))
		b.comes("shop:web")
		elapse(lookInterval)
		l.Look(t.Context())
		require.Equal(t, []string{"shop", "shop:web"}, confirmed(l))
		l.Close()
	})
}

package report

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

var unlimited = Config{AnnotateQPS: math.Inf(1)}

func TestAnnotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web")
		synctest.Wait()
		require.Zero(t, w.patched(), "nothing is chosen yet")

		want := w.lease("web", "10.11.0.3")
		synctest.Wait()
		require.Equal(t, want, w.annotation("web"))
		w.tell("web") // the echo
		w.change("web", func(*kube.PodSeen) {})
		w.tell("web") // another field has changed
		synctest.Wait()
		require.Equal(t, 1, w.patched())

		want = w.lease("web", "10.11.0.4")
		synctest.Wait()
		require.Equal(t, want, w.annotation("web"))
		require.Empty(t, w.told(), "not changed by others")
		n, _ := w.reporter.annotator.behind()
		require.Zero(t, n)
		require.Equal(t, 2.0, testutil.ToFloat64(w.reporter.annotator.metrics.patches.WithLabelValues("ok")))
	})
}

// A pod that has the condition as readiness gate gets it when the backend has confirmed it, with the
// annotation if that is due too.
func TestNetworkReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		gated := func(s *kube.PodSeen, _ *coe.Pod) { s.NeedsReady = true }
		w.create("web", gated)
		w.create("other")
		w.reporter.Confirmed("uid-unknown", true)
		for _, name := range []string{"web", "other"} {
			w.reporter.Confirmed("uid-"+name, true)
		}
		synctest.Wait()
		require.Zero(t, w.patched(), "nothing is chosen yet")
		w.lease("web", "10.11.0.3")
		w.lease("other", "10.11.0.4")
		synctest.Wait()
		require.True(t, w.pod("web").IsReady)
		require.False(t, w.pod("other").IsReady)
		require.Equal(t, 2, w.patched(), "one patch of each")

		w.create("late", gated)
		w.lease("late", "10.11.0.5")
		synctest.Wait()
		w.reporter.Confirmed("uid-late", false)
		synctest.Wait()
		require.False(t, w.pod("late").IsReady)
		w.reporter.Confirmed("uid-late", true)
		synctest.Wait()
		require.True(t, w.pod("late").IsReady)

		w.change("late", func(p *kube.PodSeen) { p.IsReady = false })
		w.tell("late")
		w.reporter.Confirmed("uid-late", true)
		synctest.Wait()
		require.False(t, w.pod("late").IsReady, "the decision of somebody else")
		w.create("host", gated, func(s *kube.PodSeen, p *coe.Pod) { s.HostNetwork, p.NoNetwork = true, true })
		synctest.Wait()
		require.True(t, w.pod("host").IsReady)
		n, _ := w.reporter.annotator.behind()
		require.Zero(t, n)
		require.Empty(t, w.told())
	})
}

func TestAnnotationOfAPodThatHasNone(t *testing.T) {
	const stale = `[{"name":"stale"}]`
	cases := map[string]struct {
		make func(w *world)
		want string
	}{
		"refused": {func(w *world) {
			w.create("web", annotated(stale))
			key := coe.LeaseKey{PodUID: "uid-web", InterfaceUID: "uid-web"}
			w.store.Update(func(tx *state.Tx) {
				tx.SetRefusals("shop", map[coe.LeaseKey]coe.Refusal{key: {Reason: coe.PoolExhausted}}, nil)
			})
			w.reporter.Problems("shop", []coe.Problem{{Namespace: "shop", Kind: "pod", UID: "uid-web", Reason: coe.PoolExhausted}})
		}, ""},
		"lease released": {func(w *world) {
			w.create("web", annotated(stale))
			w.store.Update(func(tx *state.Tx) {
				tx.PutLease(&coe.Lease{PodUID: "uid-web", InterfaceUID: "uid-web", Namespace: "shop", Released: 1})
			})
		}, ""},
		"host network": {func(w *world) {
			w.create("web", annotated(stale), func(s *kube.PodSeen, p *coe.Pod) { s.HostNetwork, p.NoNetwork = true, true })
		}, ""},
		"nothing chosen yet": {func(w *world) { w.create("web", annotated(stale)) }, stale},
		"finished": {func(w *world) {
			w.create("web", annotated(stale), func(s *kube.PodSeen, p *coe.Pod) { s.Finished, p.NoNetwork = true, true })
			w.lease("web", "10.11.0.3")
		}, stale},
		"finished, and the Reporter does not know yet": {func(w *world) {
			w.create("web", annotated(stale), func(_ *kube.PodSeen, p *coe.Pod) { p.NoNetwork = true })
			w.store.Update(func(tx *state.Tx) {
				tx.PutLease(&coe.Lease{PodUID: "uid-web", InterfaceUID: "uid-web", Namespace: "shop", Released: 1})
			})
		}, stale},
		"unknown to the Store": {func(w *world) {
			w.create("web", annotated(stale))
			w.store.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "uid-web") })
			w.reporter.Leased("uid-web", "uid-of-nobody")
		}, stale},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, unlimited)
				w.run()
				c.make(w)
				synctest.Wait()
				require.Equal(t, c.want, w.annotation("web"))
			})
		})
	}
}

func annotated(value string) func(*kube.PodSeen, *coe.Pod) {
	return func(s *kube.PodSeen, _ *coe.Pod) { s.Annotation = value }
}

func TestAnnotationsAreComparedWhenABridgeBeginsToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		for i := range 50 {
			name := strconv.Itoa(i)
			w.create(name)
			value := w.lease(name, "10.11.0.3")
			if i >= 5 {
				w.change(name, func(s *kube.PodSeen) { s.Annotation = value })
				w.tell(name)
			}
		}
		pass(time.Minute)
		require.Zero(t, w.patched(), "it does not lead")
		stop := w.run()
		synctest.Wait()
		require.Equal(t, 5, w.patched())

		stop()
		w.lease("7", "10.11.0.4")
		pass(time.Minute)
		require.Equal(t, 5, w.patched())
		w.run()
		synctest.Wait()
		require.Equal(t, 6, w.patched())
	})
}

func TestAnnotationsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.create("web", annotated("x"))
		w.lease("web", "10.11.0.3")
		pass(time.Minute)
		require.Zero(t, w.patched())
	})
}

func TestAnnotationsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.slow(100 * time.Millisecond)
		w.run()
		w.create("web")
		var want string
		for i := range 100 {
			want = w.lease("web", "10.11.0."+strconv.Itoa(i))
			pass(time.Millisecond)
		}
		pass(time.Second)
		require.Equal(t, want, w.annotation("web"))
		require.Equal(t, 2, w.patched(), "the first value, and then the last")
	})
}

func TestAnnotationsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{AnnotateQPS: 10})
		w.run()
		for i := range 50 {
			w.create(strconv.Itoa(i))
			w.lease(strconv.Itoa(i), "10.11.0.3")
		}
		synctest.Wait()
		require.Equal(t, 10, w.patched(), "a burst")
		n, oldest := w.reporter.annotator.behind()
		require.Equal(t, 40, n)
		require.Equal(t, time.Now(), oldest)
		pass(2 * time.Second)
		require.Equal(t, 30, w.patched())
		pass(2 * time.Second)
		require.Equal(t, 50, w.patched())
	})
}

func TestEchoBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web")
		w.lease("web", "10.11.0.3")
		synctest.Wait()

		w.slow(time.Second)
		before := w.pod("web")
		value := w.lease("web", "10.11.0.4")
		pass(time.Millisecond)
		w.change("web", func(s *kube.PodSeen) { s.Annotation = value }) // what the patch does
		w.tell("web")
		w.reporter.Seen(before) // an older event arrives late
		pass(2 * time.Second)
		require.Equal(t, 2, w.patched())
		require.Equal(t, value, w.annotation("web"))
		pass(2 * time.Minute)
		require.Empty(t, w.told(), "not changed by others")
	})
}

func TestTamperedAnnotationIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web")
		want := w.lease("web", "10.11.0.3")
		synctest.Wait()

		w.tamper("web", "mine")
		synctest.Wait()
		require.Equal(t, want, w.annotation("web"), "at once")
		require.Len(t, w.told(), 1)
		require.Contains(t, w.told()[0], "Warning AnnotationRestored Pod/web: annotation coe-bridge.io/interfaces was changed")

		pass(time.Hour)
		before := w.patched()
		for range 500 { // for not quite a minute
			w.tamper("web", "mine")
			pass(100 * time.Millisecond)
		}
		require.Less(t, w.patched()-before, 10)
		require.Len(t, w.told(), 1)
		require.Contains(t, w.told()[0], " x2")
		pass(2 * time.Minute)
		require.Equal(t, want, w.annotation("web"))
		require.Regexp(t, " x[34]$", w.told()[0], "one per minute")

		w.tamper("web", "")
		pass(2 * time.Minute)
		require.Equal(t, want, w.annotation("web"))
	})
}

func TestTamperedWhileAPatchIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web")
		w.lease("web", "10.11.0.3")
		synctest.Wait()
		w.slow(time.Second)
		want := w.lease("web", "10.11.0.4")
		pass(time.Second / 2)
		w.tamper("web", "mine") // the patch comes after it
		pass(10 * time.Second)
		require.Equal(t, want, w.annotation("web"))
		require.Len(t, w.told(), 1)
	})
}

func TestRevisionsThatAreNoNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web", func(s *kube.PodSeen, _ *coe.Pod) { s.ResourceVersion = "a" })
		want := w.lease("web", "10.11.0.3")
		synctest.Wait()
		w.reporter.Seen(kube.PodSeen{UID: "uid-web", ResourceVersion: "b", Annotation: "mine"})
		synctest.Wait()
		require.Equal(t, 2, w.patched(), "the last event counts")
		require.Equal(t, want, w.annotation("web"))
	})
}

func TestPodThatIsGoneIsForgotten(t *testing.T) {
	cases := map[string]func(w *world){
		"deleted": func(w *world) { w.drop("web") },
		"created again with the same name": func(w *world) {
			w.change("web", func(s *kube.PodSeen) { s.UID, s.Annotation = "another", "" })
		},
		"the Reporter knows": func(w *world) {
			w.reporter.Seen(kube.PodSeen{UID: "uid-web", Deleted: true})
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, unlimited)
				w.slow(time.Second)
				w.run()
				w.create("web")
				w.lease("web", "10.11.0.3")
				synctest.Wait()
				change(w) // while the patch is under way
				pass(time.Hour)
				require.Equal(t, 1, w.patched())
				require.Empty(t, w.reporter.annotator.pods)
				require.Empty(t, w.reporter.Troubles())
				if p := w.pods["shop/web"]; p != nil && p.seen.UID == "another" {
					require.Empty(t, p.seen.Annotation)
				}
			})
		})
	}
}

func TestAnnotationsThatFailAreTriedAgain(t *testing.T) {
	cases := map[string]struct {
		err     error
		most    int           // patches of 100 pods in ten minutes
		healed  time.Duration // time until all are written afterwards
		trouble string
	}{
		"busy":         {tooMany(), 16 * 300 * 2, 6 * time.Second, "unavailable"},
		"connection":   {errors.New("connection refused"), 16 * 300 * 2, 6 * time.Second, "unavailable"},
		"forbidden":    {forbiddenByRole(), 16 * 60, 6 * time.Minute, "allow patch on pods/status"},
		"rejected":     {tooLong(), 100 * 12, 6 * time.Minute, ""},
		"unauthorized": {expired(), 16 * 60, 6 * time.Minute, "replace the bridge's credentials"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, unlimited)
				w.failWith(c.err)
				w.run()
				for i := range 100 {
					w.create(strconv.Itoa(i))
					w.lease(strconv.Itoa(i), "10.11.0.3")
				}
				pass(10 * time.Minute)
				require.LessOrEqual(t, w.patched(), c.most)
				require.Contains(t, strings.Join(w.reporter.Troubles(), "\n"), c.trouble)
				if c.trouble != "" {
					require.Equal(t, 1, strings.Count(w.log.String(), "level=ERROR"), w.log)
					require.Contains(t, w.log.String(), c.trouble)
				}
				w.failWith(nil)
				pass(c.healed)
				for i := range 100 {
					require.NotEmpty(t, w.annotation(strconv.Itoa(i)))
				}
				require.Empty(t, w.reporter.Troubles())
			})
		})
	}
}

func TestPatchThatArrivedWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.run()
		w.create("web")
		w.lease("web", "10.11.0.3")
		synctest.Wait()
		w.failWith(errors.New("connection reset"))
		value := w.lease("web", "10.11.0.4")
		synctest.Wait()
		w.lease("web", "10.11.0.5")
		w.tamper("web", value) // the effect of the patch
		w.failWith(nil)
		pass(10 * time.Second)
		require.Empty(t, w.told(), "not changed by others")
	})
}

func TestTroubleEndsWithItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.failWith(tooMany())
		w.run()
		w.create("web")
		w.lease("web", "10.11.0.3")
		pass(time.Second)
		require.Len(t, w.reporter.Troubles(), 1)
		w.reporter.Seen(kube.PodSeen{UID: "uid-web", Deleted: true})
		pass(10 * time.Minute)
		require.Empty(t, w.reporter.Troubles())
	})
}

func TestHungAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unlimited)
		w.slow(time.Hour)
		w.run()
		w.create("web")
		want := w.lease("web", "10.11.0.3")
		pass(11 * time.Second)
		require.Contains(t, strings.Join(w.reporter.Troubles(), ""), "deadline exceeded")
		w.slow(0)
		pass(11 * time.Second)
		require.Equal(t, want, w.annotation("web"))
	})
}

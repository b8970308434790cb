package report

import (
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

func podProblem(name string, reason coe.Reason, message string) coe.Problem {
	return coe.Problem{Namespace: "shop", Kind: "pod", UID: "uid-" + name, Name: name, Reason: reason, Message: message}
}

func TestProblemsAreTold(t *testing.T) {
	service := func(w *world) {
		w.store.Update(func(tx *state.Tx) {
			tx.PutService(coe.Kubernetes, &coe.Service{UID: "uid-db", Namespace: "shop", Name: "db"})
			tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "uid-other", Namespace: "shop", Name: "other"})
		})
	}
	rejected := func(kind, name string) coe.Problem {
		return coe.Problem{Namespace: "shop", Kind: kind, UID: name, Name: name, Reason: coe.BackendRejected, Message: "no"}
	}
	cases := map[string]struct {
		problem coe.Problem
		want    []string
	}{
		"pod":             {podProblem("web", coe.PoolExhausted, "enlarge it"), []string{"Warning PoolExhausted Pod/web: enlarge it x1"}},
		"waiting":         {podProblem("web", coe.Waiting, "soon"), nil},
		"not scheduled":   {podProblem("unscheduled", coe.NoNode, "no node"), nil},
		"node not known":  {podProblem("web", coe.NoNode, "no such node"), []string{"Warning NoNode Pod/web: no such node x1"}},
		"of RESTCONF":     {podProblem("other", coe.NoAddress, "no pool"), nil},
		"of nobody":       {podProblem("nobody", coe.NoAddress, "no pool"), nil},
		"service":         {coe.Problem{Namespace: "shop", Kind: "service", UID: "uid-db", Reason: coe.NoPort, Message: "p"}, []string{"Warning NoPort Service/db: p x1"}},
		"interface":       {rejected("interface", "shop:web"), []string{"Warning BackendRejected Pod/web: no x1"}},
		"adjacency":       {rejected("adjacency", "shop:web 10.11.0.3"), []string{"Warning BackendRejected Pod/web: no x1"}},
		"more interfaces": {rejected("vpn-interface", "shop:web:u2"), []string{"Warning BackendRejected Pod/web: no x1"}},
		"floating IP":     {rejected("floating-ip", "shop shop:web 10.11.0.3"), []string{"Warning BackendRejected Pod/web: no x1"}},
		"service object":  {rejected("service", "shop uid-db"), []string{"Warning BackendRejected Service/db: no x1"}},
		"service address": {rejected("service-vip", "shop uid-db tcp 10.96.0.1:80"), []string{"Warning BackendRejected Service/db: no x1"}},
		"instance":        {rejected("elan-instance", "10.0.0.1:shop"), nil},
		"vpn":             {rejected("vpn-instance", "shop"), nil},
		"long message":    {podProblem("web", coe.NoAddress, strings.Repeat("é", 1000)), []string{"Warning NoAddress Pod/web: " + strings.Repeat("é", 512) + " x1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Config{})
				w.create("web")
				w.create("unscheduled", func(_ *kube.PodSeen, p *coe.Pod) { p.NodeName = "" })
				service(w)
				w.run()
				w.reporter.Problems("shop", []coe.Problem{c.problem})
				pass(grace / 2)
				require.Empty(t, w.told(), "it may be solved soon")
				pass(grace)
				require.ElementsMatch(t, c.want, w.told())
			})
		})
	}
}

// TestNamespacesTakeTurns: many problems in one namespace do not delay the Events of another.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		var noisy []coe.Problem
		for i := range 1000 {
			name := "noisy" + strconv.Itoa(i)
			w.create(name)
			noisy = append(noisy, podProblem(name, coe.PoolExhausted, "enlarge it"))
		}
		w.reporter.Problems("shop", noisy)
		pass(2 * grace)
		w.create("web", func(seen *kube.PodSeen, p *coe.Pod) { seen.Namespace, p.Namespace = "quiet", "quiet" })
		problem := podProblem("web", coe.NoAddress, "add a pool")
		problem.Namespace = "quiet"
		w.reporter.Problems("quiet", []coe.Problem{problem})
		pass(2 * grace)
		require.Contains(t, w.told(), "Warning NoAddress Pod/web: add a pool x1")
		require.Less(t, len(w.told()), len(noisy), "Events of the other namespace are still waiting")
	})
}

func TestProblemThatStaysComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.create("web")
		exhausted := podProblem("web", coe.PoolExhausted, "enlarge it")
		for range 100 { // mapped again and again
			w.reporter.Problems("shop", []coe.Problem{exhausted})
			pass(time.Second)
		}
		require.Equal(t, []string{"Warning PoolExhausted Pod/web: enlarge it x1"}, w.told())
		pass(2 * retell)
		require.Equal(t, []string{"Warning PoolExhausted Pod/web: enlarge it x3"}, w.told(), "before the API server deletes it")

		w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.Waiting, "soon")})
		pass(time.Minute)
		require.Len(t, w.told(), 1, "not mapped yet")
		w.reporter.Problems("shop", nil)
		pass(time.Minute)
		const mapped = "Normal Mapped Pod/web: the problem is solved: the object is mapped now x1"
		require.ElementsMatch(t, []string{"Warning PoolExhausted Pod/web: enlarge it x3", mapped}, w.told())

		w.reporter.Problems("shop", []coe.Problem{exhausted})
		pass(time.Minute)
		require.ElementsMatch(t, []string{"Warning PoolExhausted Pod/web: enlarge it x4", mapped}, w.told())

		w.forgetEvents() // as the API server does
		pass(retell)
		require.Equal(t, []string{"Warning PoolExhausted Pod/web: enlarge it x1"}, w.told())

		w.store.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "uid-web") })
		w.reporter.Problems("shop", nil)
		pass(time.Hour)
		require.Len(t, w.told(), 1, "no Mapped for a deleted pod")
		require.Empty(t, w.reporter.events.objects)
	})
}

func TestProblemThatHealsAtOnceIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.create("web")
		w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.NoNode, "no such node")})
		pass(grace / 2)
		w.reporter.Problems("shop", nil)
		pass(time.Minute)
		require.Empty(t, w.told())
	})
}

func TestPodThatFinishesIsNotMapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.create("web")
		w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.NoAddress, "no pool")})
		pass(time.Minute)
		w.store.Update(func(tx *state.Tx) {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "uid-web", Namespace: "shop", Name: "web", NoNetwork: true})
		})
		w.reporter.Problems("shop", nil)
		pass(time.Minute)
		require.Equal(t, []string{"Warning NoAddress Pod/web: no pool x1"}, w.told())
	})
}

func TestProblemsThatFlapAreFewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.create("web")
		for i := range 600 { // for half an hour
			w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.AddressTaken, "by "+strconv.Itoa(i%2))})
			pass(3 * time.Second)
		}
		require.Less(t, testutil.ToFloat64(w.reporter.events.counter.WithLabelValues("sent")), 45.0)
		require.LessOrEqual(t, len(w.told()), 45)
	})
}

func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{EventQPS: 10})
		var all []coe.Problem
		for i := range 200 {
			w.create(strconv.Itoa(i))
			all = append(all, podProblem(strconv.Itoa(i), coe.NoAddress, "no pool"))
		}
		w.reporter.Problems("shop", all)
		w.run() // it becomes the leader
		pass(grace)
		require.Len(t, w.told(), 20)
		pass(5 * time.Second)
		require.Len(t, w.told(), 70)
		w.reporter.Problems("shop", all[:60])
		pass(time.Minute)
		warnings := 0
		for _, told := range w.told() {
			if strings.HasPrefix(told, "Warning") {
				warnings++
			}
		}
		require.LessOrEqual(t, warnings, 130, "problems that were solved in time are not reported")
	})
}

func TestEventsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.failWith(forbiddenByRole())
		w.run()
		w.create("web")
		w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.NoAddress, "no pool")})
		pass(time.Hour / 2)
		require.Equal(t, 3, strings.Count(w.log.String(), "allow create and patch on events to the bridge's account"), w.log)
		require.Contains(t, w.reporter.Troubles()[0], "allow create and patch on events")
		w.failWith(nil)
		pass(6 * time.Minute)
		require.Equal(t, []string{"Warning NoAddress Pod/web: no pool x1"}, w.told())
		require.Empty(t, w.reporter.Troubles())
	})
}

func TestNoEventsInANamespaceThatGoes(t *testing.T) {
	t.Run("known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.store.Update(func(tx *state.Tx) {
				tx.PutNamespace(coe.Kubernetes, &coe.Namespace{Name: "shop", Terminating: true})
			})
			w.run()
			w.create("web")
			w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.NoAddress, "no pool")})
			pass(time.Minute)
			require.Empty(t, w.told())
			require.Empty(t, w.reporter.events.objects)
		})
	})
	t.Run("the API server says so", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.failWith(terminating())
			w.run()
			w.create("web")
			w.reporter.Problems("shop", []coe.Problem{podProblem("web", coe.NoAddress, "no pool")})
			pass(time.Minute)
			require.Equal(t, 1.0, testutil.ToFloat64(w.reporter.events.counter.WithLabelValues("dropped")))
			require.Empty(t, w.reporter.Troubles())
		})
	})
}

// The problem of an EgressIP becomes an Event in the namespace default, and so does its end. A deleted EgressIP has no Event.
func TestProblemsOfEgressIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.run()
		w.store.Update(func(tx *state.Tx) { tx.PutEgressSpec(&coe.EgressSpec{UID: "uid-shop", Name: "shop"}) })
		problem := func(uid string) coe.Problem {
			return coe.Problem{Kind: coe.EgressKind, UID: uid, Name: "shop", Reason: coe.Waiting, Message: "no node may hold it"}
		}
		w.reporter.Problems("", []coe.Problem{problem("uid-shop"), problem("uid-former")})
		pass(2 * grace)
		const waits = "Warning Waiting EgressIP/shop: no node may hold it x1"
		require.Equal(t, []string{waits}, w.told())
		for _, e := range w.events {
			require.Equal(t, "default", e.Namespace)
			require.Empty(t, e.InvolvedObject.Namespace)
			require.Equal(t, "coe-bridge.io/v1", e.InvolvedObject.APIVersion)
		}
		w.reporter.Problems("", nil)
		pass(time.Minute)
		require.ElementsMatch(t, []string{waits, "Normal Mapped EgressIP/shop: the problem is solved: the object is mapped now x1"}, w.told())

		w.reporter.Problems("", []coe.Problem{problem("uid-shop")})
		w.store.Update(func(tx *state.Tx) { tx.DeleteEgressSpec("uid-shop") })
		w.reporter.Problems("", nil)
		pass(time.Hour)
		require.Len(t, w.told(), 2)
		require.Empty(t, w.reporter.events.objects)
	})
}

package odlpods_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestMoveOnRealOpenDaylight moves the nodes of a cluster from OVN to OpenDaylight and back while pods run, as docs/opendaylight.md
// tells operators.
func TestMoveOnRealOpenDaylight(t *testing.T) {
	w := newMoving(t)
	w.step("pods run on OVN", w.testBefore)
	w.step("all nodes are moved to OpenDaylight", func() { w.testMove(odlpods.OVN, odlpods.OpenDaylight, w.toOpenDaylight) })
	w.step("all nodes are moved to OVN", func() { w.testMove(odlpods.OpenDaylight, odlpods.OVN, w.toOVN) })
}

// TestDrainedMoveOnRealOpenDaylight is TestMoveOnRealOpenDaylight for nodes that are drained before. A service is asked all the time.
func TestDrainedMoveOnRealOpenDaylight(t *testing.T) {
	w := newMoving(t)
	w.step("pods run on OVN", w.testBefore)
	w.step("they use a service", w.testService)
	w.step("all nodes are drained and moved to OpenDaylight", w.testDrainedMove)
}

// newMoving starts a lab for hosts with OVN, and an OpenDaylight that has none of them yet.
func newMoving(t *testing.T) *moving {
	odl.SkipUnlessAsked(t)
	bin := odlpods.Programs(t)
	hosts := ovnhost.ForTest(t, "host1", "host2")
	c, err := odl.Start(t.Context(), odl.Config{Lab: hosts, Release: odl.Oxygen, Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	lab, err := odlpods.New(t.Context(), odlpods.Config{Controller: c, Bin: bin, CallDeadline: time.Minute})
	require.NoError(t, err)
	return &moving{world{t: t, lab: lab}}
}

// longestGap is the longest time for which pods on a host may lose packets while another one is moved.
const longestGap = 5 * time.Second

// moving is a lab whose hosts are moved between backends.
type moving struct{ world }

func (w *moving) testBefore() {
	require.NoError(w.t, w.lab.StartBridgeOn(w.t.Context(), "none", odlpods.OVN))
	require.NoError(w.t, w.lab.ApplyNodes(w.t.Context()))
	for _, h := range w.lab.Hosts {
		require.NoError(w.t, w.lab.StartAgent(w.t.Context(), h, odlpods.OVN))
	}
	for i, p := range []odlpods.Pod{
		pod(1, "web", "front", "host1"), pod(2, "shop", "cart", "host1"), pod(3, "web", "back", "host2"), pod(4, "shop", "till", "host2"),
	} {
		require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
		plugged, err := w.lab.Plug(w.t.Context(), p)
		require.NoError(w.t, err, "pod %d", i)
		w.pods = append(w.pods, plugged)
	}
	w.reachAll()
}

// testMove moves all nodes, one after the other. Pods stay plugged in and keep their addresses. Those on the node that is not moved
// reach each other all the time, and those on the same node again when it is moved. In the end all reach all.
func (w *moving) testMove(from, to string, move func(*ovnhost.Host)) {
	ctx := w.t.Context()
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", from, to))
	w.inSync(to + " (filled)")
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", to, from))
	for i, h := range w.lab.Hosts {
		begun := time.Now()
		others := w.on(w.lab.Hosts[1-i])
		pings, err := w.lab.StartPings(ctx, to+"-"+h.Name, others[0].Pod, others[1].Address)
		require.NoError(w.t, err)
		move(h)
		here := w.on(h)
		w.mustPing(here[0].Pod, here[1].Address)
		w.mustPing(here[1].Pod, here[0].Address)
		moved := time.Since(begun)
		got, err := pings.End()
		require.NoError(w.t, err)
		w.t.Logf("pods of %s reach each other on %s after %.1f s; on the other host %d of %d packets were lost, and none answered for %.1f s at most",
			h.Name, to, moved.Seconds(), got.Lost, got.Sent, got.Gap.Seconds())
		require.Less(w.t, got.Gap, longestGap)
	}
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", to))
	w.inSync(to)
	w.reachAll()
	for _, p := range w.pods {
		again, err := w.lab.Add(ctx, p.Pod)
		require.NoError(w.t, err)
		require.Equal(w.t, p.Result.IPs, again.Result.IPs)
		require.Equal(w.t, p.Port(), again.Port())
	}
	late := pod(9, "web", "late", "host2")
	require.NoError(w.t, w.lab.ApplyPods(ctx, late))
	_, err := w.lab.Plug(ctx, late)
	require.NoError(w.t, err)
	for _, p := range w.pods {
		w.mustPing(late, p.Address)
	}
	require.NoError(w.t, w.lab.Unplug(ctx, late))
	require.NoError(w.t, w.lab.DeletePod(ctx, late))
}

// on returns the pods on a host.
func (w *moving) on(h *ovnhost.Host) (all []odlpods.Plugged) {
	for _, p := range w.pods {
		if p.Host == h.Name {
			all = append(all, p)
		}
	}
	return all
}

// inSync waits until the status of the bridge has a line that says so.
func (w *moving) inSync(backend string) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		said, err := w.lab.Ask(ctx, "status")
		if err == nil && !strings.Contains(said, backend+": in sync") {
			err = errors.New(said)
		}
		return err
	}))
}

func (w *moving) toOpenDaylight(h *ovnhost.Host) {
	require.NoError(w.t, h.Controller.Terminate())
	for _, command := range []string{"del-flows", "del-groups"} {
		_, err := w.lab.Exec(w.t.Context(), h.Name, "ovs-ofctl", "--protocols=OpenFlow15", command, "unix:"+filepath.Join(h.Dir, odl.Bridge+".mgmt"))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, w.lab.StartAgent(w.t.Context(), h, odlpods.OpenDaylight))
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error { return w.lab.Ready(ctx, h.Name) }))
}

func (w *moving) toOVN(h *ovnhost.Host) {
	require.NoError(w.t, w.lab.StartAgent(w.t.Context(), h, odlpods.OVN))
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		out, err := h.VSCtl(ctx, "get-controller", odl.Bridge)
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("the bridge still has the controller %s", out)
		}
		return err
	}))
	require.NoError(w.t, h.Controller.Start(w.t.Context()))
}

// serving returns the pods of namespace web.
func (w *moving) serving() (all []string) {
	for _, p := range w.pods {
		if p.Namespace == "web" {
			all = append(all, p.String())
		}
	}
	return all
}

// applyService makes the pods of namespace web the endpoints of its service.
func (w *moving) applyService() {
	w.t.Helper()
	var endpoints []string
	for _, p := range w.pods {
		if p.Namespace == "web" {
			endpoints = append(endpoints, p.UID)
		}
	}
	require.NoError(w.t, w.lab.Apply(w.t.Context(), "services", fmt.Sprintf(`service:services:
- uid: 5e55101e-c0e0-4000-8000-000000000001
  name: page
  network-NS: web
  cluster-ip-address: %s
  service-ports: [{name: http, port: %d, target-port: "%d"}]
  endpoints: [%s]
`, page.Addr(), page.Port(), podPort, strings.Join(endpoints, ", "))))
}

func (w *moving) testService() {
	for _, p := range w.pods {
		w.serve(p.String(), podPort)
	}
	w.applyService()
	for _, p := range w.pods {
		w.both(p.String(), page, w.serving())
	}
}

// testDrainedMove drains each node before it is moved: its pods are made again on the other node, the service leads to these, and the
// former ones are deleted. A pod there asks the service all the time. In the end all pods use it, also one on the node that was moved last.
func (w *moving) testDrainedMove() {
	ctx := w.t.Context()
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", odlpods.OVN, odlpods.OpenDaylight))
	w.inSync(odlpods.OpenDaylight + " (filled)")
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", odlpods.OpenDaylight, odlpods.OVN))
	for i, h := range w.lab.Hosts {
		began := time.Now()
		asks := w.drain(h, w.lab.Hosts[1-i], 10*(i+1))
		drained := time.Since(began)
		w.toOpenDaylight(h)
		moved := time.Since(began)
		answers, gap := asks.end()
		w.t.Logf("%s was drained after %.1f s and moved after %.1f s; the service answered %d times, and not for %.1f s at most",
			h.Name, drained.Seconds(), moved.Seconds(), answers, gap.Seconds())
		require.Less(w.t, gap, longestGap)
	}
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", odlpods.OpenDaylight))
	w.inSync(odlpods.OpenDaylight)
	w.plug(pod(30, "shop", "last", "host2"))
	w.reachAll()
	for _, p := range w.pods {
		w.both(p.String(), page, w.serving())
	}
}

// drain makes the pods of a host again on another one, and deletes them when the service leads to the new ones alone. The new ones have
// numbers from n on. One of them asks the service until the caller ends that.
func (w *moving) drain(h, to *ovnhost.Host, n int) *asking {
	w.t.Helper()
	leave := w.on(h)
	w.pods = w.on(to)
	for i, p := range leave {
		name, _, _ := strings.Cut(p.Name, "-")
		w.plug(pod(n+i, p.Namespace, fmt.Sprintf("%s-%d", name, n+i), to.Name))
	}
	client := w.pods[len(w.pods)-1].String()
	w.applyService()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		for range 20 {
			answer, err := w.lab.HTTPGet(ctx, client, "http://"+page.String()+"/")
			if err != nil {
				return err
			}
			if by, _, _ := strings.Cut(answer, " "); !slices.Contains(w.serving(), by) {
				return fmt.Errorf("%s answers, which leaves", by)
			}
		}
		return nil
	}))
	asks := w.startAsking(client)
	for _, p := range leave {
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
		require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p.Pod))
	}
	return asks
}

// asking asks a service again and again.
type asking struct {
	stop    context.CancelFunc
	done    chan struct{}
	answers int
	last    time.Time
	gap     time.Duration // the longest time between two answers, or since the last one
}

// startAsking asks the service from a pod, ten times a second.
func (w *moving) startAsking(from string) *asking {
	ctx, stop := context.WithCancel(w.t.Context())
	a := &asking{stop: stop, done: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(a.done)
		each := time.NewTicker(100 * time.Millisecond)
		defer each.Stop()
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, time.Second)
			_, err := w.lab.HTTPGet(within, from, "http://"+page.String()+"/")
			cancel()
			if err == nil {
				a.answers++
				a.gap, a.last = max(a.gap, time.Since(a.last)), time.Now()
			}
			<-each.C
		}
	}()
	return a
}

// end ends the questions.
func (a *asking) end() (answers int, gap time.Duration) {
	a.stop()
	<-a.done
	return a.answers, max(a.gap, time.Since(a.last))
}

// plug plugs a pod in that says who it is.
func (w *moving) plug(p odlpods.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
	plugged, err := w.lab.Plug(w.t.Context(), p)
	require.NoError(w.t, err)
	w.serve(p.String(), podPort)
	w.pods = append(w.pods, plugged)
}

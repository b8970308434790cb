package odlpods_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	w.step("pods run on OVN", func() { w.testBefore(odlpods.OVN) })
	w.step("all nodes are moved to OpenDaylight", func() { w.testMove(there) })
	w.step("all nodes are moved to OVN", func() { w.testMove(back) })
}

// direction is a direction of a move: the backends, and how a node is moved.
type direction struct {
	from, to string
	move     func(*moving, *ovnhost.Host)
}

var (
	there = direction{odlpods.OVN, odlpods.OpenDaylight, (*moving).toOpenDaylight}
	back  = direction{odlpods.OpenDaylight, odlpods.OVN, (*moving).toOVN}
)

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
	return &moving{world: world{t: t, lab: lab}}
}

// longestGap is the longest time for which pods on a host may lose packets while another one is moved. If the host has been moved to
// OpenDaylight before, the ports of its pods are replaced meanwhile.
const longestGap = 15 * time.Second

// plugWithin bounds the attempts to plug a pod in.
const plugWithin = 4 * time.Minute

// moving is a lab whose hosts are moved between backends.
type moving struct {
	world
	bank []odlpods.Plugged // see testPolicy
}

// testBefore plugs pods in while a backend has all nodes. The hosts of the lab begin with OVN.
func (w *moving) testBefore(backend string) {
	require.NoError(w.t, w.lab.StartBridgeOn(w.t.Context(), "none", backend))
	require.NoError(w.t, w.lab.ApplyNodes(w.t.Context()))
	for _, h := range w.lab.Hosts {
		if backend == odlpods.OpenDaylight {
			w.toOpenDaylight(h)
			continue
		}
		require.NoError(w.t, w.lab.StartAgent(w.t.Context(), h, backend))
	}
	if backend == odlpods.OpenDaylight {
		require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	}
	for _, p := range []odlpods.Pod{
		pod(1, "web", "front", "host1"), pod(2, "shop", "cart", "host1"), pod(3, "web", "back", "host2"), pod(4, "shop", "till", "host2"),
	} {
		w.pods = append(w.pods, w.plug(p))
	}
	w.reachAll()
}

// testMove moves all nodes, one after the other. Pods stay plugged in and keep their addresses. Those on the node that is not moved
// reach each other all the time, and those on the same node again when it is moved. In the end all reach all.
func (w *moving) testMove(d direction) {
	ctx := w.t.Context()
	w.fill(d)
	var begun time.Time
	for i, h := range w.lab.Hosts {
		begun = time.Now()
		others := w.on(w.lab.Hosts[1-i])
		pings, err := w.lab.StartPings(ctx, d.to+"-"+h.Name, others[0].Pod, others[1].Address)
		require.NoError(w.t, err)
		d.move(w, h)
		here := w.on(h)
		w.mustPing(here[0].Pod, here[1].Address)
		w.mustPing(here[1].Pod, here[0].Address)
		moved := time.Since(begun)
		got, err := pings.End()
		require.NoError(w.t, err)
		w.t.Logf("pods of %s reach each other on %s after %.1f s; on the other host %d of %d packets were lost, and none answered for %.1f s at most",
			h.Name, d.to, moved.Seconds(), got.Lost, got.Sent, got.Gap.Seconds())
		require.Less(w.t, got.Gap, longestGap)
	}
	last := w.on(w.lab.Hosts[len(w.lab.Hosts)-1])
	pings, err := w.lab.StartPings(ctx, d.to+"-after", last[0].Pod, last[1].Address)
	require.NoError(w.t, err)
	w.finish(d)
	w.reachAll()
	moved := time.Since(begun)
	got, err := pings.End()
	require.NoError(w.t, err)
	w.t.Logf("all pods reach all %.1f s after the move of the last node has begun; between its pods %d of %d packets were lost, and none answered for %.1f s at most",
		moved.Seconds(), got.Lost, got.Sent, got.Gap.Seconds())
	for _, p := range w.pods {
		again, err := w.lab.Add(ctx, p.Pod)
		require.NoError(w.t, err)
		require.Equal(w.t, p.Result.IPs, again.Result.IPs)
		require.Equal(w.t, p.Port(), again.Port())
	}
	late := pod(9, "web", "late", "host2")
	require.NoError(w.t, w.lab.ApplyPods(ctx, late))
	_, err = w.lab.Plug(ctx, late)
	require.NoError(w.t, err)
	for _, p := range w.pods {
		w.mustPing(late, p.Address)
	}
	require.NoError(w.t, w.lab.Unplug(ctx, late))
	require.NoError(w.t, w.lab.DeletePod(ctx, late))
}

// fill fills the backend to which nodes are moved. Then OpenDaylight comes first, as long as a node is with it.
func (w *moving) fill(d direction) {
	w.t.Helper()
	require.NoError(w.t, w.lab.StartBridgeOn(w.t.Context(), "none", d.from, d.to))
	w.inSync(d.to + " (filled)")
	said, err := w.lab.Convert(w.t.Context(), d.to)
	require.NoError(w.t, err)
	require.Contains(w.t, said, fmt.Sprintf("from %s to %s: 0 changes", d.from, d.to))
	if d.from != odlpods.OpenDaylight {
		require.NoError(w.t, w.lab.StartBridgeOn(w.t.Context(), "none", odlpods.OpenDaylight, d.from))
	}
}

// finish ends the move when all nodes are moved.
func (w *moving) finish(d direction) {
	w.t.Helper()
	require.NoError(w.t, w.lab.StartBridgeOn(w.t.Context(), "none", d.to))
	w.inSync(d.to)
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

// plug plugs a pod in, as runtimes do: a call that fails is repeated.
func (w *moving) plug(p odlpods.Pod) odlpods.Plugged {
	w.t.Helper()
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
	ctx, cancel := context.WithTimeout(w.t.Context(), plugWithin)
	defer cancel()
	plugged, err := w.lab.Retry(ctx, p, func(err error) { w.t.Logf("again: %v", err) })
	require.NoError(w.t, err)
	return plugged
}

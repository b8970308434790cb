package odlpods_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestDrainedMoveOnRealOpenDaylight moves the nodes of a cluster in both directions, as docs/opendaylight.md tells operators: each node is
// drained before it is moved. Pods use a service and a policy holds all the time.
func TestDrainedMoveOnRealOpenDaylight(t *testing.T) {
	for _, d := range []direction{there, back} {
		t.Run("to "+d.to, func(t *testing.T) {
			w := newMoving(t)
			w.step("pods run on "+d.from, func() { w.testBefore(d.from) })
			w.step("they use a service", w.testService)
			w.step("a policy keeps strangers out", func() { w.testPolicy(d.from) })
			if d.from == odlpods.OpenDaylight {
				w.step("the wrong order of backends keeps coe0 and the services", w.testWrongOrder)
			}
			w.step("all nodes are drained and moved to "+d.to, func() { w.testDrainedMove(d) })
		})
	}
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

// testWrongOrder starts a bridge that serves OVN first while the nodes are with OpenDaylight. Their agents say so, and nodes and pods keep
// what they have, until OpenDaylight comes first again.
func (w *moving) testWrongOrder() {
	ctx := w.t.Context()
	works := func() {
		for _, p := range w.pods {
			w.both(p.String(), page, w.serving())
			for _, h := range w.lab.Hosts {
				w.ask(h.Name, netip.AddrPortFrom(p.Address, podPort))
			}
		}
		w.guarded(w.pods, odlpods.OpenDaylight)
	}
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", odlpods.OVN, odlpods.OpenDaylight))
	w.inSync(odlpods.OpenDaylight + " (filled)")
	for _, h := range w.lab.Hosts {
		require.NoError(w.t, odlpods.Await(ctx, func(ctx context.Context) error {
			if err := w.lab.Ready(ctx, h.Name); err == nil || !strings.Contains(err.Error(), uplink.ErrServesOVN.Error()) {
				return fmt.Errorf("the agent of %s does not say that the order is wrong: %w", h.Name, err)
			}
			return nil
		}))
		said, err := w.lab.Doctor(ctx, h.Name)
		require.Error(w.t, err)
		require.Contains(w.t, said+err.Error(), uplink.ErrServesOVN.Error())
	}
	works()
	require.NoError(w.t, w.lab.StartBridgeOn(ctx, "none", odlpods.OpenDaylight))
	for _, h := range w.lab.Hosts {
		require.NoError(w.t, odlpods.Await(ctx, func(ctx context.Context) error { return w.lab.Ready(ctx, h.Name) }))
	}
	w.inSync(odlpods.OpenDaylight)
	works()
}

// policy is a network policy of the namespace default. Its pods accept only connections from each other, to the port of pods.
const policy = `k8s:network-policy:
- uuid: 90110000-c0e0-4000-8000-000000000001
  name: members
  network-policy-spec:
    pod-selector: {}
    ingress:
    - network-policy-ingress-rule:
        ingress-ports: [{network-policy-port: {protocol: TCP, port: "%d"}}]
        from: [{network-policy-peer: {peer-pod-selector: {}}}]
`

// testPolicy plugs two pods in that a policy isolates: a vault, and a clerk that uses it. All other pods are strangers.
func (w *moving) testPolicy(backend string) {
	require.NoError(w.t, w.lab.Apply(w.t.Context(), "policies", fmt.Sprintf(policy, podPort)))
	w.openBank(w.lab.Hosts[0], backend, 5)
	w.guarded(w.pods, backend)
}

// openBank plugs the vault and the clerk in on a host of a backend, and deletes the former ones. The new ones have numbers from n on.
func (w *moving) openBank(h *ovnhost.Host, backend string, n int) {
	w.t.Helper()
	former := w.bank
	w.bank = nil
	for i, name := range []string{"vault", "clerk"} {
		w.bank = append(w.bank, w.open(pod(n+i, "default", fmt.Sprintf("%s-%d", name, n+i), h.Name)))
		w.guarded(w.on(h)[:1], backend)
	}
	w.remove(former)
}

// vault returns the address of the vault.
func (w *moving) vault() netip.AddrPort { return netip.AddrPortFrom(w.bank[0].Address, podPort) }

// guarded requires that the vault is closed to strangers, and open to the clerk. OpenDaylight can write the rules of a new pod moments
// after its ADD. OVN has them before the first packet.
func (w *moving) guarded(strangers []odlpods.Plugged, backend string) {
	w.t.Helper()
	for _, p := range strangers {
		closed := func(ctx context.Context) error {
			if answer, err := w.try(ctx, p.String(), w.vault()); err == nil {
				return fmt.Errorf("%s gets the answer %q of the vault", p, answer)
			}
			return nil
		}
		if backend == odlpods.OVN {
			require.NoError(w.t, closed(w.t.Context()))
		} else {
			require.NoError(w.t, odlpods.Await(w.t.Context(), closed))
		}
	}
	if len(w.bank) > 1 {
		w.ask(w.bank[1].String(), w.vault())
	}
}

// testDrainedMove drains each node before it is moved: its pods are made again on the other node, the service leads to these, and the
// former ones are deleted. Pods there use the service and the vault all the time, their node probes the vault, and a stranger gets no
// answer of it. In the end all pods use the service, also one on the node that was moved last.
func (w *moving) testDrainedMove(d direction) {
	w.fill(d)
	for i, h := range w.lab.Hosts {
		to, backend := w.lab.Hosts[1-i], d.from
		if i > 0 {
			backend = d.to // the former node
		}
		began := time.Now()
		w.drain(h, to, 10*(i+1))
		drained := time.Since(began)
		w.openBank(to, backend, 10*(i+1)+5)
		w.guarded(w.on(to), backend)
		asks := w.askAll(to)
		began = time.Now()
		d.move(w, h)
		moved := time.Since(began)
		if i == len(w.lab.Hosts)-1 {
			w.finish(d)
		}
		w.t.Logf("%s was drained in %.1f s and moved in %.1f s", h.Name, drained.Seconds(), moved.Seconds())
		w.end(asks)
	}
	w.pods = append(w.pods, w.open(pod(30, "shop", "last", "host2")))
	w.reachAll()
	for _, p := range w.pods {
		w.both(p.String(), page, w.serving())
	}
	w.guarded(w.pods, d.to)
}

// drain makes the pods of a host again on another one, and deletes them when the service leads to the new ones alone. The new ones have
// numbers from n on. One of them asks the service while the others are deleted.
func (w *moving) drain(h, to *ovnhost.Host, n int) {
	w.t.Helper()
	leave := w.on(h)
	w.pods = w.on(to)
	for i, p := range leave {
		name, _, _ := strings.Cut(p.Name, "-")
		w.pods = append(w.pods, w.open(pod(n+i, p.Namespace, fmt.Sprintf("%s-%d", name, n+i), to.Name)))
	}
	w.applyService()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		for range 20 {
			answer, err := w.lab.HTTPGet(ctx, w.client(), "http://"+page.String()+"/")
			if err != nil {
				return err
			}
			if by, _, _ := strings.Cut(answer, " "); !slices.Contains(w.serving(), by) {
				return fmt.Errorf("%s answers, which leaves", by)
			}
		}
		return nil
	}))
	asks := w.startAsking(w.client(), page)
	w.remove(leave)
	w.answered("the service, while pods are deleted", asks)
}

// client returns the pod that was plugged in last, which uses the service.
func (w *moving) client() string { return w.pods[len(w.pods)-1].String() }

// remove unplugs and deletes pods.
func (w *moving) remove(pods []odlpods.Plugged) {
	w.t.Helper()
	for _, p := range pods {
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
		require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p.Pod))
	}
}

// asked are the questions during the move of a node.
type asked struct {
	service, clerk, probe *asking // must be answered
	stranger              *asking // must not
}

// askAll asks the service and the vault from pods on a host, and the vault from the host too.
func (w *moving) askAll(h *ovnhost.Host) asked {
	return asked{
		service: w.startAsking(w.client(), page), clerk: w.startAsking(w.bank[1].String(), w.vault()),
		probe: w.startAsking(h.Name, w.vault()), stranger: w.startAsking(w.client(), w.vault()),
	}
}

func (w *moving) end(a asked) {
	w.t.Helper()
	w.answered("the service", a.service)
	w.answered("the vault, asked by the clerk", a.clerk)
	w.answered("the vault, asked by its node", a.probe)
	answers, _ := a.stranger.end()
	require.Zero(w.t, answers, "of the vault to a stranger")
}

// answered ends questions, and requires that they were answered with gaps that are short enough.
func (w *moving) answered(what string, a *asking) {
	w.t.Helper()
	answers, gap := a.end()
	w.t.Logf("%s answered %d times, and not for %.1f s at most", what, answers, gap.Seconds())
	require.Less(w.t, gap, longestGap, what)
}

// asking asks an address again and again.
type asking struct {
	stop    context.CancelFunc
	done    chan struct{}
	answers int
	last    time.Time
	gap     time.Duration // the longest time between two answers, or since the last one
}

// startAsking asks an address from a pod or a host, ten times a second.
func (w *moving) startAsking(from string, at netip.AddrPort) *asking {
	ctx, stop := context.WithCancel(w.t.Context())
	a := &asking{stop: stop, done: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(a.done)
		each := time.NewTicker(100 * time.Millisecond)
		defer each.Stop()
		for ctx.Err() == nil {
			if _, err := w.try(ctx, from, at); err == nil {
				a.answers++
				a.gap, a.last = max(a.gap, time.Since(a.last)), time.Now()
			}
			<-each.C
		}
	}()
	return a
}

// try asks an address, and waits a second for the answer.
func (w *moving) try(ctx context.Context, from string, at netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return w.lab.HTTPGet(ctx, from, "http://"+at.String()+"/")
}

// end ends the questions.
func (a *asking) end() (answers int, gap time.Duration) {
	a.stop()
	<-a.done
	return a.answers, max(a.gap, time.Since(a.last))
}

// open plugs a pod in that says who it is.
func (w *moving) open(p odlpods.Pod) odlpods.Plugged {
	w.t.Helper()
	plugged := w.plug(p)
	w.serve(p.String(), podPort)
	return plugged
}

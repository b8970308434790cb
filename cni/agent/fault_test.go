package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestFailureAfterEveryStepInProcess makes ADD and DEL fail after each step, as if the caller was killed.
// A failed ADD leaves nothing behind; a failed DEL can be repeated.
func TestFailureAfterEveryStepInProcess(t *testing.T) {
	w := newWorldWithoutAgents(t, "host1")
	a := w.inProcess("host1", w.bridge.Bridge().URL(), ovs.OVN)
	for _, p := range []*sandbox{w.pod("host1", 1, "web", "front"), w.sandbox("host1", "", "", "", "bare")} {
		done := w.failAdds(a, p)
		require.Greater(t, done, 10, "there are steps")
		for times := 0; ; times++ {
			ctx := a.steps.failAfter(t.Context(), times)
			err := a.call(ctx, call.Del, p)
			if err == nil {
				break
			}
			require.Nil(t, a.call(t.Context(), call.Del, p), "after %s", err)
			require.NoError(t, w.left("host1", a.dir).is(0))
			p.nothingIn()
			require.Nil(t, a.call(t.Context(), call.Add, p))
		}
		require.NoError(t, w.left("host1", a.dir).is(0))
	}
	status, pods := w.get("pod:coe")
	require.Equal(t, 200, status)
	require.NotContains(t, pods, "bare")
}

// failAdds makes ADD fail at each step, until one succeeds, and returns the number of failures.
func (w *world) failAdds(a *inProcess, p *sandbox) int {
	for times := 0; ; times++ {
		err := a.call(a.steps.failAfter(w.t.Context(), times), call.Add, p)
		if err == nil {
			return times
		}
		require.EqualValues(w.t, types.ErrTryAgainLater, err.Code, "%s: %s", err.Msg, err.Details)
		require.NoError(w.t, w.left("host1", a.dir).is(0), "failure %d: %s %s", times, err.Msg, err.Details)
		p.nothingIn()
	}
}

// TestPodDeletedDuringADDInProcess deletes a pod whose ADD has its record, but not its port yet. The ADD plugs nothing.
func TestPodDeletedDuringADDInProcess(t *testing.T) {
	t.Parallel()
	w := newWorldWithoutAgents(t, "host1")
	a := w.inProcess("host1", w.bridge.Bridge().URL(), ovs.OVN)
	p := w.pod("host1", 1, "web", "front")
	a.steps.after(1, func() {
		w.delete(1)
		await(t, "the agent has no record", func() error {
			if n := a.uplink.Count(); n > 0 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	})
	err := a.call(t.Context(), call.Add, p)
	require.NotNil(t, err)
	require.EqualValues(t, types.ErrTryAgainLater, err.Code)
	require.Equal(t, "pod web/front was deleted or replaced during the ADD", err.Msg)
	require.NoError(t, w.left("host1", a.dir).is(0))
	p.nothingIn()
}

// TestPhysicalNetworkDuringADDInProcess replaces a pod whose ADD has its record, but not its port yet. Now it has an address of a physical
// network, and the node is not connected to the network. The ADD says so, and plugs nothing.
func TestPhysicalNetworkDuringADDInProcess(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1")
	w := newWorldOver(t, lab, append([]string{"--backend", "ovn", "--ovn-nb", lab.NB.Remote}, physicalNetworks...)...)
	w.deadline = patient
	a := w.inProcess("host1", w.bridge.Bridge().URL(), ovs.OVN)
	p := w.pod("host1", 1, "flat", "front")
	var before, after []*uplink.Record
	a.steps.after(1, func() {
		before = slices.Collect(maps.Values(a.uplink.Records()))
		w.delete(1)
		await(t, "the pod is gone, and its address", func() error {
			var leases struct {
				Leases []any `json:"lease"`
			}
			w.bridge.Bridge().Get("operational/coe-status:leases", &leases)
			if n, m := a.uplink.Count(), len(leases.Leases); n+m > 0 {
				return fmt.Errorf("%d records and %d leases", n, m)
			}
			return nil
		})
		w.putPhysicalPool("flat")
		w.post("host1", 1, "flat", "front")
		await(t, "the agent has the pod", func() error {
			if after = slices.Collect(maps.Values(a.uplink.Records())); len(after) != 1 {
				return fmt.Errorf("%d records", len(after))
			}
			return nil
		})
	})
	err := a.call(t.Context(), call.Add, p)
	require.Len(t, before, 1)
	require.Equal(t, []string{"", "cable", before[0].Port}, []string{before[0].Physical, after[0].Physical, after[0].Port})
	require.NotNil(t, err)
	require.ErrorContains(t, err, "is not connected to physical network cable")
	require.NoError(t, w.left("host1", a.dir).is(0))
	p.nothingIn()
}

// addUntilPort starts an ADD that OVN does not answer, and waits until the port exists.
func (w *world) addUntilPort(ctx context.Context, p *sandbox) (added <-chan error) {
	w.t.Helper()
	return w.untilPort(p, func() error {
		_, err := p.add(ctx, invoke{})
		return err
	})
}

// untilPort is addUntilPort with the ADD of another caller.
func (w *world) untilPort(p *sandbox, add func() error) (added <-chan error) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Host(p.host).Controller.Stop())
	result := make(chan error, 1)
	go func() { result <- add() }()
	await(w.t, "the port is there", func() error {
		if l := w.left(p.host, w.agents[p.host].dir); len(l.ports) != 1 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	return result
}

// TestDELEndsADD sends a DEL while the ADD still waits, as after a crash of the kubelet.
func TestDELEndsADD(t *testing.T) {
	w := newWorld(t, patient, "host1")
	p := w.pod("host1", 1, "web", "front")
	added := w.addUntilPort(t.Context(), p)
	require.NoError(t, p.del())
	require.EqualValues(t, types.ErrTryAgainLater, code(<-added))
	require.NoError(t, w.left("host1", w.agents["host1"].dir).is(0))
	require.NoError(t, w.lab.Host("host1").Controller.Cont())
	p.mustAdd()
}

// TestAgentIsKilledInADD kills the agent during an ADD, and the caller during another one. The
// runtime's DEL removes the leftovers, or the sweep does once the pod's namespace is gone.
func TestAgentIsKilledInADD(t *testing.T) {
	w := newWorld(t, patient, "host1")
	host := w.agents["host1"]
	for n, end := range []func(*sandbox) error{
		(*sandbox).del,
		func(s *sandbox) error { s.remove(); return nil },
	} {
		p := w.pod("host1", n, "web", fmt.Sprintf("front%d", n))
		added := w.addUntilPort(t.Context(), p)
		require.NoError(t, host.Kill())
		require.EqualValues(t, types.ErrTryAgainLater, code(<-added))
		require.NoError(t, w.lab.Host("host1").Controller.Cont())
		require.NoError(t, host.Start(t.Context()))
		require.NoError(t, end(p))
		w.awaitPods("host1", 0)
	}
	p := w.pod("host1", 5, "web", "killed")
	ctx, kill := context.WithCancel(t.Context())
	added := w.addUntilPort(ctx, p)
	kill()
	require.Error(t, <-added)
	w.awaitPods("host1", 0) // the agent sweeps
	p.nothingIn()
	require.NoError(t, w.lab.Host("host1").Controller.Cont())
}

// TestReboot ends all processes of a node, including pods, and starts the node again. The
// switch's database still has the old pods until the agent sweeps.
func TestReboot(t *testing.T) {
	w := newWorld(t, patient, "host1")
	host, agent := w.lab.Host("host1"), w.agents["host1"]
	stays, goes := w.pod("host1", 1, "web", "stays"), w.pod("host1", 2, "web", "goes")
	stays.mustAdd()
	goes.mustAdd()
	for _, p := range []interface{ Kill() error }{agent, host.Controller, host.VSwitchd, host.OVSDB} {
		require.NoError(t, p.Kill())
	}
	stays.remove()
	goes.remove()
	for _, p := range []interface{ Start(context.Context) error }{host.OVSDB, host.VSwitchd, host.Controller, agent} {
		require.NoError(t, p.Start(t.Context()))
	}
	next := w.sandbox("host1", "web", "stays", stays.uid, "sandbox1b")
	next.mustAdd()
	require.Equal(t, stays.address, next.address)
	w.awaitPods("host1", 1)
	w.reach(next)
}

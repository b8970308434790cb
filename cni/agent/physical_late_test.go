package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// TestLatePhysicalNetwork: namespaces get a physical network while their pods run, and lose it. Pods reach each other all the time. Pods
// with an address of its subnet reach the machine as long as the namespace has the network. A pod without one is a problem.
func TestLatePhysicalNetwork(t *testing.T) {
	t.Parallel()
	testLatePhysicalNetwork(t, ovn.LayoutELAN)
}

// TestLatePhysicalNetworkOfLayoutNode is TestLatePhysicalNetwork with a switch for each node.
func TestLatePhysicalNetworkOfLayoutNode(t *testing.T) {
	t.Parallel()
	testLatePhysicalNetwork(t, ovn.LayoutNode)
}

func testLatePhysicalNetwork(t *testing.T, layout ovn.Layout) {
	w := physicalWorld(t, layout)
	w.putPhysicalPool("plant")
	near, far := w.run("host1", 1, "plant", "near"), w.run("host2", 2, "plant", "far")
	flat, other := w.run("host1", 3, "flat", "flat"), w.run("host2", 4, "default", "other")
	pods := []*sandbox{near, far, flat, other}
	w.reach(pods...)
	w.step("the namespaces get their networks", func() {
		if layout == ovn.LayoutELAN { // in the other layout, pods get another switch
			for _, pair := range [][2]*sandbox{{near, far}, {other, near}, {flat, other}, {far, flat}} {
				w.pinging(pair[0].inLab(), pair[1].address.String())
			}
		}
		w.restartBridge(func(args []string) []string { return append(args, physicalNetworks...) })
		w.putPhysicalPool("flat")
		for _, p := range []*sandbox{near, far} {
			w.seen(p.inLab(), machineVLAN, 8080, "machine "+p.address.String())
			w.seen("machine", p.address.String(), 8080, p.name+" "+machineVLAN)
		}
		w.awaitProblems(string(coe.NotEnforced) + " flat")
	})
	far2, flat2 := w.run("host2", 12, "plant", "far2"), w.run("host2", 13, "flat", "flat2")
	w.seen(far2.inLab(), machineVLAN, 8080, "machine "+far2.address.String())
	w.seen(flat2.inLab(), machineFlat, 8080, "machine "+flat2.address.String())
	pods = append(pods, far2, flat2)
	w.reach(pods...)
	w.step("the namespaces lose their networks", func() {
		w.restartBridge(func(args []string) []string { return args[:slices.Index(args, "--physical-network")] })
		for _, p := range pods {
			await(w.t, p.name+" has no route to machines", func() error {
				routes := w.ip(p.inLab(), "route", "show", "table", "all")
				for _, subnet := range []string{"10.50.0.0/24", "10.51.0.0/24"} {
					if strings.Contains(routes, subnet) {
						return errors.New(routes)
					}
				}
				return nil
			})
		}
		await(w.t, "OVN has left the physical network", func() error {
			if _, err := w.ask(near.inLab(), machineVLAN, 8080); err == nil {
				return errors.New("the machine answers")
			}
			return nil
		})
		w.reach(pods...)
		w.awaitProblems()
	})
}

// restartBridge kills the bridge, and starts it with other arguments.
func (w *world) restartBridge(change func(args []string) []string) {
	w.t.Helper()
	w.bridge.Kill()
	w.bridge.Change(change)
	w.startBridge()
	w.bridge.Bridge().AwaitSync(converge)
}

// awaitProblems waits until the bridge has these problems.
func (w *world) awaitProblems(want ...string) {
	w.t.Helper()
	await(w.t, "problems", func() error {
		if all := w.problems(); !slices.Equal(want, all) {
			return fmt.Errorf("they are %q, want %q", all, want)
		}
		return nil
	})
}

// problems returns the reasons and the names of the bridge's problems.
func (w *world) problems() (all []string) {
	for _, p := range w.bridge.Bridge().Status().Problems {
		all = append(all, fmt.Sprint(p.Reason, " ", p.Name))
	}
	return all
}

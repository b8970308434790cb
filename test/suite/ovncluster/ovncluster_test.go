// Package ovncluster tests the bridge with OVN's databases on three machines, as docs/kubernetes.md installs them. Machines are killed,
// cut off and replaced, while pods come and go.
package ovncluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// TestMachines: while a machine with databases is away, new pods get their network. Running pods reach each other and services all the
// time, and never reach what a policy or the isolation of namespaces denies.
func TestMachines(t *testing.T) {
	t.Parallel()
	w := start(t, ovn.LayoutELAN)
	w.step("pods reach each other", w.testPods)
	w.step("trace knows all stages", w.testStages)
	w.step("nodes reach the listener for nodes alone", w.testPorts)
	w.testFaults()
}

// TestMachinesOfLayoutNode is TestMachines with a switch for each node.
func TestMachinesOfLayoutNode(t *testing.T) {
	t.Parallel()
	w := start(t, ovn.LayoutNode)
	w.step("pods reach each other", w.testPods)
	w.testFaults()
}

func (w *world) testFaults() {
	w.step("a policy denies", w.testPolicy)
	w.step("the machine that leads the southbound database is killed", w.testKilled)
	w.step("a machine is cut off", w.testCutOff)
	w.step("namespaces are isolated", w.testIsolated)
	w.step("programs restart", w.testRestarts)
	w.step("a machine is replaced", w.testReplaced)
	w.step("all machines are killed", w.testAllKilled)
}

// testPods: all ways are open before there are policies, so that what is denied later would arrive.
func (w *world) testPods() {
	for i := range w.families {
		w.plugFamily(&w.families[i])
	}
	w.requireOnly()
	w.applyServices()
	w.follow()
	w.keepsPackets(func() {})
}

func (w *world) testPolicy() {
	w.applyPolicy()
	w.followDenials()
	w.keepsPackets(func() {})
}

// testIsolated: the bridge starts again, and isolates namespaces.
func (w *world) testIsolated() {
	require.NoError(w.t, w.bridge.Kill())
	w.startBridge(mapping.IsolationNamespace)
	w.followDenials()
	w.keepsPackets(func() {})
}

// testRestarts restarts the bridge, each ovn-northd, and the members that lead the databases, one after the other.
func (w *world) testRestarts() {
	restarts := []struct {
		name string
		do   func()
	}{
		{"the bridge", func() { require.NoError(w.t, w.bridge.Restart(w.t.Context())) }},
		{"ovn-northd on each machine", func() {
			for _, m := range w.machines {
				m.killNorthd()
				m.startNorthd()
			}
		}},
		{"the leader of the northbound database", func() { w.leader(northbound).restartDatabase(northbound) }},
		{"the leader of the southbound database", func() { w.leader(southbound).restartDatabase(southbound) }},
	}
	w.keepsPackets(func() {
		for _, restart := range restarts {
			begun := time.Now()
			restart.do()
			w.follow()
			w.t.Logf("%s has restarted, and all hosts follow, after %.1f s", restart.name, time.Since(begun).Seconds())
		}
	})
}

// testStages: the bridge reads the southbound database with the rights of a chassis.
func (w *world) testStages() {
	w.await("the pod is bound", func(ctx context.Context) error {
		said, err := w.ask(ctx, "trace", strings.ReplaceAll(w.pods[0].Name, ":", "/"))
		if err == nil && (!strings.Contains(said, "translated") || !strings.Contains(said, "bound")) {
			err = fmt.Errorf("%s", said)
		}
		return err
	})
}

// testPorts: the machines refuse nodes at the ports for each other.
func (w *world) testPorts() {
	for _, m := range w.machines {
		for port, open := range map[string]bool{"6641": true, "6642": true, "6643": false, "6644": false, "16642": false} {
			conn, err := w.lab.Dial(w.t.Context(), "host1", "tcp", net.JoinHostPort(m.address.String(), port))
			if open {
				require.NoError(w.t, err)
				require.NoError(w.t, conn.Close())
			} else {
				require.ErrorIs(w.t, err, syscall.ECONNREFUSED, "port %s of %s", port, m.name)
			}
		}
	}
}

// changes is comeAndGo while packets are sent.
func (w *world) changes(begin, end func()) {
	w.keepsPackets(func() { w.comeAndGo(begin, end) })
}

// comeAndGo requires that a pod comes while a fault lasts, that another one comes when it has ended, and that both go. They are on a host
// of their own: the userspace datapath of Open vSwitch can lose a packet when it gets a port while the machine is busy.
func (w *world) comeAndGo(begin, end func()) {
	begin()
	w.plug("host3", false)
	end()
	w.plug("host3", true)
	w.unplug()
	w.unplug()
	w.requireOnly()
}

// testKilled kills a machine, and the bridge.
func (w *world) testKilled() {
	m := w.leader(southbound)
	w.changes(func() { m.kill(); require.NoError(w.t, w.bridge.Restart(w.t.Context())) }, m.start)
}

// testCutOff takes down the link of the machine that leads the southbound database. Its clients hear nothing.
func (w *world) testCutOff() {
	m := w.leader(southbound)
	w.changes(func() { m.cutOff(true) }, func() { m.cutOff(false) })
}

// testReplaced kills a machine, removes it from the clusters, and starts it without data.
func (w *world) testReplaced() {
	m, other := w.machines[0], w.machines[1]
	w.changes(func() { m.kill(); other.remove(m) }, func() {
		m.configure(other, w.machines[2], m)
		m.start()
		other.awaitMembers(3)
	})
}

func (w *world) testAllKilled() {
	w.changes(func() {
		for _, m := range w.machines {
			m.kill()
		}
		w.startMachines()
	}, func() {})
}

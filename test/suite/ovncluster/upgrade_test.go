package ovncluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/ovn25"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

// TestUpgradeOfOVN upgrades ovn-controller of each host and then the machines from the OVN of Debian 12 to 25.03, as docs/upgrade.md says. The
// service of the last machine converts both databases. The bridge goes on.
func TestUpgradeOfOVN(t *testing.T) {
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/usr/sbin:/usr/bin:"+path) // PATH can begin with 25.03
	w := start(t, ovn.LayoutNode)
	w.setPrefixes()
	w.step("pods reach each other", w.testPods)
	w.step("a policy denies", w.testPolicy)
	pid, err := w.bridge.PID()
	require.NoError(t, err)
	newer, err := ovn25.Install(t.Context(), t.Output())
	require.NoError(t, err)
	t.Setenv("PATH", newer+":"+path)
	w.step("ovn-controller is upgraded", w.testControllersUpgraded)
	for _, m := range []*machine{w.machines[2], w.machines[1], w.machines[0]} {
		w.step(m.name+" is upgraded", func() { w.testUpgraded(m) })
	}
	w.step("the databases are converted", func() { w.keepsPackets(func() { w.awaitConverted(); w.testStages() }) })
	now, err := w.bridge.PID()
	require.NoError(t, err)
	require.Equal(t, pid, now, "the bridge has not restarted")
}

// setPrefixes gives the flow tables of switches the prefixes that ovn-controller of 25.03 sets. No pod sends packets yet: Open vSwitch before 3.5.1 can crash
// if prefixes change meanwhile ("classifier: Fix race for prefix tree configuration").
func (w *world) setPrefixes() {
	args := []string{"--id=@table", "create", "Flow_Table", "prefixes=ip_src,ip_dst,ipv6_src", "--", "set", "Bridge", "br-int"}
	for i := range 255 {
		args = append(args, fmt.Sprintf("flow_tables:%d=@table", i))
	}
	for _, h := range w.lab.Hosts {
		_, err := h.VSCtl(w.t.Context(), args...)
		require.NoError(w.t, err)
	}
}

// testControllersUpgraded restarts ovn-controller of each host with the program in PATH.
func (w *world) testControllersUpgraded() {
	w.upgrade(func() {
		for _, h := range w.lab.Hosts {
			_, err := h.VSCtl(w.t.Context(), "set", "Open_vSwitch", ".", "external_ids:ovn-ofctrl-wait-before-clear=10000")
			require.NoError(w.t, err)
			require.NoError(w.t, h.Controller.Restart(w.t.Context()))
		}
	}, func() {})
}

// testUpgraded restarts what runs on a machine with the programs in PATH. The service of the first machine of DATABASES converts the databases.
func (w *world) testUpgraded(m *machine) {
	w.upgrade(func() {
		m.kill()
		clear(m.servers) // their environment has the folder of the former schemas
		m.startDatabases()
	}, m.startNorthd)
}

// upgrade is changes under load, while flows of the switches are replaced. The ways have no pod that sends to itself by a service:
// ovn-controller empties the zones of connection tracking in which OVN translates addresses, and relies on flows that the switch learns.
func (w *world) upgrade(begin, end func()) {
	between := w.streams(slices.DeleteFunc(w.ways(), func(way packets.Way) bool { return way.From == way.To }))
	between.Excused = packets.MaxLost
	w.underLoad(func() {
		text, err := between.Keep(w.t.Context(), func() { w.comeAndGo(begin, end) })
		require.NoError(w.t, err)
		w.t.Log("running pods: " + text)
	})
}

// awaitConverted waits until all machines have databases with the schemas of the OVN in PATH.
func (w *world) awaitConverted() {
	for _, db := range databases {
		want, err := exec.CommandContext(w.t.Context(), "ovsdb-tool", "schema-version", ovsdb.Schema("ovn/ovn-"+db)).Output()
		require.NoError(w.t, err)
		for _, m := range w.machines {
			w.await("the schema of "+db+" on "+m.name, func(ctx context.Context) error {
				have, err := w.lab.Exec(ctx, m.name, "ovsdb-client", "--timeout=10", "get-schema-version", "unix:"+filepath.Join(m.dir, "ovn"+db+"_db.sock"), schemas[db].name)
				if err == nil && have != string(want) {
					err = fmt.Errorf("it is %s, want %s", have, want)
				}
				return err
			})
		}
	}
}

// batch is how many pods come and go at a time in underLoad.
const batch = 20

// underLoad lets pods of the namespace load come and go while do runs. They are not plugged in. None is left.
func (w *world) underLoad(do func()) {
	w.t.Helper()
	var text strings.Builder
	text.WriteString("pod:pods:\n")
	for i := range batch {
		uid := fmt.Sprintf("10ad0000-c0e0-4000-8000-%012d", i)
		fmt.Fprintf(&text, "- {uid: %s, name: pod%d, network-NS: load, host-ip-address: %s, interface: [{uid: %s, network-type: VXLAN, ip-address: 10.79.0.%d}]}\n",
			uid, i, w.lab.Host("host3").Address, uid, 1+i)
	}
	file := filepath.Join(w.t.TempDir(), "load.yaml")
	require.NoError(w.t, os.WriteFile(file, []byte(text.String()), 0o644))

	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var rounds int
	var failed error
	begun := time.Now()
	running.Go(func() {
		for ; ctx.Err() == nil && failed == nil; rounds++ {
			failed = w.applyAndDelete(context.WithoutCancel(ctx), file)
		}
	})
	w.isLoaded = true
	do()
	w.isLoaded = false
	cancel()
	running.Wait()
	require.NoError(w.t, failed)
	w.t.Logf("%d times %d pods have come and gone in %.1f s", rounds, batch, time.Since(begun).Seconds())
	w.requireOnly()
}

// applyAndDelete applies a file with coe-bridge apply, and deletes its objects again.
func (w *world) applyAndDelete(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, applied := w.ask(ctx, "apply", "-f", file)
	_, deleted := w.ask(ctx, "delete", "-f", file)
	return errors.Join(applied, deleted)
}

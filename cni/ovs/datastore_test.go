package ovs_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// told is the network identity that a bridge reports.
type told struct {
	mu       sync.Mutex
	identity string
	changed  chan struct{}
}

func (n *told) is() (string, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity, n.changed
}

func (n *told) set(identity string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.identity = identity
	close(n.changed)
	n.changed = make(chan struct{})
}

// openFlow runs ovs-ofctl on the bridge.
func (n *node) openFlow(command string, args ...string) string {
	n.t.Helper()
	bridge := "unix:" + filepath.Join(n.host.Dir, "br-int.mgmt")
	out, err := exec.CommandContext(n.t.Context(), "ovs-ofctl", append([]string{"--protocols=OpenFlow13", "--no-stats", command, bridge}, args...)...).CombinedOutput()
	require.NoError(n.t, err, "%s", out)
	return string(out)
}

// program adds a flow to the bridge, as OpenDaylight would.
func (n *node) program() {
	n.openFlow("add-group", "group_id=150000,type=all,bucket=actions=drop")
	n.openFlow("add-flow", "table=33,priority=77,actions=group:150000")
}

func (n *node) isProgrammed() bool {
	return strings.Contains(n.openFlow("dump-groups"), "150000") && strings.Contains(n.openFlow("dump-flows"), "priority=77")
}

// keep keeps the switch managed until stop is called.
func (n *node) keep(network *told) (stop func()) { return n.keepWhen(network, nil) }

// keepWhen is keep for a bridge of which settled reports whether OpenDaylight has stopped to write flows.
func (n *node) keepWhen(network *told, settled func(context.Context) bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		n.KeepManaged(ctx, ovs.Management{Managers: []string{"tcp:127.0.0.1:1"}, Tunnels: n.host.Address, Settled: settled}, network.is)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// controller runs the bridge's controller until stop is called.
func (n *node) controller() (target string, stop func()) {
	n.t.Helper()
	path := filepath.Join(n.host.Dir, "br-int.controller") // the only socket that is allowed
	l, err := net.Listen("unix", path)
	require.NoError(n.t, err)
	return "unix:" + path, serve(l, func(conn net.Conn) { openflow.Speak(conn) })
}

// serve serves each connection of a listener, until stop is called.
func serve(l net.Listener, each func(net.Conn)) (stop func()) {
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		conns   []net.Conn
	)
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			running.Go(func() { each(conn) })
		}
	})
	return func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	}
}

// listen listens on the node.
func (n *node) listen() (l net.Listener) {
	n.t.Helper()
	require.NoError(n.t, n.lab.In(n.host.Name, func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	return l
}

// TestUseDatastore: after a change of the datastore a bridge is cleared once, while its controller
// is connected, and gets its controllers back, whenever the agent was killed.
func TestUseDatastore(t *testing.T) {
	n := follow(t, ovnhost.SwitchesForTest(t, "host1"), ovs.OpenDaylight)
	if _, err := n.host.VSCtl(t.Context(), "br-exists", "br-int"); err != nil {
		n.db("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	}
	n.db("set", "Bridge", "br-int", "protocols=OpenFlow13")
	n.db("clear", "Bridge", "br-int", "fail_mode")
	target, gone := n.controller()
	n.db("--", "--id=@a", "create", "Controller", `target="`+target+`"`, "max_backoff=1000", "external_ids:of=odl",
		"--", "--id=@b", "create", "Controller", `target="ptcp:16653:127.0.0.1"`, "--", "set", "Bridge", "br-int", "controller=@a,@b")
	controllers := func() []string {
		lines := strings.Split(n.db("--columns=target,max_backoff,inactivity_probe,external_ids,connection_mode", "--format=csv", "--no-headings", "list", "Controller"), "\n")
		slices.Sort(lines)
		return lines
	}
	before := controllers()
	require.Len(t, before, 2)
	ids := func() string { return n.db("get", "Open_vSwitch", ".", "external_ids") }
	noted := func(identity string) func() bool {
		return func() bool { return strings.Contains(ids(), "coe-identity="+identity) }
	}
	eventually := func(is func() bool, what string) {
		t.Helper()
		require.Eventually(t, is, patience.Patience, 10*time.Millisecond, what)
	}
	const soon = 500 * time.Millisecond

	n.program()
	network := &told{changed: make(chan struct{})}
	var settled atomic.Bool
	asked := make(chan struct{}, 1000)
	stop := n.keepWhen(network, func(context.Context) bool {
		asked <- struct{}{}
		return settled.Load()
	})
	network.set("n1")
	eventually(noted("n1"), "the first identity is recorded")
	require.True(t, n.isProgrammed(), "and nothing is cleared")

	network.set("n2")
	for range 2 {
		<-asked
	}
	require.True(t, n.isProgrammed(), "OpenDaylight still writes flows")
	require.True(t, noted("n1")())
	settled.Store(true)
	eventually(noted("n2"), "another")
	require.False(t, n.isProgrammed(), "the bridge is cleared")
	require.Equal(t, before, controllers())
	require.Equal(t, "secure", n.db("get", "Bridge", "br-int", "fail_mode"))
	require.NotContains(t, ids(), "coe-controllers")

	connected := func() bool { return strings.Contains(n.db("--columns=is_connected", "list", "Controller"), "true") }
	eventually(connected, "the controller is connected again")
	n.program()
	for _, identity := range []string{"", "n2"} {
		network.set(identity)
		<-time.After(soon)
		require.True(t, n.isProgrammed(), "the same identity, or an unknown one, changes nothing")
	}

	gone()
	eventually(func() bool { return !connected() }, "the controller is disconnected")
	network.set("n3")
	<-time.After(soon)
	require.True(t, n.isProgrammed(), "nothing is cleared without a controller")
	require.True(t, noted("n2")())
	_, gone = n.controller()
	defer gone()
	note, last := "", "n3"
	for i := 4; note == ""; i++ { // the note is there for a second, which a busy machine can miss
		require.Less(t, i, 100)
		eventually(func() bool {
			settings, err := n.Settings(n.within())
			require.NoError(t, err)
			note = settings["coe-controllers"]
			return note != "" || settings["coe-identity"] == last
		}, "when the controller returns, its address is saved")
		if note == "" {
			last = fmt.Sprint("n", i)
			n.program()
			network.set(last)
		}
	}
	stop() // during the change
	require.True(t, noted(last)(), "a started change is completed")
	require.False(t, n.isProgrammed())
	require.Equal(t, before, controllers())

	// An agent is killed after it has removed the controllers.
	text := strconv.Quote(note)
	killed := func() {
		n.db("clear", "Bridge", "br-int", "controller", "--", "set", "Open_vSwitch", ".", "external_ids:coe-controllers="+text)
	}
	killed()
	require.Empty(t, n.db("get-controller", "br-int"))
	stop = n.keep(&told{changed: make(chan struct{})})
	eventually(func() bool { return !strings.Contains(ids(), "coe-controllers") }, "the next agent restores them, even without a controller")
	require.Equal(t, before, controllers())
	require.True(t, noted(last)())
	stop()

	// Another program has already set a controller.
	n.db("set", "Open_vSwitch", ".", "external_ids:coe-controllers="+text)
	stop = n.keep(network)
	eventually(func() bool { return !strings.Contains(ids(), "coe-controllers") }, "the saved controllers are dropped")
	require.Equal(t, before, controllers())
	stop()

	killed()
	eventually(func() bool {
		_, err := n.Manage(n.within(), ovs.Management{})
		require.NoError(t, err)
		return !strings.Contains(ids(), "coe-")
	}, "a switch that OpenDaylight no longer manages")
}

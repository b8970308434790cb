package ovs_test

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// told is what a bridge tells of the network.
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

// openFlow has ovs-ofctl talk with the bridge.
func (n *node) openFlow(command string, args ...string) string {
	n.t.Helper()
	bridge := "unix:" + filepath.Join(n.host.Dir, "br-int.mgmt")
	out, err := exec.CommandContext(n.t.Context(), "ovs-ofctl", append([]string{"--protocols=OpenFlow13", "--no-stats", command, bridge}, args...)...).CombinedOutput()
	require.NoError(n.t, err, "%s", out)
	return string(out)
}

// program has the bridge do something, as OpenDaylight would.
func (n *node) program() {
	n.openFlow("add-group", "group_id=150000,type=all,bucket=actions=drop")
	n.openFlow("add-flow", "table=33,priority=77,actions=group:150000")
}

func (n *node) isProgrammed() bool {
	return strings.Contains(n.openFlow("dump-groups"), "150000") && strings.Contains(n.openFlow("dump-flows"), "priority=77")
}

// keep has the switch kept managed until stop is called.
func (n *node) keep(network *told) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		n.KeepManaged(ctx, ovs.Management{Managers: []string{"tcp:127.0.0.1:1"}, Tunnels: n.host.Address}, network.is)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// TestStartAnew: a bridge that was programmed from a datastore which is lost forgets that, once,
// and has its controllers as they were, wherever the agent was killed meanwhile.
func TestStartAnew(t *testing.T) {
	n := follow(t, ovnhost.SwitchesForTest(t, "host1"), ovs.OpenDaylight)
	if _, err := n.host.VSCtl(t.Context(), "br-exists", "br-int"); err != nil {
		n.db("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	}
	n.db("set", "Bridge", "br-int", "protocols=OpenFlow13", "fail_mode=secure")
	n.db("--", "--id=@a", "create", "Controller", `target="tcp:127.0.0.1:3"`, "max_backoff=9000", "external_ids:of=odl",
		"--", "--id=@b", "create", "Controller", `target="ptcp:16653:127.0.0.1"`, "--", "set", "Bridge", "br-int", "controller=@a,@b")
	controllers := func() string {
		return n.db("--columns=target,max_backoff,inactivity_probe,external_ids,connection_mode", "--format=csv", "--no-headings", "list", "Controller")
	}
	sorted := func() []string {
		lines := strings.Split(controllers(), "\n")
		slices.Sort(lines)
		return lines
	}
	before := sorted()
	require.Len(t, before, 2)
	ids := func() string { return n.db("get", "Open_vSwitch", ".", "external_ids") }
	noted := func(identity string) func() bool {
		return func() bool { return strings.Contains(ids(), "coe-identity="+identity) }
	}
	eventually := func(is func() bool, what string) {
		t.Helper()
		require.Eventually(t, is, 20*time.Second, 20*time.Millisecond, what)
	}

	n.program()
	network := &told{changed: make(chan struct{})}
	stop := n.keep(network)
	network.set("n1")
	eventually(noted("n1"), "the first that is told of is noted")
	require.True(t, n.isProgrammed(), "and nothing forgotten")
	require.NoError(t, n.AwaitNetwork(n.within(), ""))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, n.AwaitNetwork(short, "n2"), "has not forgotten yet what a former datastore of OpenDaylight made")

	network.set("n2")
	eventually(noted("n2"), "another")
	require.False(t, n.isProgrammed(), "all is forgotten")
	require.Equal(t, before, sorted())
	require.NotContains(t, ids(), "coe-controllers")

	n.program()
	network.set("")
	network.set("n2")
	n.db("set", "Bridge", "br-int", "other_config:x=y")
	stop()
	require.True(t, n.isProgrammed(), "the same is nothing new")

	// An agent is killed as soon as it has taken the controllers away.
	stop = n.keep(network)
	network.set("n3")
	eventually(func() bool { return strings.Contains(ids(), "coe-controllers") }, "they are noted")
	stop()
	require.Empty(t, n.db("get-controller", "br-int"))
	unknown := &told{changed: make(chan struct{})}
	stop = n.keep(unknown)
	eventually(func() bool { return !strings.Contains(ids(), "coe-controllers") }, "the next one gives them back, and needs nobody for that")
	require.Equal(t, before, sorted())
	require.True(t, noted("n2")())
	stop()

	// Somebody else was faster.
	n.db("set", "Open_vSwitch", ".", `external_ids:coe-controllers="[]"`)
	stop = n.keep(network)
	eventually(noted("n3"), "what is noted is of no use")
	require.Equal(t, before, sorted())
	stop()
	_, err := n.Manage(n.within(), ovs.Management{Tunnels: netip.Addr{}})
	require.NoError(t, err)
	eventually(func() bool { return !strings.Contains(ids(), "coe-identity") }, "a switch that is OpenDaylight's no more")
}

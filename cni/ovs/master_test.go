package ovs_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
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

// member is a member of a cluster of controllers.
type member struct {
	target string
	mu     sync.Mutex
	conns  []net.Conn // all connections that it has had
	lost   chan struct{}
}

// member starts a member on the node.
func (n *node) member() *member {
	n.t.Helper()
	l := n.listen()
	m := &member{target: "tcp:" + l.Addr().String(), lost: make(chan struct{}, 10)}
	n.t.Cleanup(serve(l, func(conn net.Conn) {
		m.mu.Lock()
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		openflow.Speak(conn)
		select {
		case m.lost <- struct{}{}:
		default: // more than a test looks at
		}
	}))
	return m
}

// last returns the last connection of the member, and how many it has had.
func (m *member) last() (net.Conn, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.conns) == 0 {
		return nil, 0
	}
	return m.conns[len(m.conns)-1], len(m.conns)
}

// withMembers returns a node whose bridge has two members, sorted by their targets, and flows and tunnels. Both are connected.
func withMembers(t *testing.T) (*node, []*member) {
	t.Helper()
	n := followWith(t, ovnhost.SwitchesForTest(t, "host1"), ovs.Config{Controller: ovs.OpenDaylight, MasterWait: time.Second})
	if _, err := n.host.VSCtl(t.Context(), "br-exists", "br-int"); err != nil {
		n.db("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	}
	members := []*member{n.member(), n.member()}
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(a.target, b.target) })
	n.db("set", "Bridge", "br-int", "protocols=OpenFlow13", "--", "set-controller", "br-int", members[0].target, members[1].target, "--",
		"set", "Open_vSwitch", ".", "other_config:local_ip="+n.host.Address.String())
	for _, m := range members {
		require.Eventually(t, func() bool { _, count := m.last(); return count > 0 }, patience.Patience, 10*time.Millisecond)
	}
	n.program()
	return n, members
}

// take gives a member a role, and waits until the database has it.
func (n *node) take(m *member, role openflow.Role) {
	n.t.Helper()
	conn, _ := m.last()
	require.NoError(n.t, openflow.Take(conn, role))
	want := map[openflow.Role]string{openflow.Master: "master", openflow.Slave: "slave"}[role]
	require.Eventually(n.t, func() bool {
		return n.db("--bare", "--columns=role", "find", "Controller", `target="`+m.target+`"`) == want
	}, patience.Patience, 50*time.Millisecond)
}

// keepManaged manages the bridge until the test ends. Managers have the address of the members.
func (n *node) keepManaged(managers ...string) {
	n.keepManagedIf(n.isEmpty, managers...)
}

// keepManagedIf is keepManaged with an answer to whether the bridge has no flows.
func (n *node) keepManagedIf(empty func(context.Context) bool, managers ...string) {
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		network := &told{changed: make(chan struct{})}
		n.KeepManaged(ctx, ovs.Management{Managers: managers, Tunnels: n.host.Address, Empty: empty}, network.is)
	})
	n.t.Cleanup(func() { cancel(); running.Wait() })
}

// TestFindsMaster: if all members of a cluster are slaves of the bridge, one of them is disconnected for some seconds, and the bridge keeps
// its flows.
func TestFindsMaster(t *testing.T) {
	n, members := withMembers(t)
	for _, m := range members {
		n.take(m, openflow.Slave)
	}
	n.keepManaged("tcp:127.0.0.1:1", "tcp:127.0.0.1:2")
	select {
	case <-members[0].lost:
	case <-time.After(patience.Patience):
		require.Fail(t, "no member is disconnected")
	}
	n.take(members[1], openflow.Master)
	require.Eventually(t, func() bool { _, count := members[0].last(); return count > 1 }, patience.Patience, 10*time.Millisecond, "it comes back")
	require.Eventually(t, func() bool {
		return !strings.Contains(n.db("get", "Open_vSwitch", ".", "external_ids"), "coe-controllers")
	}, patience.Patience, 10*time.Millisecond)
	has := strings.Fields(n.db("get-controller", "br-int"))
	slices.Sort(has)
	require.Equal(t, []string{members[0].target, members[1].target}, has)
	require.True(t, n.isProgrammed(), "the flows stay")
}

// TestReconnects: a master is disconnected for some seconds when that is asked for and it has been the master for a time, and the bridge keeps its flows. The only
// controller is not disconnected.
func TestReconnects(t *testing.T) {
	n, members := withMembers(t)
	n.take(members[0], openflow.Slave)
	n.take(members[1], openflow.Master)
	n.keepManaged("tcp:127.0.0.1:1", "tcp:127.0.0.1:2")
	n.Reconnect(true)
	select {
	case <-members[1].lost:
	case <-time.After(patience.Patience):
		require.Fail(t, "the master is not disconnected")
	}
	require.Eventually(t, func() bool { _, count := members[1].last(); return count > 1 }, patience.Patience, 10*time.Millisecond, "it comes back")
	require.Empty(t, members[0].lost)
	require.True(t, n.isProgrammed(), "the flows stay")

	n.db("set-controller", "br-int", members[1].target)
	n.take(members[1], openflow.Master)
	_, before := members[1].last()
	n.Reconnect(true)
	require.Never(t, func() bool { _, count := members[1].last(); return count > before }, 6*time.Second, 100*time.Millisecond)
	require.True(t, n.isProgrammed(), "the flows stay")
}

func (n *node) isEmpty(ctx context.Context) bool {
	flows, err := n.lab.Exec(ctx, n.host.Name, "ovs-ofctl", "--protocols=OpenFlow13", "dump-flows", "unix:"+filepath.Join(n.host.Dir, "br-int.mgmt"))
	return err == nil && !strings.Contains(flows, "table=")
}

// TestReconnectsIdle: the only OpenDaylight, which has no role and has written no flows, is disconnected for some seconds. A question to
// the switch that is not answered is asked again.
func TestReconnectsIdle(t *testing.T) {
	n, members := withMembers(t)
	only := members[0]
	n.db("set-controller", "br-int", only.target)
	n.openFlow("del-flows")
	_, before := only.last()
	var asked atomic.Bool
	n.keepManagedIf(func(ctx context.Context) bool {
		if asked.CompareAndSwap(false, true) {
			<-ctx.Done()
			return false
		}
		return n.isEmpty(ctx)
	}, "tcp:127.0.0.1:1")
	require.Eventually(t, func() bool { _, count := only.last(); return count > before }, patience.Patience, 10*time.Millisecond, "it connects again")
	require.Equal(t, only.target, n.db("get-controller", "br-int"))
}

// TestLeavesControllers: no controller is disconnected from a bridge that one may program, or that has controllers of others.
func TestLeavesControllers(t *testing.T) {
	for name, c := range map[string]struct {
		roles    []openflow.Role // of the members; 0 for an equal
		managers []string
	}{
		"a master":              {[]openflow.Role{openflow.Slave, openflow.Master}, []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}},
		"equals with flows":     {[]openflow.Role{0, 0}, []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}},
		"an equal":              {[]openflow.Role{openflow.Slave, 0}, []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}},
		"controllers of others": {[]openflow.Role{openflow.Slave, openflow.Slave}, []string{"tcp:192.0.2.1:1", "tcp:192.0.2.2:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, members := withMembers(t)
			for i, role := range c.roles {
				if role != 0 {
					n.take(members[i], role)
				}
			}
			n.keepManaged(c.managers...)
			require.Never(t, func() bool { return len(members[0].lost)+len(members[1].lost) > 0 }, 6*time.Second, 100*time.Millisecond)
		})
	}
}

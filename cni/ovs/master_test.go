package ovs_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
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
	var l net.Listener
	require.NoError(n.t, n.lab.In(n.host.Name, func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	m := &member{target: "tcp:" + l.Addr().String(), lost: make(chan struct{}, 10)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, conn)
			m.mu.Unlock()
			running.Go(func() {
				openflow.Speak(conn)
				m.lost <- struct{}{}
			})
		}
	})
	n.t.Cleanup(func() {
		_ = l.Close()
		m.mu.Lock()
		for _, c := range m.conns {
			_ = c.Close()
		}
		m.mu.Unlock()
		running.Wait()
	})
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

// TestFindsMaster: if no member of a cluster is the master of the bridge, one of them is disconnected for some seconds, and the bridge keeps
// its flows.
func TestFindsMaster(t *testing.T) {
	n := followWith(t, ovnhost.SwitchesForTest(t, "host1"), ovs.Config{Controller: ovs.OpenDaylight, MasterWait: time.Second})
	if _, err := n.host.VSCtl(t.Context(), "br-exists", "br-int"); err != nil {
		n.db("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	}
	members := []*member{n.member(), n.member()}
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(a.target, b.target) })
	n.db("set", "Bridge", "br-int", "protocols=OpenFlow13", "--", "set-controller", "br-int", members[0].target, members[1].target)
	for _, m := range members {
		require.Eventually(t, func() bool { _, count := m.last(); return count > 0 }, time.Minute, 10*time.Millisecond)
	}
	n.program()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		network := &told{changed: make(chan struct{})}
		n.KeepManaged(ctx, ovs.Management{Managers: []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}, Tunnels: n.host.Address}, network.is)
	})
	defer running.Wait()
	defer cancel()

	<-members[0].lost
	other, _ := members[1].last()
	require.NoError(t, openflow.BecomeMaster(other))
	require.Eventually(t, func() bool { _, count := members[0].last(); return count > 1 }, time.Minute, 10*time.Millisecond, "it comes back")
	require.Eventually(t, func() bool {
		return strings.Contains(n.db("--columns=role", "list", "Controller"), "master") &&
			!strings.Contains(n.db("get", "Open_vSwitch", ".", "external_ids"), "coe-controllers")
	}, time.Minute, 10*time.Millisecond)
	has := strings.Fields(n.db("get-controller", "br-int"))
	slices.Sort(has)
	require.Equal(t, []string{members[0].target, members[1].target}, has)
	require.True(t, n.isProgrammed(), "the flows stay")
	require.Empty(t, members[1].lost, "the master stays")
}

package ovs_test

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// db reads the switch's database with ovs-vsctl.
func (n *node) db(args ...string) string {
	n.t.Helper()
	out, err := n.host.VSCtl(n.t.Context(), args...)
	require.NoError(n.t, err)
	return strings.TrimSpace(out)
}

func TestManage(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	manage := func(m ovs.Management, wantChanged bool) {
		t.Helper()
		require.Eventually(t, func() bool { // the local copy follows
			changed, err := n.Manage(n.within(), m)
			require.NoError(t, err)
			return changed == wantChanged
		}, patience.Patience, 20*time.Millisecond)
	}
	_, err := n.Tunnels(n.within()) // it is connected
	require.NoError(t, err)
	require.ErrorContains(t, n.Managed(), "--ovs-manager")
	n.db("set-manager", "ptcp:16640:127.0.0.1")
	empty := true
	both := ovs.Management{
		Managers: []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}, Tunnels: n.host.Address, Empty: func(context.Context) bool { return empty },
	}
	manage(both, true)
	manage(both, false)
	n.db("set-controller", "br-int", n.member().target)
	require.Eventually(t, func() bool { return n.db("--bare", "--columns=is_connected", "list", "Controller") == "true" }, patience.Patience, 20*time.Millisecond)
	manage(both, false)
	require.NotContains(t, n.db("get", "Open_vSwitch", ".", "other_config"), "local_ip", "the bridge has no flows yet")
	tunnels, err := n.Tunnels(n.within())
	require.NoError(t, err)
	require.Equal(t, n.host.Address.String(), tunnels.From, "the MTU of pods is known")
	empty = false
	manage(both, true)
	manage(both, false)
	require.Equal(t, "ptcp:16640:127.0.0.1\ntcp:127.0.0.1:1\ntcp:127.0.0.1:2", n.db("get-manager"), "the managers of others stay")
	require.Equal(t, "30000", n.db("--bare", "--columns=inactivity_probe", "find", "Manager", `target="tcp:127.0.0.1:1"`))
	require.Contains(t, n.db("get", "Open_vSwitch", ".", "other_config"), n.host.Address.String())
	require.Equal(t, "[OpenFlow13]", n.db("get", "Bridge", "br-int", "protocols"))
	tunnels, err = n.Tunnels(n.within())
	require.NoError(t, err)
	require.Equal(t, ovs.Tunnels{Kinds: "vxlan", From: n.host.Address.String()}, tunnels)
	require.ErrorContains(t, n.Managed(), "no connection to ptcp:16640:127.0.0.1, tcp:127.0.0.1:1, tcp:127.0.0.1:2")

	one := ovs.Management{Managers: both.Managers[:1], Tunnels: netip.MustParseAddr("172.31.99.77")}
	manage(one, true)
	require.NotContains(t, n.db("get-manager"), "127.0.0.1:2")
	require.Contains(t, n.db("get", "Open_vSwitch", ".", "other_config"), "172.31.99.77")

	n.db("set-controller", "br-int", "tcp:127.0.0.1:3")
	n.db("--no-wait", "add-port", "br-int", "tun1", "--", "set", "Interface", "tun1", "type=vxlan", "options:local_ip=172.31.99.77", "options:remote_ip=172.31.99.12")
	manage(ovs.Management{}, true)
	manage(ovs.Management{}, false)
	require.Equal(t, "ptcp:16640:127.0.0.1", n.db("get-manager"))
	require.Empty(t, n.db("get-controller", "br-int"))
	require.NotEqual(t, "[OpenFlow13]", n.db("get", "Bridge", "br-int", "protocols"))
	require.NotContains(t, n.db("get", "Open_vSwitch", ".", "other_config"), "local_ip")
	require.NotContains(t, n.db("list-ports", "br-int"), "tun1")
}

// Changes of our management by others are reverted. Settings that existed before are kept.
func TestKeepManaged(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	n.db("set-controller", "br-int", n.member().target)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		n.KeepManaged(ctx, ovs.Management{Managers: []string{"tcp:127.0.0.1:1"}, Tunnels: n.host.Address}, func() (string, <-chan struct{}) { return "", nil })
	})
	defer running.Wait()
	defer cancel()
	whole := func() bool {
		return n.db("get-manager") == "tcp:127.0.0.1:1" && strings.Contains(n.db("get", "Open_vSwitch", ".", "other_config"), `local_ip="172.31.99.11"`)
	}
	require.Eventually(t, whole, patience.Patience, 50*time.Millisecond)
	for _, harm := range [][]string{{"del-manager"}, {"clear", "Open_vSwitch", ".", "other_config"}, {"set", "Open_vSwitch", ".", "other_config:local_ip=192.0.2.1"}} {
		n.db(harm...)
		require.Eventually(t, whole, patience.Patience, 50*time.Millisecond, "%s", harm)
	}
}

// TestTunnelsAreMarked: the ports of the node's tunnels get an iface-id while no OpenDaylight is connected, although another manager is. Other
// tunnels get none, and one that a port has stays.
func TestTunnelsAreMarked(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	add := func(name, from string, more ...string) {
		n.db(append([]string{"--no-wait", "add-port", "br-int", name, "--", "set", "Interface", name, "type=vxlan",
			"options:local_ip=" + from, "options:remote_ip=172.31.99.12"}, more...)...)
	}
	mark := func(name string) string {
		return n.db("--if-exists", "get", "Interface", name, "external_ids:iface-id")
	}
	here := n.host.Address.String()
	n.db("set", "Open_vSwitch", ".", "other_config:local_ip="+here)
	m := ovs.Management{Managers: []string{n.manager()}, Tunnels: n.host.Address}
	external := n.manager()
	n.db("set-manager", m.Managers[0], external)
	require.Eventually(t, func() bool { return strings.Contains(n.Managed().Error(), "does not program") }, patience.Patience, 20*time.Millisecond)
	add("tun1", here)
	add("tun2", "172.31.99.77")
	add("tun3", here, "options:remote_ip=172.31.99.13", "external_ids:iface-id=own")
	settled := func() bool {
		changed, err := n.Manage(n.within(), m)
		require.NoError(t, err)
		return !changed
	}
	require.Eventually(t, settled, patience.Patience, 20*time.Millisecond)
	require.Empty(t, mark("tun1"), "OpenDaylight is connected")

	m.Managers = []string{"tcp:127.0.0.1:1"}
	n.db("set-manager", m.Managers[0], external)
	require.Eventually(t, func() bool { return settled() && mark("tun1") != "" }, patience.Patience, 20*time.Millisecond)
	require.Equal(t, `"coe-tunnel:tun1"`, mark("tun1"))
	require.Empty(t, mark("tun2"))
	require.Equal(t, "own", mark("tun3"))
}

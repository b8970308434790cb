package ovs_test

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A key with an empty value counts as none. If two programs map networks at once, one that has no
// effect fails.
func TestMap(t *testing.T) {
	n := newNode(t, ovs.OVN)
	_, err := n.Settings(n.within()) // it is connected
	require.NoError(t, err)
	is := func(network, want string) {
		t.Helper()
		require.Eventually(t, func() bool { // the local copy follows
			bridge, err := n.BridgeOf(n.within(), network)
			require.NoError(t, err)
			return bridge == want
		}, patience.Patience, 10*time.Millisecond)
	}
	n.db("--no-wait", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings=""`, `external_ids:coe-gateway-nic=""`)
	require.NoError(t, n.Map(n.within(), "one", "br1"))
	require.Equal(t, `"one:br1"`, n.db("get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	is("one", "br1")
	require.NoError(t, n.SetGatewayNIC(n.within(), "eth1"))
	require.Equal(t, "eth1", n.db("get", "Open_vSwitch", ".", "external_ids:coe-gateway-nic"))

	require.NoError(t, n.Map(n.within(), "one", ""))
	is("one", "")
	for range 20 {
		var errs [2]error
		var running sync.WaitGroup
		networks := []string{"one", "two"}
		for i, network := range networks {
			running.Go(func() { errs[i] = n.Map(n.within(), network, "br1") })
		}
		running.Wait()
		mappings := n.db("get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings")
		for i, network := range networks {
			require.Equal(t, errs[i] == nil, strings.Contains(mappings, network+":br1"), "%s: %v: %v", network, mappings, errs[i])
		}
		n.db("--no-wait", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
		is("one", "")
		is("two", "")
	}
}

// MapPhysical replaces all bridge mappings of physical networks, also those with a former address of the node. It keeps the
// mappings of other networks.
func TestMapPhysical(t *testing.T) {
	n := newNode(t, ovs.OVN)
	is := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { // the local copy follows
			settings, err := n.Settings(n.within())
			require.NoError(t, err)
			return settings["ovn-bridge-mappings"] == want
		}, patience.Patience, 10*time.Millisecond)
	}
	n.db("--no-wait", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings="physnet1:br-x,coe-gateway:breth1,coe-old@fd00--1:br-old,coe-plant@fd00--2:br-y"`)
	const others = "physnet1:br-x,coe-gateway:breth1"
	is("physnet1:br-x,coe-gateway:breth1,coe-old@fd00--1:br-old,coe-plant@fd00--2:br-y")
	p := ovs.Physical{Node: netip.MustParseAddr("fd00::1"), Bridges: map[string]string{"plant": "br-a", "lab": "br-b"}}
	require.NoError(t, n.MapPhysical(n.within(), p))
	is(others + ",coe-lab@fd00--1:br-b,coe-plant@fd00--1:br-a")
	const reordered = "coe-plant@fd00--1:br-a,physnet1:br-x,coe-lab@fd00--1:br-b,coe-gateway:breth1"
	n.db("--no-wait", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings="`+reordered+`"`)
	is(reordered)
	require.NoError(t, n.MapPhysical(n.within(), p))
	is(reordered)
	p.Bridges = nil
	require.NoError(t, n.MapPhysical(n.within(), p))
	is(others)

	n.db("--no-wait", "set", "Open_vSwitch", ".", "external_ids:system-id=me", "external_ids:ovn-bridge-mappings-me=a:b")
	require.Eventually(t, func() bool {
		settings, err := n.Settings(n.within())
		require.NoError(t, err)
		return settings["ovn-bridge-mappings-me"] != ""
	}, patience.Patience, 10*time.Millisecond)
	require.NoError(t, n.MapPhysical(n.within(), p), "there is nothing to change")
	p.Bridges = map[string]string{"plant": "br-a"}
	require.ErrorContains(t, n.MapPhysical(n.within(), p), "ovn-bridge-mappings-me has precedence over ovn-bridge-mappings")
}

// Disconnect removes the ports of a gateway without ovn-controller, which does not run here. It keeps other ports, and names one.
func TestDisconnect(t *testing.T) {
	n := newNode(t, ovs.OVN)
	n.db("--no-wait", "add-br", "breth1", "--", "set", "Bridge", "breth1", "external_ids:coe-nic=eth1",
		"--", "add-port", "breth1", "eth1", "--", "set", "Interface", "eth1", "external_ids:coe-nic=eth1",
		"--", "add-port", "breth1", "patch-gateway:outside:10.0.0.1/localnet-to-br-int", "--", "add-port", "breth1", "patch-other")
	ports := func() string { return strings.Join(strings.Fields(n.db("list-ports", "breth1")), " ") }
	require.ErrorContains(t, n.Disconnect(n.within(), "breth1"), "bridge breth1 still has port patch-other")
	n.db("--no-wait", "del-port", "patch-other")
	require.NoError(t, n.Disconnect(n.within(), "breth1"))
	require.Equal(t, "eth1", ports())
}

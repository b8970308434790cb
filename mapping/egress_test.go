package mapping_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// An EgressIP is a way for the pods of a remote group. Its pods do not leave while no node holds the address, nor if that
// node is gone.
func TestEgressIPs(t *testing.T) {
	node, gone := netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("192.168.33.99")
	network := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	all := []*coe.EgressIP{
		{Name: "none", Number: 1},
		{Name: "held", Number: 2, Address: netip.MustParseAddr("192.0.2.2"), Hosts: [2]netip.Addr{gone, node}, Active: 2, Owner: 2},
		{Name: "lost", Number: 3, Address: netip.MustParseAddr("192.0.2.3"), Hosts: [2]netip.Addr{gone}, Active: 1, Owner: 1},
	}
	v := coe.ClusterView{
		Nodes: map[netip.Addr]*coe.Node{node: {HostName: "node-1", InternalIP: node}}, Numbers: map[netip.Addr]*coe.NodeFact{node: {Node: node, Number: 1}},
		Networks: &coe.Networks{Nodes: network}, PolicySet: &coe.PolicySet{EgressIPs: all, Complete: true}, EgressIPs: all,
	}
	settings := mapping.Settings{Isolation: mapping.IsolationNone}
	m, problems := mapping.Cluster(v, settings)
	require.Empty(t, problems)
	held := [2]netvirt.EgressHost{1: {Node: node, Chassis: "node-1"}}
	for name, want := range map[string]netvirt.EgressIP{"none": {Number: 1}, "held": {Number: 2, Hosts: held, Active: 2}, "lost": {Number: 3}} {
		want.Name, want.Group, want.Network, want.Transit = name, "egress:"+name, network.Prefix, netvirt.CommonRouteTarget
		require.Equal(t, want, m[want.Key()])
		require.Contains(t, m, netvirt.RemoteGroup{Name: want.Group}.Key())
	}
	_, _, dangling := m.Dangling()
	require.False(t, dangling)

	settings.Isolation = mapping.IsolationNamespace
	m, _ = mapping.Cluster(v, settings)
	for k := range m {
		require.NotEqual(t, netvirt.KindEgressIP, k.Kind)
	}
}

// A pod is a member of the groups of all EgressIPs that select it, with or without policies. Of two, the second is a
// problem. A changed selector changes exactly the members that it is about.
func TestEgressMembers(t *testing.T) {
	store := state.NewStore(nil, coe.Kubernetes)
	only := func(key, value string) coe.Selector {
		return coe.Selector{Requirements: []coe.Requirement{{Key: key, Operator: coe.In, Values: []string{value}}}}
	}
	labels := map[string]coe.Labels{"red": coe.NewLabels(map[string]string{"color": "red"}), "blue": coe.NewLabels(map[string]string{"color": "blue"})}
	first := &coe.EgressIP{Name: "first", UID: "1", Number: 1, Pods: only("color", "red")}
	second := &coe.EgressIP{Name: "second", UID: "2", Number: 2}
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		n := &coe.Node{UID: "n", HostName: "node1", InternalIP: synth.Node1}
		tx.PutNode(coe.Kubernetes, n)
		tx.PutVPN(&coe.VPNFact{Name: "vpn", Namespace: "shop", RD: 2})
		elan := netvirt.ELANName(synth.Node1, "shop")
		tx.PutELAN("shop", &coe.ELANFact{Name: elan, VNI: 70000})
		block := netip.MustParsePrefix("10.42.0.0/29")
		tx.PutBlock("shop", &coe.Block{ELAN: elan, Prefix: block, Gateway: netip.MustParseAddr("10.42.0.1")})
		for i, name := range []string{"red", "blue"} {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: name, Name: name, Namespace: "shop", HostIP: synth.Node1, Labels: labels[name]})
			tx.PutLease(&coe.Lease{
				PodUID: name, InterfaceUID: name, Namespace: "shop", Pod: name, Name: "shop:" + name, Node: synth.Node1, MAC: "0a:58:0a:2a:00:02", Seq: uint64(i),
				Addresses: []coe.LeasedAddress{{Address: netip.AddrFrom4([4]byte{10, 42, 0, byte(2 + i)}), Network: block, Gateway: netip.MustParseAddr("10.42.0.1")}},
			})
		}
	})
	mapper := mapping.NewMapper(store, settings)
	members := func() (map[string]netvirt.NameList, []coe.Problem) {
		parts, problems := mapper.Scope("shop")
		m, again := mapping.Scope(store, "shop", settings)
		require.Equal(t, m, parts.Model())
		require.Equal(t, again, problems)
		all := map[string]netvirt.NameList{}
		for _, o := range m {
			if acl, ok := o.(netvirt.InterfaceACL); ok {
				require.Empty(t, acl.SecurityGroups)
				all[acl.Interface] = acl.RemoteGroups
			}
		}
		return all, problems
	}
	set := func(all ...*coe.EgressIP) { store.Update(func(tx *state.Tx) { tx.SetEgress(all, nil) }) }

	set(first)
	got, problems := members()
	require.Equal(t, map[string]netvirt.NameList{"shop:red": "egress:first"}, got)
	require.Empty(t, problems)
	set(first, second)
	got, problems = members()
	require.Equal(t, map[string]netvirt.NameList{"shop:red": "egress:first,egress:second", "shop:blue": "egress:second"}, got)
	require.Len(t, problems, 1)
	require.Equal(t, "second", problems[0].Name)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "egressip first selects")
	changed := *first
	changed.Pods = only("color", "blue")
	set(&changed)
	got, _ = members()
	require.Equal(t, map[string]netvirt.NameList{"shop:blue": "egress:first"}, got)
	set()
	got, _ = members()
	require.Empty(t, got)
}

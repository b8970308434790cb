package mapping_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// A node has a management port if it has a number and there is a transit.
func TestNodesAreJoined(t *testing.T) {
	other := netip.MustParseAddr("192.168.33.13")
	v := coe.ClusterView{
		Nodes:   map[netip.Addr]*coe.Node{synth.Node1: {HostName: "node1"}, other: {HostName: "node2"}},
		Numbers: map[netip.Addr]*coe.NodeFact{synth.Node1: {Node: synth.Node1, Number: 3}, netip.MustParseAddr("192.168.33.14"): {Number: 4}},
		Networks: &coe.Networks{
			Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
		},
	}
	nodes := []netvirt.Object{netvirt.Node{Address: synth.Node1, HostName: "node1"}, netvirt.Node{Address: other, HostName: "node2"}}
	require.Equal(t, model(append(nodes, netvirt.Transit{RouteTarget: "100:1"},
		netvirt.NodeNetwork{Prefix: v.Networks.Nodes.Prefix, Gateway: netip.MustParseAddr("100.96.0.1"), Transit: "100:1"},
		netvirt.ManagementPort{
			Node: synth.Node1, Network: v.Networks.Nodes.Prefix, Address: netip.MustParseAddr("100.96.0.6"),
			ServiceAddress: netip.MustParseAddr("100.96.0.7"), EdgeAddress: netip.MustParseAddr("100.96.255.252"), MAC: "0a:58:64:60:00:06", Chassis: "node1",
		})...), cluster(t, v, settings))
	require.Equal(t, model(nodes...), cluster(t, v, mapping.Settings{Isolation: mapping.IsolationNamespace}))
	joined := v.Networks
	v.Networks = &coe.Networks{Isolated: true}
	require.Equal(t, model(append(nodes, netvirt.Transit{RouteTarget: "100:1"})...), cluster(t, v, settings), "isolation was turned off just now")
	v.Networks, v.Numbers = joined, nil
	require.Equal(t, model(append(nodes, netvirt.Transit{RouteTarget: "100:1"})...), cluster(t, v, settings))
}

func cluster(t *testing.T, v coe.ClusterView, s mapping.Settings) netvirt.Model {
	t.Helper()
	m, problems := mapping.Cluster(v, s)
	require.Empty(t, problems)
	return m
}

// A node without a number is a problem only if the node network has no free number.
func TestNodeNetworkFull(t *testing.T) {
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 33, n}) }
	v := coe.ClusterView{
		Nodes:    map[netip.Addr]*coe.Node{at(1): {UID: "1"}, at(2): {UID: "2"}, at(3): {UID: "3"}},
		Numbers:  map[netip.Addr]*coe.NodeFact{},
		Networks: &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/29")}},
	}
	cluster(t, v, settings)
	v.Numbers[at(1)] = &coe.NodeFact{Number: 1}
	_, problems := mapping.Cluster(v, settings)
	require.Len(t, problems, 2)
	for i, p := range problems {
		require.Equal(t, []string{"2", "3"}[i], p.UID)
		require.Equal(t, coe.IDsExhausted, p.Reason)
		require.Contains(t, p.Message, "no free address for the node's management port")
	}

	isolated := mapping.Settings{Isolation: mapping.IsolationNamespace, NodeAddresses: true}
	cluster(t, v, isolated)
	isolated.Limits.NodesBalance = true
	_, problems = mapping.Cluster(v, isolated)
	require.Len(t, problems, 2)
	require.Contains(t, problems[0].Message, "no free address for the node, so its pods reach no services")
	delete(v.Numbers, at(1))
	cluster(t, v, isolated)

	six := netip.MustParseAddr("fd00:33::12")
	v.Nodes = map[netip.Addr]*coe.Node{six: {UID: "6"}}
	_, problems = mapping.Cluster(v, isolated)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "its pods reach no services")
	cluster(t, v, settings)
}

// A node has IPv6 addresses if the cluster has a range for them.
func TestNodesWithIPv6(t *testing.T) {
	second := netip.MustParseAddr("2001:db8::7")
	v := coe.ClusterView{
		Nodes:   map[netip.Addr]*coe.Node{synth.Node1: {HostName: "node1", SecondIP: second}},
		Numbers: map[netip.Addr]*coe.NodeFact{synth.Node1: {Node: synth.Node1, Number: 3}},
		Networks: &coe.Networks{
			Nodes:     nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
			NodesIPv6: nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")},
		},
	}
	m := cluster(t, v, settings)
	network := m[netvirt.NodeNetwork{Prefix: v.Networks.Nodes.Prefix}.Key()].(netvirt.NodeNetwork)
	require.Equal(t, v.Networks.NodesIPv6.Prefix, network.PrefixIPv6)
	require.Equal(t, "fd00:96::1", network.GatewayIPv6.String())
	port := m[netvirt.ManagementPort{Node: synth.Node1}.Key()].(netvirt.ManagementPort)
	require.Equal(t, netvirt.NodeAddresses{
		Address: netip.MustParseAddr("fd00:96::6"), Service: netip.MustParseAddr("fd00:96::7"), Edge: netip.MustParseAddr("fd00:96::ffff:fffc"),
	}, port.IPv6)
	require.Equal(t, second, port.Second)

	v.Networks = &coe.Networks{Nodes: v.Networks.Nodes}
	m = cluster(t, v, settings)
	require.Zero(t, m[netvirt.ManagementPort{Node: synth.Node1}.Key()].(netvirt.ManagementPort).Second, "the node forwards no IPv6")
}

// A node whose edge address belongs to a node with a number of a release that gave nodes two addresses has
// none, which is a problem.
func TestNodeWithoutAnEdgeAddress(t *testing.T) {
	other := netip.MustParseAddr("192.168.33.13")
	v := coe.ClusterView{
		Nodes:    map[netip.Addr]*coe.Node{synth.Node1: {UID: "1", HostName: "node1"}, other: {UID: "2", HostName: "node2"}},
		Numbers:  map[netip.Addr]*coe.NodeFact{synth.Node1: {Node: synth.Node1, Number: 1}, other: {Node: other, Number: 6}},
		Networks: &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/28")}},
	}
	m, problems := mapping.Cluster(v, settings)
	require.Len(t, problems, 1)
	require.Equal(t, "node2", problems[0].Name)
	require.Contains(t, problems[0].Message, "100.96.0.0/28 has no free address for the edge address of the node, so the node leads only its own programs to services, and does not answer on node ports")
	require.Equal(t, "100.96.0.14", m[netvirt.ManagementPort{Node: synth.Node1}.Key()].(netvirt.ManagementPort).EdgeAddress.String())
	require.False(t, m[netvirt.ManagementPort{Node: other}.Key()].(netvirt.ManagementPort).EdgeAddress.IsValid())
}

// The addresses of a node that policies always allow are those that nobody else connects with. A NAT can give
// others the ExternalIP of a node.
func TestAddressesOfTheOwnNode(t *testing.T) {
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.SetNetworks(&coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}})
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "1", HostName: "node1", InternalIP: synth.Node1, ExternalIP: netip.MustParseAddr("192.0.2.7")})
		tx.PutNodeFact(&coe.NodeFact{Node: synth.Node1, Number: 3})
		p := &coe.PolicySpec{Policy: coe.Policy{UID: "p", Name: "deny", Namespace: "shop"}}
		p.Ingress.Isolates = true
		tx.PutPolicy(coe.Kubernetes, p)
	})
	m, _ := mapping.Scope(store, netvirt.Cluster, settings)
	group, found := m[netvirt.RemoteGroup{Name: netvirt.NodeGroupName(synth.Node1)}.Key()].(netvirt.RemoteGroup)
	require.True(t, found)
	require.Equal(t, netvirt.PrefixList("100.96.0.6/32,100.96.0.7/32,"+synth.Node1.String()+"/32"), group.Prefixes)
	acl := netvirt.ACL{Name: netvirt.NodeACLName(synth.Node1)} // what no policy decides is not logged
	require.Equal(t, acl, m[acl.Key()])
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		ace := netvirt.ACE{ACL: acl.Name, Name: string(d) + ":ipv4", Direction: d, Family: netvirt.IPv4, Remote: group.Name}
		require.Equal(t, ace, m[ace.Key()])
	}

	store.Update(func(tx *state.Tx) {
		tx.SetNetworks(&coe.Networks{
			Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, NodesIPv6: nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")},
		})
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "1", HostName: "node1", InternalIP: synth.Node1, SecondIP: netip.MustParseAddr("2001:db8::7")})
	})
	m, _ = mapping.Scope(store, netvirt.Cluster, settings)
	group = m[netvirt.RemoteGroup{Name: netvirt.NodeGroupName(synth.Node1)}.Key()].(netvirt.RemoteGroup)
	require.Equal(t, netvirt.PrefixList("100.96.0.6/32,100.96.0.7/32,"+synth.Node1.String()+"/32,2001:db8::7/128,fd00:96::6/128,fd00:96::7/128"), group.Prefixes)
}

// With gateways, a node has the gateways of the blocks of all its namespaces, and it exists as long as it has a block.
func TestGatewaysOfNodes(t *testing.T) {
	block := func(elan, prefix, gateway string) *coe.Block {
		return &coe.Block{ELAN: elan, Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway)}
	}
	gone := netip.MustParseAddr("192.168.33.13")
	v := coe.ClusterView{
		Nodes: map[netip.Addr]*coe.Node{synth.Node1: {HostName: "node1", InternalIP: synth.Node1}}, PolicySet: &coe.PolicySet{},
		Blocks: map[netip.Addr][]*coe.Block{
			synth.Node1: {
				block("192.168.33.12:a", "10.0.0.8/29", "10.0.0.9"), block("192.168.33.12:b", "10.0.0.0/29", "10.0.0.1"),
				block("192.168.33.12:a", "169.254.1.1/32", "169.254.1.1"), block("192.168.33.12:b", "169.254.1.1/32", "169.254.1.1"),
			},
			gone: {block("192.168.33.13:a", "fd00::/120", "fd00::1")},
		},
	}
	shared := block("192.168.33.12:a", "10.0.0.17/32", "10.0.0.17")
	shared.Shared = netip.MustParsePrefix("10.0.0.16/29")
	v.Blocks[synth.Node1] = append(v.Blocks[synth.Node1], shared)
	v.Numbers = map[netip.Addr]*coe.NodeFact{ // without a range of addresses of nodes, so without numbers
		synth.Node1: {Node: synth.Node1, Chassis: "c1"}, gone: {Node: gone, Chassis: "c2"},
	}
	plain, byNode := settings, settings
	byNode.Limits.NodeGateways = true
	attached := byNode
	require.NoError(t, attached.Physical.Add(physical.Network{Namespace: "a", Name: "plant"}))
	for name, c := range map[string]struct {
		settings mapping.Settings
		want     []netvirt.Object
	}{
		"without gateways": {plain, []netvirt.Object{netvirt.Node{Address: synth.Node1, HostName: "node1"}}},
		"with gateways": {byNode, []netvirt.Object{
			netvirt.Node{Address: synth.Node1, HostName: "node1", Chassis: "c1", Gateways: "10.0.0.1/29,10.0.0.9/29,10.0.0.17/29,169.254.1.1/32"},
			netvirt.Node{Address: gone, Chassis: "c2", Gateways: "fd00::1/120"},
		}},
		"with a physical network of one namespace": {attached, []netvirt.Object{
			netvirt.Node{Address: synth.Node1, HostName: "node1", Chassis: "c1", Gateways: "10.0.0.1/29,10.0.0.17/29,169.254.1.1/32"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, problems := mapping.Cluster(v, c.settings)
			require.Empty(t, problems)
			require.Equal(t, model(c.want...), m.Select(netvirt.NewKindSet(netvirt.KindNode)))
		})
	}
}

package ovn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestDeferredMoves: no node moves without its pods, and a policy is deleted after the last node has moved.
func TestDeferredMoves(t *testing.T) {
	server := ovsdb.Start(t)
	pod := livePods[2] // on the second node
	require.Equal(t, 2, pod.host)
	acl := netvirt.ACL{Name: "a:former", Namespace: pod.ns}
	model := liveModel(false)
	model.Add(nodesOfLive...)
	model.Add(acl, netvirt.InterfaceACL{Interface: pod.iface(), Namespace: pod.ns, SecurityGroups: netvirt.NameList(acl.Name)})
	write(t, open(t, server, byELAN), model)
	switches, groups := server.Dump(t, nb.LogicalSwitchTable, nb.LogicalSwitchPortTable), server.Dump(t, nb.PortGroupTable)

	b := open(t, server, func(c *ovn.Config) { c.Batch, c.Epoch = 1, "1" }) // each node moves alone
	want := withGateways(liveModel(false))
	want.Add(nodesOfLive...)
	want = withGateways(want).Select(b.Kinds())
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	changes := netvirt.Diff(have, want)
	var ofCluster []netvirt.Change
	for _, c := range changes {
		if c.Scope() == netvirt.Cluster {
			ofCluster = append(ofCluster, c)
		}
	}
	var late *netvirt.DeferredError
	require.ErrorAs(t, b.Write(t.Context(), ofCluster), &late)
	for _, node := range nodesOfLive {
		require.Contains(t, late.Have, node.Key())
	}
	require.Equal(t, switches, server.Dump(t, nb.LogicalSwitchTable, nb.LogicalSwitchPortTable))

	require.ErrorAs(t, b.Write(t.Context(), changes), &late)
	require.Contains(t, late.Have, acl.Key())
	moved := 0
	for _, node := range nodesOfLive {
		if _, waits := late.Have[node.Key()]; !waits {
			moved++
		}
	}
	require.Equal(t, 1, moved)
	require.Equal(t, groups, server.Dump(t, nb.PortGroupTable))
}

// TestIsolatedNodesMoveTogether: pods of a namespace in both layouts would not reach each other.
func TestIsolatedNodesMoveTogether(t *testing.T) {
	server := ovsdb.Start(t)
	one := func(c *ovn.Config) { c.Batch, c.Epoch = 1, "1" }
	for _, to := range []struct {
		layout   func(*ovn.Config)
		isolated bool
	}{{byELAN, true}, {one, false}, {byELAN, true}} {
		model := liveModel(to.isolated)
		model.Add(nodesOfLive...)
		b := open(t, server, one, to.layout)
		if !to.isolated {
			model = withGateways(model)
		}
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, model.Select(b.Kinds()))))
	}
}

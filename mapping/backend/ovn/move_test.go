package ovn_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
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

	moved := func() (nodes int) {
		require.ErrorAs(t, b.Write(t.Context(), changes), &late)
		require.Contains(t, late.Have, acl.Key())
		for _, node := range nodesOfLive {
			if _, waits := late.Have[node.Key()]; !waits {
				nodes++
			}
		}
		return nodes
	}
	require.Zero(t, moved(), "first the nodes get their new switches")
	with := server.Dump(t, nb.LogicalSwitchTable)
	for _, o := range nodesOfLive {
		require.Contains(t, with, "node:"+o.(netvirt.Node).Address.String())
	}
	require.Zero(t, moved(), "OVN has not computed that")
	server.NBCtl(t, "set", "NB_Global", ".", "sb_cfg=1", "hv_cfg=1")
	require.Equal(t, 1, moved())
	require.Equal(t, groups, server.Dump(t, nb.PortGroupTable))
}

// TestChangedInMove: if another program has changed the database between two moves, Write fails until the caller has read that.
func TestChangedInMove(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, server *ovsdb.Server){
		"a switch":      func(t *testing.T, s *ovsdb.Server) { s.NBCtl(t, "ls-del", "node:192.168.0.2") },
		"a router port": func(t *testing.T, s *ovsdb.Server) { s.NBCtl(t, "lrp-del", "router:node:192.168.0.2/10.1.2.1") },
	} {
		t.Run(name, func(t *testing.T) {
			server := ovsdb.Start(t)
			model := liveModel(false)
			model.Add(nodesOfLive...)
			write(t, open(t, server, byELAN), model)
			b := open(t, server, func(c *ovn.Config) { c.Batch, c.Epoch = 1, "1" })
			want := withGateways(model).Select(b.Kinds())
			read := func() []netvirt.Change {
				have, err := b.Read(t.Context())
				require.NoError(t, err)
				return netvirt.Diff(have, want)
			}
			changes := read()
			var late *netvirt.DeferredError
			require.ErrorAs(t, b.Write(t.Context(), changes), &late)
			server.NBCtl(t, "set", "NB_Global", ".", "sb_cfg=99", "hv_cfg=99")
			require.ErrorAs(t, b.Write(t.Context(), changes), &late)
			change(t, server)
			failed := 0
			for {
				err := b.Write(t.Context(), changes)
				if err == nil {
					break
				}
				if !errors.As(err, &late) {
					failed++
					changes = read()
				}
			}
			require.Equal(t, 1, failed)
			require.Empty(t, read())
		})
	}
}

// TestRefusedMove: a node whose rows the server refuses stays in the former layout with all its pods. Others move.
func TestRefusedMove(t *testing.T) {
	server := ovsdb.Start(t)
	model := liveModel(false)
	model.Add(nodesOfLive...)
	write(t, open(t, server, byELAN), model)
	server.NBCtl(t, "lr-add", "external", "--", "lrp-add", "external", "router:node:192.168.0.2/10.1.2.1", "0a:58:00:00:00:01", "10.1.2.1/24")
	before := server.NBCtl(t, "--bare", "--columns=ports", "find", "Logical_Switch", "name=\"192.168.0.2:a\"")
	require.NotEmpty(t, before)

	b := open(t, server, func(c *ovn.Config) { c.Epoch = "1" }) // all nodes move together
	want := withGateways(model).Select(b.Kinds())
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	var rejected *netvirt.RejectedError
	require.ErrorAs(t, b.Write(t.Context(), netvirt.Diff(have, want)), &rejected)
	refused := netvirt.Node{Address: hostOf(2)}.Key()
	require.Equal(t, []netvirt.Key{refused}, rejected.Keys)
	require.Equal(t, before, server.NBCtl(t, "--bare", "--columns=ports", "find", "Logical_Switch", "name=\"192.168.0.2:a\""))
	have, err = b.Read(t.Context())
	require.NoError(t, err)
	for _, c := range netvirt.Diff(have, want) {
		require.NotEqual(t, netvirt.Node{Address: hostOf(1)}.Key(), c.Key(), "the other node has moved")
	}

	server.NBCtl(t, "lr-del", "external")
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
	have, err = b.Read(t.Context())
	require.NoError(t, err)
	backendtest.Agree(t, want, have)
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

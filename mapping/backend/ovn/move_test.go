package ovn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// toNode is a change to LayoutNode in which each node moves alone.
type toNode struct {
	server *ovsdb.Server
	b      *ovn.Backend
	want   netvirt.Model
}

// beginToNode writes a model in LayoutELAN, and opens a backend with LayoutNode.
func beginToNode(t *testing.T) *toNode {
	t.Helper()
	server := ovsdb.Start(t)
	model := liveModel(false)
	model.Add(nodesOfLive...)
	write(t, open(t, server, byELAN), model)
	c := &toNode{server: server, want: withGateways(model)}
	c.open(t, "1")
	c.want = c.want.Select(c.b.Kinds())
	return c
}

// open opens a backend with a later epoch.
func (c *toNode) open(t *testing.T, epoch string) {
	t.Helper()
	c.b = open(t, c.server, func(cfg *ovn.Config) { cfg.Batch, cfg.Epoch = 1, epoch })
}

func (c *toNode) read(t *testing.T) []netvirt.Change {
	t.Helper()
	have, err := c.b.Read(t.Context())
	require.NoError(t, err)
	return netvirt.Diff(have, c.want)
}

// write returns the error of one Write.
func (c *toNode) write(t *testing.T, changes []netvirt.Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	return c.b.Write(ctx, changes)
}

// computed says that OVN has all moves.
func (c *toNode) computed(t *testing.T) {
	t.Helper()
	c.server.NBCtl(t, "set", "NB_Global", ".", "sb_cfg=99", "hv_cfg=99")
}

// end writes until the layout has changed.
func (c *toNode) end(t *testing.T) {
	t.Helper()
	c.computed(t)
	changes := c.read(t)
	var late *netvirt.DeferredError
	for end := time.Now().Add(patience.Patience); errors.As(c.write(t, changes), &late); {
		require.True(t, time.Now().Before(end), "nodes still wait")
	}
	require.Empty(t, c.read(t))
}

// requireAhead checks which nodes have switches.
func (c *toNode) requireAhead(t *testing.T, first, second bool) {
	t.Helper()
	names := c.server.NBCtl(t, "--bare", "--columns=name", "list", "Logical_Switch")
	require.Equal(t, first, strings.Contains(names, "node:192.168.0.1"), names)
	require.Equal(t, second, strings.Contains(names, "node:192.168.0.2"), names)
}

// TestMarksLostAhead: a bridge that starts after another program has cleared the marks of a switch ahead, or of its router port, takes the row over.
func TestMarksLostAhead(t *testing.T) {
	for _, row := range [][]string{
		{"Logical_Switch", "node:192.168.0.2"}, {"Logical_Router_Port", "router:node:192.168.0.2/10.1.2.1"},
	} {
		t.Run(row[0], func(t *testing.T) {
			c := beginToNode(t)
			var late *netvirt.DeferredError
			require.ErrorAs(t, c.write(t, c.read(t)), &late)
			c.server.NBCtl(t, "clear", row[0], row[1], "external_ids")
			c.computed(t)
			c.open(t, "2")
			require.ErrorAs(t, c.write(t, c.read(t)), &late)
			require.NotEmpty(t, strings.TrimSpace(c.server.NBCtl(t, "--bare", "get", row[0], row[1], "external_ids:coe-bridge/owner")))
			c.end(t)
		})
	}
}

// TestRefusedSwitch: if the server refuses the switch of a node, other nodes have switches ahead, and move before that node.
func TestRefusedSwitch(t *testing.T) {
	c := beginToNode(t)
	c.server.NBCtl(t, "lr-add", "external", "--", "lrp-add", "external", "router:node:192.168.0.1/10.1.1.1", "0a:58:00:00:00:01", "10.1.1.1/29")
	changes := c.read(t)
	var late *netvirt.DeferredError
	require.ErrorAs(t, c.write(t, changes), &late)
	c.requireAhead(t, false, true)
	c.computed(t)
	var rejected *netvirt.RejectedError
	require.ErrorAs(t, c.write(t, changes), &rejected)
	refused := netvirt.Node{Address: hostOf(1)}.Key()
	require.Equal(t, []netvirt.Key{refused}, rejected.Keys)
	require.ErrorAs(t, c.write(t, c.read(t)), &late)
	require.Contains(t, late.Have, refused)
	require.NotContains(t, late.Have, netvirt.Node{Address: hostOf(2)}.Key())
	c.server.NBCtl(t, "lr-del", "external")
	c.end(t)
}

// TestRejectedBeforeMove: a node stays in the former layout if the policy of a pod of its is rejected in the same write: the pod would move without it.
func TestRejectedBeforeMove(t *testing.T) {
	c := beginToNode(t)
	pod := livePods[2] // on the second node
	acl := netvirt.ACL{Name: "a:later", Namespace: pod.ns}
	c.want.Add(acl, netvirt.InterfaceACL{Interface: pod.iface(), Namespace: pod.ns, SecurityGroups: netvirt.NameList(acl.Name)})
	c.server.NBCtl(t, "pg-add", "coe_bridge..a.3alater", "--", "lr-add", "external", "--",
		"lrp-add", "external", "router:node:192.168.0.1/10.1.1.1", "0a:58:00:00:00:01", "10.1.1.1/29")
	before := c.server.NBCtl(t, "--bare", "--columns=ports", "find", "Logical_Switch", "name=\"192.168.0.2:a\"")
	c.b = open(t, c.server, func(cfg *ovn.Config) { cfg.Epoch = "2" }) // all nodes move together
	var rejected *netvirt.RejectedError
	require.ErrorAs(t, c.write(t, c.read(t)), &rejected)
	require.Contains(t, rejected.Keys, acl.Key())
	require.Contains(t, rejected.Keys, netvirt.Node{Address: hostOf(2)}.Key())
	require.Equal(t, before, c.server.NBCtl(t, "--bare", "--columns=ports", "find", "Logical_Switch", "name=\"192.168.0.2:a\""))
	c.server.NBCtl(t, "pg-del", "coe_bridge..a.3alater", "--", "lr-del", "external")
	c.end(t)
}

// TestBridgeStartsInMove: a bridge that starts waits until OVN has what the one before it has written.
func TestBridgeStartsInMove(t *testing.T) {
	c := beginToNode(t)
	c.server.NBCtl(t, "set", "NB_Global", ".", "nb_cfg=7")
	changes := c.read(t)
	var late *netvirt.DeferredError
	require.ErrorAs(t, c.write(t, changes), &late)
	c.requireAhead(t, false, false)
	c.computed(t)
	require.ErrorAs(t, c.write(t, changes), &late)
	c.requireAhead(t, true, true)
	c.end(t)
}

// TestConnectionClosedInMove: a write without what the database has fails while the layout changes.
func TestConnectionClosedInMove(t *testing.T) {
	c := beginToNode(t)
	changes := c.read(t)
	var late *netvirt.DeferredError
	require.ErrorAs(t, c.write(t, changes), &late)
	c.b.Close()
	err := c.write(t, changes)
	require.Error(t, err)
	require.NotErrorAs(t, err, &late)
	c.end(t)
}

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
			c := beginToNode(t)
			changes := c.read(t)
			var late *netvirt.DeferredError
			require.ErrorAs(t, c.write(t, changes), &late)
			c.computed(t)
			require.ErrorAs(t, c.write(t, changes), &late)
			change(t, c.server)
			failed := 0
			for end := time.Now().Add(patience.Patience); ; {
				require.True(t, time.Now().Before(end), "nodes still wait")
				err := c.write(t, changes)
				if err == nil {
					break
				}
				if !errors.As(err, &late) {
					failed++
					changes = c.read(t)
				}
			}
			require.Equal(t, 1, failed)
			require.Empty(t, c.read(t))
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

package openflow_test

import (
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// bridge is the bridge of a real switch.
type bridge struct {
	t               *testing.T
	socket, control string
}

func newBridge(t *testing.T) bridge {
	lab := ovnhost.SwitchesForTest(t, "host1")
	dir := lab.Hosts[0].Dir
	return bridge{t, filepath.Join(dir, "br-int.mgmt"), filepath.Join(dir, "ovs-vswitchd.0.ctl")}
}

// trace returns what the bridge does to a packet.
func (b bridge) trace(packet string) string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "ovs-appctl", "-t", b.control, "ofproto/trace", "br-int", packet).CombinedOutput()
	require.NoError(b.t, err, "%s", out)
	return string(out)
}

// change runs a command of ovs-ofctl with one argument.
func (b bridge) change(command, argument string) {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "ovs-ofctl", "-O", "OpenFlow13", command, "unix:"+b.socket, argument).CombinedOutput()
	require.NoError(b.t, err, "%s", out)
}

func (b bridge) lacks(p openflow.Port) string {
	b.t.Helper()
	c, err := openflow.Dial(b.t.Context(), b.socket)
	require.NoError(b.t, err)
	defer c.Close()
	lacks, err := c.Lacks(b.t.Context(), p)
	require.NoError(b.t, err)
	return lacks
}

// TestLacks adds flows in the form that Netvirt gives them, one after the other. Flows of a former port with the addresses of
// the pod do not count.
func TestLacks(t *testing.T) {
	b := newBridge(t)
	pod, node := net.HardwareAddr{0x0a, 0x58, 0x0a, 0x2a, 0, 2}, net.HardwareAddr{0x0a, 0x58, 0x64, 0x60, 0, 1}
	p := openflow.Port{
		Number: 7, MAC: pod, Neighbours: []net.HardwareAddr{node},
		Addresses: []netip.Addr{netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00::2")},
	}
	for _, former := range []string{
		"table=0,in_port=6,actions=write_metadata:0x50000000000/0xffffff0000000001,goto_table:17",
		"table=17,priority=10,metadata=0x50000000000/0xffffff0000000000,actions=write_metadata:0xb000050000030d40/0xfffffffffffffffe,goto_table:19",
		"table=17,priority=10,metadata=0xb000050000000000/0xffffff0000000000,actions=write_metadata:0xc00005138a000000/0xfffffffffffffffe,goto_table:43",
		"table=50,priority=20,metadata=0x5138a000000/0xfffffffff000000,dl_src=0a:58:0a:2a:00:02,actions=goto_table:51",
		"table=50,priority=20,metadata=0x4138a000000/0xfffffffff000000,dl_src=0a:58:64:60:00:01,actions=goto_table:51",
		"table=51,priority=20,metadata=0x138a000000/0xffff000000,dl_dst=0a:58:0a:2a:00:02,actions=load:0x500->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138a000000/0xffff000000,dl_dst=0a:58:64:60:00:01,actions=load:0x400->NXM_NX_REG6[],resubmit(,220)",
		"table=220,priority=9,reg6=0x500,actions=output:6",
		"table=220,priority=9,reg6=0xa00,actions=output:7",
	} {
		b.change("add-flow", former)
	}
	b.change("add-group", "group_id=150001,type=all,bucket=actions=set_field:0a:58:0a:2a:00:02->eth_dst,load:0x500->NXM_NX_REG6[],resubmit(,220)")
	b.change("add-group", "group_id=150002,type=all,bucket=actions=set_field:0a:58:0a:2a:00:02->eth_dst,load:0x900->NXM_NX_REG6[],resubmit(,220)")
	b.change("add-group", "group_id=150003,type=all,bucket=actions=set_field:0a:58:0a:2a:00:02->eth_dst,load:0x900->NXM_NX_REG6[],resubmit(,220)")
	b.change("add-group", "group_id=210005,type=all,bucket=actions=set_field:0x8->tun_id,resubmit(,55)")
	b.change("add-group", "group_id=210006,type=all,bucket=actions=group:210005")
	for _, step := range []struct{ lacks, flow string }{
		{"table 0 has no flow for port 7", "table=0,in_port=7,actions=write_metadata:0x90000000000/0xffffff0000000001,goto_table:17"},
		{"table 50 has no flow from 0a:58:0a:2a:00:02", "table=50,priority=20,metadata=0x9138c000000/0xfffffffff000000,dl_src=0a:58:0a:2a:00:02,actions=goto_table:51"},
		{"table 51 has no flow to 0a:58:0a:2a:00:02", "table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:02,actions=load:0x900->NXM_NX_REG6[],resubmit(,220)"},
		{"table 51 has no flow to 0a:58:64:60:00:01", "table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:64:60:00:01,actions=load:0x800->NXM_NX_REG6[],resubmit(,220)"},
		{"table 50 has no flow from 0a:58:64:60:00:01", "table=50,priority=20,metadata=0x8138c000000/0xfffffffff000000,dl_src=0a:58:64:60:00:01,actions=goto_table:51"},
		{"table 17 has no flow of the elan-instance from 0a:58:64:60:00:01", "table=17,priority=10,metadata=0x80000000000/0xffffff0000000000,actions=write_metadata:0xc00008138c000000/0xfffffffffffffffe,goto_table:43"},
		{"table 220 has no flow to 0a:58:64:60:00:01", "table=220,priority=9,reg6=0x800,actions=output:5"},
		{"table 17 has no flow of the elan-instance from 0a:58:0a:2a:00:02", "table=17,priority=10,metadata=0xb000090000000000/0xffffff0000000000,actions=write_metadata:0xc00009138c000000/0xfffffffffffffffe,goto_table:43"},
		{"table 17 has no flow of the vpn-instance from 0a:58:0a:2a:00:02", "table=17,priority=10,metadata=0x90000000000/0xffffff0000000000,actions=write_metadata:0xb000090000030d40/0xfffffffffffffffe,goto_table:19"},
		{"table 21 has no flow to 10.42.0.2", "table=21,priority=42,ip,metadata=0x30d40/0xfffffe,nw_dst=10.42.0.2,actions=group:150001"},
		{"table 21 does not lead packets to 10.42.0.2 to its port", "table=21,priority=42,ip,metadata=0x30d40/0xfffffe,nw_dst=10.42.0.2,actions=group:150002"},
		{"table 36 has no flow from tunnels to 10.42.0.2", "table=36,priority=5,tun_id=0x186a1,actions=group:150001"},
		{"table 36 has no flow from tunnels to 10.42.0.2", "table=36,priority=5,tun_id=0x186a3,actions=group:150003"},
		{"table 36 has no flow from tunnels to 10.42.0.2", "table=36,priority=5,tun_id=0x9,actions=load:0x900->NXM_NX_REG6[],resubmit(,220)"},
		{"table 36 has no flow from tunnels to 10.42.0.2", "table=36,priority=5,tun_id=0x11170,actions=write_metadata:0x138c000000/0xfffffffff000000,goto_table:51"},
		{"table 36 has no flow from tunnels to 10.42.0.2", "table=36,priority=5,tun_id=0x186a2,actions=group:150002"},
		{"table 220 has no flow to port 7", "table=220,priority=6,reg6=0x900,actions=load:0x90000900->NXM_NX_REG6[],write_metadata:0x90000000000/0xfffffffffffffffe,goto_table:239"},
		{"table 220 has no flow to port 7", "table=220,priority=9,reg6=0x90000900,actions=output:7"},
		{"the groups of table 52 do not lead to port 7", "table=52,priority=5,metadata=0x138c000001/0xffff000001,actions=write_actions(group:210005)"},
		{"the groups of table 52 do not lead to port 7", "table=52,priority=5,metadata=0x138c000000/0xffff000001,actions=write_actions(group:210006)"},
	} {
		require.Equal(t, step.lacks, b.lacks(p))
		b.change("add-flow", step.flow)
	}
	const without = "the groups of table 52 do not lead to port 7"
	require.Equal(t, without, b.lacks(p), "the group has the port of another pod")
	b.change("mod-group", "group_id=210005,type=all,bucket=actions=set_field:0x8->tun_id,resubmit(,55),bucket=actions=set_field:0x9->tun_id,resubmit(,55)")
	require.Empty(t, b.lacks(p))
	b.change("mod-group", "group_id=210006,type=all,bucket=actions=group:150001")
	require.Equal(t, without, b.lacks(p), "broadcasts of pods of the switch do not reach the pod")
	b.change("mod-group", "group_id=210006,type=all,bucket=actions=group:210005")
	require.Equal(t, "table 0 has no flow for port 8", b.lacks(openflow.Port{Number: 8, MAC: pod}))
}

// TestPorts: only ports with a tag count. An elan-instance leads to a port by its tag, not by that of a former port. A flow to another
// switch does not lead to the tunnel. Tunnels must lead to the group of a route to each IPv4 address of a port, as for an ADD.
func TestPorts(t *testing.T) {
	b := newBridge(t)
	for _, flow := range []string{
		"table=0,in_port=6,actions=write_metadata:0x60000000000/0xffffff0000000001,goto_table:17",
		"table=0,in_port=7,actions=write_metadata:0x70000000000/0xffffff0000000001,goto_table:17",
		"table=0,in_port=5,actions=write_metadata:0x50000000001/0xfffff0000000001,goto_table:36",
		"table=0,in_port=8,actions=drop",
		"table=17,in_port=9,actions=write_metadata:0x90000000000/0xffffff0000000001,goto_table:19",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:02,actions=load:0x700->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:03,actions=load:0x800->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:04,actions=load:0x600->NXM_NX_REG5[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:05,actions=set_field:0x9->tun_id,load:0x500->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=0,actions=goto_table:52",
		"table=52,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:02,actions=load:0x600->NXM_NX_REG6[],resubmit(,220)",
		"table=0,in_port=10,actions=write_metadata:0xa0000000000/0xffffff0000000001,goto_table:17",
		"table=0,in_port=11,actions=write_metadata:0xb0000000000/0xffffff0000000001,goto_table:17",
		"table=0,in_port=12,actions=write_metadata:0xc0000000000/0xffffff0000000001,goto_table:17",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:0a,actions=load:0xa00->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:0b,actions=load:0xb00->NXM_NX_REG6[],resubmit(,220)",
		"table=51,priority=20,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:0a:2a:00:0c,actions=load:0xc00->NXM_NX_REG6[],resubmit(,220)",
	} {
		b.change("add-flow", flow)
	}
	for group, does := range map[string]string{
		"150010": "load:0xa00->NXM_NX_REG6[],resubmit(,220)",
		"150011": "load:0xb00->NXM_NX_REG6[],resubmit(,220)",
		"150012": "load:0xb00->NXM_NX_REG6[],resubmit(,220)",
		"150013": "load:0xc00->NXM_NX_REG6[],resubmit(,220)",
		"210008": "set_field:0xfde8->tun_id,load:0xa00->NXM_NX_REG6[],resubmit(,220)",
	} {
		b.change("add-group", "group_id="+group+",type=all,bucket=actions="+does)
	}
	for _, flow := range []string{
		"table=21,priority=42,ip,metadata=0x30d40/0xfffffe,nw_dst=10.42.0.10,actions=group:150010",
		"table=21,priority=42,ip,metadata=0x30d40/0xfffffe,nw_dst=10.42.0.11,actions=group:150011",
		"table=21,priority=42,ip,metadata=0x30d40/0xfffffe,nw_dst=10.43.0.11,actions=group:150012",
		"table=36,priority=5,tun_id=0x186a1,actions=group:150010",
		"table=36,priority=5,tun_id=0x186a2,actions=group:150011",
		"table=52,priority=5,metadata=0x138c000000/0xffff000001,actions=write_actions(group:210008)",
	} {
		b.change("add-flow", flow)
	}
	addresses := openflow.Addresses{
		10: {netip.MustParseAddr("10.42.0.10")}, 12: {netip.MustParseAddr("10.42.0.12")},
		11: {netip.MustParseAddr("fd00::11"), netip.MustParseAddr("10.42.0.11")},
	}
	stages := map[uint32]openflow.Stage{
		5: openflow.Tagged, 6: openflow.Tagged, 7: openflow.Complete, 10: openflow.Reached, 11: openflow.Reached, 12: openflow.Complete,
	}
	require.Equal(t, stages, b.ports(addresses), "port 11 has another route of a former address, and the group of port 12 is of no route to its address")
	addresses[11] = append(addresses[11], netip.MustParseAddr("10.43.0.11"))
	stages[11] = openflow.Led
	require.Equal(t, stages, b.ports(addresses), "tunnels lead to one of two addresses of port 11")
	b.change("add-group", "group_id=150014,type=all,bucket=actions=load:0xb00->NXM_NX_REG6[],resubmit(,220)")
	b.change("add-flow", "table=21,priority=42,ip,metadata=0x30d42/0xfffffe,nw_dst=10.43.0.11,actions=group:150014")
	require.Equal(t, stages, b.ports(addresses))
	b.change("add-flow", "table=36,priority=5,tun_id=0x186a3,actions=group:150014")
	stages[11] = openflow.Reached
	require.Equal(t, stages, b.ports(addresses), "tunnels lead to one of two groups of routes to 10.43.0.11")

	b.change("del-flows", "table=36")
	stages[10], stages[11] = openflow.Led, openflow.Complete
	addresses[11] = []netip.Addr{netip.MustParseAddr("fd00::11")}
	require.Equal(t, stages, b.ports(addresses), "port 11 has no IPv4 address")
}

func (b bridge) ports(addresses openflow.Addresses) map[uint32]openflow.Stage {
	b.t.Helper()
	c, err := openflow.Dial(b.t.Context(), b.socket)
	require.NoError(b.t, err)
	defer c.Close()
	ports, err := c.Ports(b.t.Context(), addresses)
	require.NoError(b.t, err)
	return ports
}

// TestManyFlows reads an answer of several messages.
func TestManyFlows(t *testing.T) {
	b := newBridge(t)
	file := filepath.Join(t.TempDir(), "flows")
	var text []byte
	const many = 2000
	for i := range many {
		a := netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)})
		text = append(text, "table=21,priority=42,ip,nw_dst="+a.String()+",actions=drop\n"...)
	}
	require.NoError(t, os.WriteFile(file, text, 0o600))
	b.change("add-flows", file)
	c, err := openflow.Dial(t.Context(), b.socket)
	require.NoError(t, err)
	defer c.Close()
	all, err := c.Flows(t.Context(), 21, openflow.Match{})
	require.NoError(t, err)
	require.Len(t, all, many)
	one, err := c.Flows(t.Context(), 21, openflow.Match{IPv4: netip.MustParseAddr("10.42.0.2")})
	require.NoError(t, err)
	require.Len(t, one, 1)
}

// TestNoBridge fails to connect.
func TestNoBridge(t *testing.T) {
	_, err := openflow.Dial(t.Context(), filepath.Join(t.TempDir(), "br-int.mgmt"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestAge: the age counts from the last write of a flow, and flows with a timeout do not count. Flows of table 0 count only alone.
func TestAge(t *testing.T) {
	b := newBridge(t)
	age := func() time.Duration {
		c, err := openflow.Dial(t.Context(), b.socket)
		require.NoError(t, err)
		defer c.Close()
		age, err := c.Age(t.Context())
		require.NoError(t, err)
		return age
	}
	b.change("del-flows", "table=0")
	b.change("add-flow", "table=1,hard_timeout=300,actions=drop")
	require.EqualValues(t, math.MaxInt64, age())
	b.change("add-flow", "table=0,priority=5,in_port=1,actions=drop")
	require.Less(t, age(), time.Hour, "the bridge has flows")
	const flow = "table=2,priority=7,actions=drop"
	b.change("add-flow", flow)
	require.Eventually(t, func() bool { return age() >= 2*time.Second }, patience.Patience, 100*time.Millisecond)
	b.change("add-flow", "table=1,idle_timeout=300,priority=9,actions=drop")
	b.change("add-flow", "table=0,priority=5,in_port=2,actions=drop")
	require.GreaterOrEqual(t, age(), 2*time.Second)
	begun := time.Now()
	b.change("add-flow", flow)
	require.LessOrEqual(t, age(), time.Since(begun))
}

// TestKeepARP: ARP packets reach the tables of Netvirt, but not the controller. The flows do not count for the age. They come back.
func TestKeepARP(t *testing.T) {
	b := newBridge(t)
	b.change("del-flows", "")
	keep := func() {
		t.Helper()
		c, err := openflow.Dial(t.Context(), b.socket)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.KeepARP(t.Context()))
		age, err := c.Age(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, math.MaxInt64, age, "the bridge has no other flows")
	}
	keep()
	keep()
	b.change("del-flows", "table=43,arp,arp_op=2")
	keep()
	b.change("del-groups", "")
	keep()

	b.change("add-group", "group_id=5002,type=all,bucket=actions=CONTROLLER:65535,bucket=actions=resubmit(,48),bucket=actions=resubmit(,81)")
	for _, flow := range []string{ // in the form that Netvirt gives them
		"table=0,actions=goto_table:43",
		"table=43,priority=100,arp,arp_op=1,actions=group:5002",
		"table=43,priority=100,arp,arp_op=2,actions=CONTROLLER:65535,resubmit(,48)",
		"table=43,priority=0,actions=goto_table:48",
		"table=48,priority=0,actions=load:1->NXM_NX_REG1[],write_actions(LOCAL)",
		"table=81,priority=100,arp,arp_op=1,arp_tpa=10.42.0.1,actions=load:0x2->NXM_OF_ARP_OP[],IN_PORT",
	} {
		b.change("add-flow", flow)
	}
	for packet, wanted := range map[string]string{
		"arp,in_port=1,arp_op=1,arp_tpa=10.42.0.1": `(?s)IN_PORT.*LOCAL`, // in this order
		"arp,in_port=1,arp_op=1,arp_tpa=10.42.0.2": `LOCAL`,
		"arp,in_port=1,arp_op=2,arp_tpa=10.42.0.1": `LOCAL`,
	} {
		trace := b.trace(packet)
		require.NotContains(t, trace, "CONTROLLER", packet)
		require.Regexp(t, wanted, trace, packet)
	}
	b.change("del-flows", "table=43,arp,arp_op=1")
	b.change("add-flow", "table=43,priority=100,arp,arp_op=1,actions=group:5002")
	require.Contains(t, b.trace("arp,in_port=1,arp_op=1,arp_tpa=10.42.0.1"), "CONTROLLER", "without the flow of the agent")
}

package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The machine in the physical network: in VLAN 100, and without a tag.
const (
	machineVLAN  = "10.50.0.200"
	machineFlat  = "10.51.0.200"
	machineFlat6 = "fd51::200"
)

// The ports of the switch of the rack.
const (
	rackHost1 = "1"
	rackHost2 = "2"
)

// The settings of the bridge, and the pools of the namespaces.
var (
	physicalNetworks = []string{
		"--physical-network", "plant=cable,vlan=100,subnet=10.50.0.0/24", "--physical-network", "flat=cable,subnet=10.51.0.0/24,subnet=fd51::/64",
	}
	physicalPools = map[string]string{
		"plant": `{"subnet":"10.50.0.0/24","allocate-from":"10.50.0.64","allocate-to":"10.50.0.127"}`,
		"flat": `{"subnet":"10.51.0.0/24","allocate-from":"10.51.0.64","allocate-to":"10.51.0.127"},
			{"subnet":"fd51::/64","allocate-from":"fd51::1:0","allocate-to":"fd51::1:ffff"}`,
	}
)

// physicalWorld is two hosts that a switch in a rack connects to a machine, on VLAN 100 and without a tag.
func physicalWorld(t *testing.T, layout ovn.Layout, settings ...string) *world {
	lab := ovnhost.ForTest(t, "host1", "host2", "rack")
	w := newWorldOver(t, lab, append([]string{"--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--ovn-layout", string(layout)}, settings...)...)
	w.onRack("add-br", "br-rack", "--", "set", "Bridge", "br-rack", "datapath_type=netdev")
	for host, port := range map[string]string{"host1": rackHost1, "host2": rackHost2} {
		w.plugIntoRack(host, "eth1", "ofport_request="+port)
		_, err := lab.Host(host).VSCtl(t.Context(), "add-br", "br-cable", "--", "set", "Bridge", "br-cable", "datapath_type=netdev", "--",
			"add-port", "br-cable", "eth1", "--", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=physnet1:br-x")
		require.NoError(t, err)
	}
	w.sandbox("rack", "none", "machine", "", "machine")
	w.plugIntoRack("machine", "flat")
	w.ip("machine", "addr", "add", machineFlat+"/24", "dev", "flat")
	w.ip("machine", "addr", "add", machineFlat6+"/64", "dev", "flat", "nodad")
	w.plugIntoRack("machine", "vlan100")
	w.onRack("set", "Port", "machine.vlan100", "tag=100")
	w.ip("machine", "addr", "add", machineVLAN+"/24", "dev", "vlan100")
	w.who("machine", "machine")
	w.flags = []string{"--physical-bridge", "cable=br-cable"}
	w.deadline = patient
	for _, host := range []string{"host1", "host2"} {
		w.startAgent(host)
	}
	return w
}

func (w *world) putPhysicalPool(namespace string) {
	w.t.Helper()
	w.put("dhcp_allocation_pool:dhcp_allocation_pool/network/"+namespace, `{"network":[{"network-id":"`+namespace+`","allocation-pool":[`+physicalPools[namespace]+`]}]}`)
}

// plugIntoRack gives a namespace a link to the switch of the rack.
func (w *world) plugIntoRack(namespace, link string, settings ...string) {
	w.t.Helper()
	port := namespace + "." + link
	w.ip("rack", "link", "add", port, "up", "type", "veth", "peer", "name", link, "netns", w.lab.Namespace(namespace))
	w.ip(namespace, "link", "set", link, "up")
	ns, err := netns.GetFromName(w.lab.Namespace(namespace))
	require.NoError(w.t, err)
	defer func() { _ = ns.Close() }()
	require.NoError(w.t, links.SoftwareChecksums(ns, link))
	w.onRack(append([]string{"add-port", "br-rack", port, "--", "set", "Interface", port, "type=\"\""}, settings...)...)
}

func (w *world) onRack(args ...string) {
	w.t.Helper()
	_, err := w.lab.Host("rack").VSCtl(w.t.Context(), args...)
	require.NoError(w.t, err)
}

// rackPorts returns the port of the rack's switch at which each MAC address was last seen, in a VLAN; 0: without a tag.
func (w *world) rackPorts(vlan string) map[string]string {
	w.t.Helper()
	control := filepath.Join(w.lab.Host("rack").Dir, "ovs-vswitchd.0.ctl")
	out, err := w.lab.Exec(w.t.Context(), "rack", "ovs-appctl", "--target="+control, "fdb/show", "br-rack")
	require.NoError(w.t, err)
	at := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == vlan {
			at[f[2]] = f[0]
		}
	}
	return at
}

// TestPhysicalNetwork: pods on two nodes and a machine reach each other over a VLAN, and without a tag. Nothing else comes in or
// goes out.
func TestPhysicalNetwork(t *testing.T) {
	t.Parallel()
	testPhysicalNetwork(t, ovn.LayoutELAN)
}

// TestPhysicalNetworkOfLayoutNode is TestPhysicalNetwork with a switch for each node.
func TestPhysicalNetworkOfLayoutNode(t *testing.T) {
	t.Parallel()
	testPhysicalNetwork(t, ovn.LayoutNode)
}

func testPhysicalNetwork(t *testing.T, layout ovn.Layout) {
	w := physicalWorld(t, layout, physicalNetworks...)
	for namespace := range physicalPools {
		w.putPhysicalPool(namespace)
	}
	near, far := w.run("host1", 1, "plant", "near"), w.run("host2", 2, "plant", "far")
	flat, other := w.run("host1", 3, "flat", "flat"), w.run("host2", 4, "default", "other")
	for _, p := range []*sandbox{near, far} {
		w.seen(p.inLab(), machineVLAN, 8080, "machine "+p.address.String())
		w.seen("machine", p.address.String(), 8080, p.name+" "+machineVLAN)
		w.unreachable(p.inLab(), machineFlat)
	}
	flat6 := w.address6Of(flat)
	w.seen(flat.inLab(), machineFlat, 8080, "machine "+flat.address.String())
	w.seen("machine", flat.address.String(), 8080, "flat "+machineFlat)
	w.seen(flat.inLab(), machineFlat6, 8080, "machine "+flat6.String())
	w.seen("machine", flat6.String(), 8080, "flat "+machineFlat6)
	w.step("pods reach each other as before", func() {
		w.seen(near.inLab(), far.address.String(), 8080, "far "+near.address.String())
		for _, p := range []*sandbox{near, far, flat} {
			w.seen(other.inLab(), p.address.String(), 8080, p.name+" "+other.address.String())
			w.seen(p.inLab(), other.address.String(), 8080, "other "+p.address.String())
		}
		w.unreachable(other.inLab(), machineVLAN)
	})
	w.step("each MAC address is at one port of the switch, and none of another namespace's pods", func() {
		w.testOnRack(near, far, other)
	})
	w.step("the hosts have few flows", func() {
		for _, h := range []string{"host1", "host2"} {
			flows, err := w.lab.Host(h).Flows(w.t.Context())
			require.NoError(w.t, err)
			require.Less(w.t, strings.Count(flows, "\n"), 10_000)
		}
	})
	w.step("forged packets of a machine do not come in", func() { w.testForged(near, other) })
	w.step("the agent keeps its bridges and the bridges of others, and refuses pods without a bridge", func() {
		w.testMappings("host2", far)
		w.testUnconnected("host2", far)
	})
}

// testOnRack: packets between the pods and the machine come once and from one port, while pods of other namespaces send to them.
func (w *world) testOnRack(near, far, other *sandbox) {
	w.t.Helper()
	for _, p := range []*sandbox{near, far} {
		asked := w.asking(other.inLab(), p.address.String(), 8080)
		defer func() { require.NoError(w.t, asked()) }()
		await(w.t, "no packet is lost", func() error { // on a busy machine ping can end before the last answers
			out, err := w.lab.Exec(w.t.Context(), "machine", "ping", "-n", "-c", "20", "-i", "0.05", p.address.String())
			require.NotContains(w.t, out, "duplicate")
			if err == nil && !strings.Contains(out, " 20 received") {
				err = errors.New(out)
			}
			return err
		})
	}
	at := w.rackPorts("100")
	for range 20 {
		require.NoError(w.t, w.lab.Ping(w.t.Context(), "machine", near.address))
		for mac, port := range w.rackPorts("100") {
			if before := at[mac]; before != "" {
				require.Equal(w.t, before, port, "%s moves", mac)
			}
			at[mac] = port
		}
	}
	require.Equal(w.t, rackHost1, at[w.mac(near.inLab(), "eth0")])
	require.Equal(w.t, rackHost2, at[w.mac(far.inLab(), "eth0")])
	require.NotContains(w.t, at, w.mac(other.inLab(), "eth0"))
	require.Len(w.t, at, 3, "two pods and the machine: %v", at)
}

// testForged: a machine sends to a pod with the address of a node, and to a pod of another namespace through the gateway of pods.
// Neither packet comes in.
func (w *world) testForged(near, other *sandbox) {
	w.t.Helper()
	first := map[*sandbox]net.PacketConn{}
	for _, p := range []*sandbox{near, other} {
		require.NoError(w.t, w.lab.In(p.inLab(), func() (err error) {
			first[p], err = net.ListenPacket("udp4", ":9")
			return err
		}))
		defer func() { _ = first[p].Close() }()
		require.NoError(w.t, first[p].SetReadDeadline(time.Now().Add(converge)))
	}
	send := func(from, source string, to *sandbox, text string) {
		require.NoError(w.t, w.lab.In(from, func() error {
			conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(source)}, &net.UDPAddr{IP: to.address.AsSlice(), Port: 9})
			if err == nil {
				_, err = conn.Write([]byte(text))
				_ = conn.Close()
			}
			return err
		}))
	}
	gateway, node := w.gatewayOf(near), w.address("host1")
	f := strings.Fields(w.ip(near.inLab(), "neigh", "show", gateway)) // OVN does not tell machines its MAC address
	w.ip("machine", "neigh", "add", gateway, "lladdr", f[slices.Index(f, "lladdr")+1], "dev", "vlan100")
	w.ip("machine", "route", "add", other.address.String(), "via", gateway)
	w.ip("machine", "addr", "add", node+"/32", "dev", "lo")
	w.ip("machine", "addr", "add", near.address.String()+"/32", "dev", "vlan100")
	for range 3 { // the machine announces the address of a pod, and OVN does not believe it
		_, _ = w.lab.Exec(w.t.Context(), "machine", "ping", "-n", "-c", "1", "-W", "1", "-I", near.address.String(), gateway)
		w.seen(other.inLab(), near.address.String(), 8080, near.name+" "+other.address.String())
	}
	w.ip("machine", "addr", "del", near.address.String()+"/32", "dev", "vlan100")
	for range 3 {
		send("machine", node, near, "forged")
		send("machine", machineVLAN, other, "through the gateway")
	}
	require.NoError(w.t, w.lab.Ping(w.t.Context(), "machine", near.address))
	send("machine", machineVLAN, near, "of the machine")
	send(near.inLab(), "", other, "of a pod")
	for p, want := range map[*sandbox]string{near: "of the machine", other: "of a pod"} {
		buffer := make([]byte, 100)
		n, _, err := first[p].ReadFrom(buffer)
		require.NoError(w.t, err)
		require.Equal(w.t, want, string(buffer[:n]))
	}
}

// testMappings: another program overwrites the bridges of OVN's networks, and the agent ends being connected to the cable.
func (w *world) testMappings(host string, p *sandbox) {
	w.t.Helper()
	mapped := "coe-cable@" + w.address(host) + ":br-cable"
	w.mappings(host, "physnet1:br-x,"+mapped)
	_, err := w.lab.Host(host).VSCtl(w.t.Context(), "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=physnet2:br-y")
	require.NoError(w.t, err)
	w.mappings(host, "physnet2:br-y,"+mapped)
	w.seen(p.inLab(), machineVLAN, 8080, "machine "+p.address.String())

	require.NoError(w.t, w.agents[host].Kill())
	w.flags = nil
	w.startAgent(host)
	w.mappings(host, "physnet2:br-y")
	await(w.t, "OVN disconnects the bridge", func() error {
		if _, err := w.lab.Exec(w.t.Context(), p.inLab(), "ping", "-n", "-c", "1", "-W", "1", machineVLAN); err == nil {
			return errors.New("the machine answers")
		}
		return nil
	})
}

// testUnconnected: the agent of the host has no bridge for the cable, then one that does not exist, and then the right one.
func (w *world) testUnconnected(host string, p *sandbox) {
	w.t.Helper()
	late := w.pod(host, 9, "plant", "late")
	_, err := late.add(w.t.Context(), invoke{})
	require.ErrorContains(w.t, err, "node "+w.address(host)+" is not connected to physical network cable: start its agent with --physical-bridge cable=BRIDGE")
	for _, bridge := range []string{"br-missing", "br-cable"} {
		require.NoError(w.t, w.agents[host].Kill())
		w.flags = []string{"--physical-bridge", "cable=" + bridge}
		w.startAgent(host)
		if bridge == "br-missing" {
			_, err = late.add(w.t.Context(), invoke{})
			require.ErrorContains(w.t, err, "has no bridge br-missing for physical network cable: run ovs-vsctl add-br br-missing")
		}
	}
	late.mustAdd()
	w.who(late.inLab(), "late")
	w.seen(late.inLab(), machineVLAN, 8080, "machine "+late.address.String())
	w.seen(p.inLab(), machineVLAN, 8080, "machine "+p.address.String())
}

func (w *world) mappings(host, want string) {
	w.t.Helper()
	await(w.t, "bridges of OVN's networks", func() error {
		out, err := w.lab.Host(host).VSCtl(w.t.Context(), "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings")
		if err == nil && strings.Trim(out, "\"\n") != want {
			err = errors.New(out)
		}
		return err
	})
}

// gatewayOf returns the gateway of a pod.
func (w *world) gatewayOf(p *sandbox) string {
	w.t.Helper()
	f := strings.Fields(w.ip(p.inLab(), "route", "show", "default"))
	require.Greater(w.t, len(f), 2)
	return f[2]
}

// address6Of returns the IPv6 address of a pod.
func (w *world) address6Of(p *sandbox) netip.Addr {
	w.t.Helper()
	f := strings.Fields(w.ip(p.inLab(), "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"))
	require.Greater(w.t, len(f), 3, fmt.Sprint(f))
	return netip.MustParsePrefix(f[3]).Addr()
}

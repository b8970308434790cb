package odlpods_test

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// testTunnelAddressLate gives a port to a switch whose tunnel address OpenDaylight does not know, as it can be on a new node. Netvirt
// computes the route to the pod without the address, and does not compute it again. The agent sees which flow is missing, and a new port
// has it.
func (w *world) testTunnelAddressLate() {
	host, agent := w.lab.Host("host2"), w.lab.Agents["host2"]
	late := pod(11, "web", "early", host.Name)
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), late))
	plugged, err := w.lab.Plug(w.t.Context(), late)
	require.NoError(w.t, err)
	require.Empty(w.t, w.lacks(host, plugged))

	require.NoError(w.t, agent.Kill())
	w.vsctl(host, "remove", "Open_vSwitch", ".", "other_config", "local_ip")
	w.eventually("OpenDaylight has removed the tunnels", func() bool {
		return w.vsctl(w.lab.Host("host1"), "--bare", "--columns=name", "find", "Interface", "type=vxlan") == ""
	})
	ids := w.vsctl(host, "get", "Interface", plugged.Port(), "external_ids")
	w.vsctl(host, "del-port", odl.Bridge, plugged.Port())
	w.eventually("OpenDaylight has removed the route", func() bool { return w.routesTo(host, plugged.Address) == 0 })
	w.vsctl(host, "add-port", odl.Bridge, plugged.Port(), "--", "set", "Interface", plugged.Port(), "external_ids="+ids)
	w.eventually("OpenDaylight has computed the route", func() bool { return w.routesTo(host, plugged.Address) == 1 })
	require.NoError(w.t, agent.Start(w.t.Context()))
	require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	w.reachAll()
	require.Equal(w.t, "table 36 has no flow from tunnels to "+plugged.Address.String(), w.lacks(host, plugged))
	require.NoError(w.t, w.lab.Apart(w.t.Context(), w.pods[0].Pod, plugged.Address))

	require.NoError(w.t, w.lab.Unplug(w.t.Context(), late))
	again, err := w.lab.Plug(w.t.Context(), late)
	require.NoError(w.t, err)
	require.Equal(w.t, plugged.Address, again.Address)
	require.NoError(w.t, w.lab.Reach(w.t.Context(), w.pods[0].Pod, again.Address))
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), late))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), late))
}

// vsctl runs ovs-vsctl on a host, and returns what it prints.
func (w *world) vsctl(host *ovnhost.Host, args ...string) string {
	w.t.Helper()
	out, err := host.VSCtl(w.t.Context(), args...)
	require.NoError(w.t, err)
	return strings.TrimSpace(out)
}

// routesTo returns how many flows of the switch of a host route packets to an address.
func (w *world) routesTo(host *ovnhost.Host, to netip.Addr) int {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), host.Name, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows",
		"unix:"+filepath.Join(host.Dir, odl.Bridge+".mgmt"), "table=21,ip,nw_dst="+to.String())
	require.NoError(w.t, err)
	return strings.Count(out, "nw_dst="+to.String())
}

// lacks returns which flows to a pod its switch lacks.
func (w *world) lacks(host *ovnhost.Host, p odlpods.Plugged) string {
	w.t.Helper()
	number, err := strconv.ParseUint(w.vsctl(host, "get", "Interface", p.Port(), "ofport"), 10, 32)
	require.NoError(w.t, err)
	mac, err := net.ParseMAC(p.Result.Interfaces[1].Mac)
	require.NoError(w.t, err)
	c, err := openflow.Dial(w.t.Context(), filepath.Join(host.Dir, odl.Bridge+".mgmt"))
	require.NoError(w.t, err)
	defer c.Close()
	lacks, err := c.Lacks(w.t.Context(), openflow.Port{Number: uint32(number), MAC: mac, Addresses: []netip.Addr{p.Address}})
	require.NoError(w.t, err)
	return lacks
}

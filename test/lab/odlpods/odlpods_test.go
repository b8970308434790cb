package odlpods_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

// deadline is the deadline of the agents' calls. In the test one call exceeds it.
const deadline = 30 * time.Second

// TestPodsOnRealOpenDaylight tests pods on a real OpenDaylight of each release, from the POST of a client to
// packets through the programmed flows. It uses the bridge, an agent on each of two hosts, and the CNI plugin.
func TestPodsOnRealOpenDaylight(t *testing.T) {
	odl.SkipUnlessAsked(t)
	bin := odlpods.Programs(t)
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			w := &world{t: t}
			var err error
			w.lab, err = odlpods.Start(t.Context(), odlpods.Config{
				Controller: odl.Alone(t, release, "host1", "host2"), Bin: bin, CallDeadline: deadline,
			})
			require.NoError(t, err)
			w.step("pods are plugged in, and all reach all", w.testPlug)
			w.step("nodes and pods reach each other", w.testNodes)
			w.step("pods and nodes use services", w.testServices)
			w.step("a port of a node is missing in its elan-instance", w.testNodePortReplaced)
			w.step("pods reach what is outside", w.testWayOut)
			w.step("pods configure their links by DHCP", w.testDHCP)
			w.step("the first pod of a namespace loses no packet", w.testFirstPods)
			w.step("a pod follows the last pod of its namespace", w.testLastPods)
			if release == odl.Oxygen { // Neon does not count the routes of a group
				w.step("a pod has the address of a former pod whose group has stayed", w.testGroupStays)
			}
			w.step("a switch lacks a route", w.testRouteLost)
			w.step("OpenDaylight has not computed a route", w.testRouteNotComputed)
			w.step("OpenDaylight learns the tunnel address of a switch late", w.testTunnelAddressLate)
			w.step("ADD again, CHECK and doctor", w.testAgain)
			w.step("the agent is restarted", w.testAgentRestarts)
			w.step("the switch is restarted", w.testSwitchRestarts)
			w.step("the sandbox is made again", w.testAnotherSandbox)
			w.step("OpenDaylight is away", w.testControllerAway)
			w.step("OpenDaylight loses its datastore", w.testDatastoreLost)
			w.step("namespaces are isolated", w.testIsolated)
			w.step("pods are unplugged", w.testUnplug)
			w.step("the hosts are cleaned up", w.testCleanUp)
		})
	}
}

// mtu is that of pods: the underlay's 1500 minus VXLAN's header.
const mtu = 1450

// world is a lab with pods that are plugged in.
type world struct {
	t    *testing.T
	lab  *odlpods.Lab
	pods []odlpods.Plugged
}

// step runs a part of a test. It needs the earlier parts.
func (w *world) step(name string, do func()) {
	w.t.Helper()
	whole := w.t
	defer func() { w.t = whole }()
	if !whole.Run(name, func(t *testing.T) { w.t = t; do() }) {
		whole.FailNow()
	}
}

func pod(n int, namespace, name, host string) odlpods.Pod {
	return odlpods.Pod{Namespace: namespace, Name: name, Host: host, UID: fmt.Sprintf("c0e00000-c0e0-4000-8000-%012d", n)}
}

func (w *world) testPlug() {
	for i, p := range []odlpods.Pod{
		pod(1, "web", "front", "host1"), pod(2, "web", "cache", "host1"), pod(3, "web", "back", "host2"),
		pod(4, "shop", "cart", "host1"), pod(5, "shop", "till", "host2"),
	} {
		require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
		plugged, err := w.lab.Plug(w.t.Context(), p)
		require.NoError(w.t, err, "pod %d", i)
		require.Regexp(w.t, `^tap[0-9a-f]{8}-[0-9a-f]{2}$`, plugged.Port())
		require.Equal(w.t, mtu, plugged.Result.Interfaces[1].Mtu)
		w.pods = append(w.pods, plugged)
		if i > 0 { // a pod that was plugged in before can send and receive
			w.mustPing(plugged.Pod, w.pods[0].Address)
		}
	}
	w.reachAll()
	w.eventually("OpenDaylight has read the flows of both switches", func() bool {
		return strings.Count(w.get("/restconf/operational/opendaylight-inventory:nodes"), arpGroup) == 2
	})
}

// arpGroup is the action of the agent's flow for ARP requests, in OpenDaylight's statistics. They have no flow of a switch if OpenDaylight does not know
// an action of one.
const arpGroup = `"group-action":{"group-id":3236626500}`

// mustPing requires that a pod gets an answer within the time limit of Ping.
func (w *world) mustPing(from odlpods.Pod, to netip.Addr) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Ping(w.t.Context(), from.String(), to))
}

func (w *world) reachAll() {
	w.t.Helper()
	for _, from := range w.pods {
		for _, to := range w.pods {
			require.NoError(w.t, w.lab.Reach(w.t.Context(), from.Pod, to.Address))
		}
	}
}

// testGroupStays gives a pod the address of a deleted one, whose group OpenDaylight has kept. The test makes Oxygen count a route of the
// group twice, as it does in a cluster when a member fails: it writes an entry of the FIB again as it is. The bridge corrects the group.
func (w *world) testGroupStays() {
	first, next := pod(9, "web", "first", "host1"), pod(10, "web", "next", "host1")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), first))
	was, err := w.lab.Plug(w.t.Context(), first)
	require.NoError(w.t, err)
	w.mustPing(was.Pod, w.pods[0].Address)
	path := "/restconf/config/odl-fib:fibEntries/vrfTables/100:1/vrfEntry/" + was.Address.String() + "%2F32"
	status, said, err := w.lab.Controller.Request(w.t.Context(), http.MethodPut, path, w.get(path))
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, status, "%s", said)
	counted := func(n int) func() bool {
		entry := regexp.MustCompile(fmt.Sprintf(`"IpAddress":"%s/32",[^}]*"flowrefCount":%d}`, was.Address, n))
		return func() bool { return entry.MatchString(w.get("/restconf/operational/l3nexthop:l3nexthop")) }
	}
	w.eventually("the route is counted twice", counted(2))
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), first))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), first))
	w.eventually("the route is gone, and its group has stayed", counted(1))

	next.Address = was.Address.String()
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), next))
	is, err := w.lab.Plug(w.t.Context(), next)
	require.NoError(w.t, err)
	require.Equal(w.t, was.Address, is.Address)
	for _, p := range w.pods {
		require.NoError(w.t, w.lab.Reach(w.t.Context(), p.Pod, is.Address))
	}
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), next))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), next))
}

// testRouteLost deletes the route to a pod of the other host from a switch. A bridge that starts lets OpenDaylight write it again.
func (w *world) testRouteLost() {
	front, back := w.pods[0], w.pods[2]
	_, err := w.lab.Exec(w.t.Context(), "host1", "ovs-ofctl", "-O", "OpenFlow13", "del-flows", "unix:"+filepath.Join(w.lab.Host("host1").Dir, odl.Bridge+".mgmt"),
		"table=21,ip,nw_dst="+back.Address.String())
	require.NoError(w.t, err)
	w.eventually("the switch has lost the route", func() bool { return w.lab.Apart(w.t.Context(), front.Pod, back.Address) == nil })
	require.NoError(w.t, w.lab.StartBridge(w.t.Context(), "none"))
	require.NoError(w.t, w.lab.Reach(w.t.Context(), front.Pod, back.Address))
	w.reachAll()
}

// testRouteNotComputed deletes the route to a pod of the other host from OpenDaylight's own flows, as if Netvirt had failed to compute it. A bridge that
// starts notices that, and lets OpenDaylight compute it again, before it asks for all routes.
func (w *world) testRouteNotComputed() {
	front, back := w.pods[0], w.pods[2]
	bridge, err := w.lab.Host("host1").VSCtl(w.t.Context(), "get", "bridge", odl.Bridge, "datapath_id")
	require.NoError(w.t, err)
	number, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(bridge), `"`), 16, 64)
	require.NoError(w.t, err)
	path := fmt.Sprintf("/restconf/config/opendaylight-inventory:nodes/node/openflow:%d/flow-node-inventory:table/21/flow/L3.%d.21.100:1.42.%s", number, number, back.Address)
	status, said, err := w.lab.Controller.Request(w.t.Context(), http.MethodDelete, path, "")
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, status, "%s", said)
	w.eventually("the switch has lost the route", func() bool { return w.lab.Apart(w.t.Context(), front.Pod, back.Address) == nil })
	require.NoError(w.t, w.lab.StartBridge(w.t.Context(), "none"))
	require.NoError(w.t, w.lab.Reach(w.t.Context(), front.Pod, back.Address))
	log, err := os.ReadFile(filepath.Join(w.lab.Logs(), "coe-bridge.log"))
	require.NoError(w.t, err)
	require.Contains(w.t, string(log), " lost="+back.Address.String()+" ")
}

// get reads from the controller.
func (w *world) get(path string) string {
	w.t.Helper()
	_, answer, err := w.lab.Controller.Request(w.t.Context(), http.MethodGet, path, "")
	require.NoError(w.t, err)
	return string(answer)
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(context.Context) error {
		if !holds() {
			return errors.New(what + ": not yet")
		}
		return nil
	}))
}

func (w *world) testAgain() {
	for _, p := range w.pods {
		again, err := w.lab.Add(w.t.Context(), p.Pod)
		require.NoError(w.t, err)
		require.Equal(w.t, p.Result, again.Result)
		require.NoError(w.t, w.lab.Check(w.t.Context(), p))
	}
	found, err := w.lab.Doctor(w.t.Context(), "host1")
	require.Error(w.t, err, "nothing is installed for a runtime")
	for _, well := range []string{"it manages the switch and programs the bridge", "vxlan from 172.31.99.11", "an MTU of 1450"} {
		require.Contains(w.t, found, well)
	}
}

// testAgentRestarts stops the agents for a time. The traffic of pods loses no packet, also none that is as large as the MTU, and agents
// that start again do not change the pods' ports on the switches.
func (w *world) testAgentRestarts() {
	before := w.switches()
	streams := packets.Streams{
		Lab: w.lab.Lab, Ways: []packets.Way{w.way(0, 2), w.way(4, 0), w.way(0, 1)}, MTU: mtu, Hosts: []string{"host1", "host2"},
	}
	said, err := streams.Keep(w.t.Context(), func() {
		for _, agent := range w.lab.Agents {
			require.NoError(w.t, agent.Kill())
		}
		w.mustPing(w.pods[0].Pod, w.pods[2].Address)
		for _, agent := range w.lab.Agents {
			require.NoError(w.t, agent.Start(w.t.Context()))
		}
		require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	})
	require.NoError(w.t, err)
	w.t.Log(said)
	require.Equal(w.t, before, w.switches())

	late := pod(6, "shop", "late", "host2")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), late))
	plugged, err := w.lab.Plug(w.t.Context(), late)
	require.NoError(w.t, err)
	w.mustPing(late, w.pods[0].Address)
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), plugged.Pod))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), late))
	require.Equal(w.t, before, w.switches())
}

// way is the way from one pod to another.
func (w *world) way(from, to int) packets.Way {
	return packets.Way{From: w.pods[from].String(), To: w.pods[to].String(), Address: w.pods[to].Address}
}

// switches returns the managers and the ports of the hosts' switches. A port has its number, which changes when
// the port is added again.
func (w *world) switches() (all []string) {
	w.t.Helper()
	for _, host := range w.lab.Hosts {
		for _, of := range [][]string{
			{"--columns=_uuid,name,ofport", "find", "Interface", `external_ids:coe-ifname=eth0`},
			{"--columns=_uuid,target", "list", "Manager"},
		} {
			out, err := host.VSCtl(w.t.Context(), of...)
			require.NoError(w.t, err)
			rows := strings.Split(strings.TrimSpace(out), "\n\n")
			slices.Sort(rows)
			all = append(all, rows...)
		}
	}
	return all
}

func (w *world) testSwitchRestarts() {
	host := w.lab.Host("host1")
	require.NoError(w.t, host.VSwitchd.Restart(w.t.Context()))
	w.reachAll()
	require.NoError(w.t, host.OVSDB.Restart(w.t.Context()))
	require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	w.reachAll()
}

func (w *world) testAnotherSandbox() {
	p := w.pods[1]
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
	again, err := w.lab.Plug(w.t.Context(), p.Pod)
	require.NoError(w.t, err)
	require.Equal(w.t, p.Address, again.Address)
	require.Equal(w.t, p.Port(), again.Port())
	w.pods[1] = again
	w.reachAll()
}

// away resets the switches' connections to the controller, and refuses new ones.
const away = `add table ip away; add chain ip away in { type filter hook input priority 0; };
	add rule ip away in tcp dport { 6640, 6653 } reject with tcp reset`

// noConnection is in the messages of agent and doctor about an unreachable controller. They report the loss of
// OpenFlow at once, and the loss of OVSDB after a minute of silence.
var noConnection = regexp.MustCompile(`OpenDaylight .*it has no (OpenFlow )?connection`)

// testControllerAway cuts the connections of the switches to the controller. The traffic of pods works, and the
// agents report the loss. The ADD of a known pod fails at its deadline and leaves nothing. Then the connections
// are restored.
func (w *world) testControllerAway() {
	late := pod(7, "web", "late", "host1")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), late))
	_, err := w.lab.Exec(w.t.Context(), ovnhost.CentralNamespace, "nft", away)
	require.NoError(w.t, err)
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		err := w.lab.Ready(ctx, "host1")
		if err == nil || !noConnection.MatchString(err.Error()) {
			return fmt.Errorf("the agent should say that OpenDaylight is away: %w", err)
		}
		return nil
	}))
	found, err := w.lab.Doctor(w.t.Context(), "host1")
	require.Error(w.t, err)
	require.Regexp(w.t, noConnection, found)
	for _, to := range w.pods {
		w.mustPing(w.pods[0].Pod, to.Address)
	}
	_, err = w.lab.Plug(w.t.Context(), late)
	var said *types.Error
	require.ErrorAs(w.t, err, &said)
	require.EqualValues(w.t, types.ErrTryAgainLater, said.Code)
	require.Contains(w.t, said.Details, "interface web:late")
	require.Regexp(w.t, noConnection, said.Details)
	require.Len(w.t, w.ports("host1"), 3)

	_, err = w.lab.Exec(w.t.Context(), ovnhost.CentralNamespace, "nft", "delete table ip away")
	require.NoError(w.t, err)
	require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		_, err := w.lab.Add(ctx, late)
		return err
	}))
	w.reachAll()
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), late))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), late))
}

// testDatastoreLost starts the controller with an empty datastore. The bridge fills it again, and the switches
// remove their old flows, which would send packets to wrong destinations. All pods reach each other again
// without help, and a new pod is plugged in.
func (w *world) testDatastoreLost() {
	before := w.identities()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(context.Context) error {
		if before = w.identities(); slices.Contains(before, "") {
			return fmt.Errorf("the agents were not told yet from which datastore: %q", before)
		}
		return nil
	}))
	require.NoError(w.t, w.lab.Controller.Wipe(w.t.Context()))
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(context.Context) error {
		for i, identity := range w.identities() {
			if identity == before[i] {
				return fmt.Errorf("the switch of %s is still that of datastore %s", w.lab.Hosts[i].Name, identity)
			}
		}
		return nil
	}))
	require.NoError(w.t, w.lab.AwaitNetwork(w.t.Context()))
	w.reachAll()
	late := pod(8, "web", "later", "host2")
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), late))
	plugged, err := w.lab.Plug(w.t.Context(), late)
	require.NoError(w.t, err)
	w.mustPing(late, w.pods[0].Address)
	w.reachAll()
	for _, host := range w.lab.Hosts {
		for _, to := range w.pods {
			require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error { return w.lab.Ping(ctx, host.Name, to.Address) }))
		}
	}
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), plugged.Pod))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), late))
}

// identities returns the identity of the datastore from which each host's switch is programmed, as its agent has
// recorded it.
func (w *world) identities() (all []string) {
	w.t.Helper()
	for _, host := range w.lab.Hosts {
		out, err := host.VSCtl(w.t.Context(), "--if-exists", "get", "Open_vSwitch", ".", "external_ids:coe-identity")
		require.NoError(w.t, err)
		all = append(all, strings.TrimSpace(out))
	}
	return all
}

// ports returns the ports of pods on a host's switch.
func (w *world) ports(host string) (all []string) {
	w.t.Helper()
	out, err := w.lab.Host(host).VSCtl(w.t.Context(), "--bare", "--columns=name", "find", "Interface", "external_ids:coe-ifname=eth0")
	require.NoError(w.t, err)
	return strings.Fields(out)
}

func (w *world) testIsolated() {
	require.NoError(w.t, w.lab.StartBridge(w.t.Context(), "namespace"))
	for _, from := range w.pods {
		for _, to := range w.pods {
			if from.Namespace == to.Namespace {
				require.NoError(w.t, w.lab.Reach(w.t.Context(), from.Pod, to.Address))
				continue
			}
			require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error { return w.lab.Apart(ctx, from.Pod, to.Address) }))
		}
	}
	for _, to := range w.pods[3:] {
		require.NoError(w.t, w.lab.Apart(w.t.Context(), w.pods[0].Pod, to.Address), "still")
	}
	for _, host := range w.lab.Hosts {
		w.led(host)
	}
	w.testIsolatedNode()
	w.testIsolatedServices()
	require.NoError(w.t, w.lab.StartBridge(w.t.Context(), "none"))
	w.reachAll()
}

func (w *world) testUnplug() {
	for _, p := range w.pods {
		require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
		require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p.Pod))
	}
	for _, host := range w.lab.Hosts {
		require.Empty(w.t, w.ports(host.Name))
		require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
			out, err := w.lab.Exec(ctx, host.Name, "ip", "-brief", "link")
			if err == nil && (strings.Contains(out, "coe-") || strings.Count(out, "tap") != 2) { // both ends of the management port
				err = fmt.Errorf("the host has links that it does not need: %s", out)
			}
			return err
		}))
	}
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		for _, path := range []string{"elan:elan-instances", "ietf-interfaces:interfaces"} {
			_, has, err := w.lab.Controller.Request(ctx, "GET", "/restconf/config/"+path, "")
			if err == nil && (strings.Contains(string(has), "web") || strings.Contains(string(has), "shop")) {
				err = fmt.Errorf("the controller has what no pod needs: %s", has)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func (w *world) testCleanUp() {
	for _, host := range w.lab.Hosts {
		require.NoError(w.t, w.lab.CleanUp(w.t.Context(), host.Name))
		out, err := w.lab.Exec(w.t.Context(), host.Name, "ip", "-brief", "link")
		require.NoError(w.t, err)
		require.NotContains(w.t, out, "coe0")
		for _, of := range [][]string{
			{"get-manager"},
			{"get-controller", odl.Bridge},
			{"--if-exists", "get", "Open_vSwitch", ".", "other_config:local_ip"},
			{"--columns=name", "find", "Interface", "type=vxlan"},
		} {
			out, err := host.VSCtl(w.t.Context(), of...)
			require.NoError(w.t, err)
			require.Empty(w.t, strings.TrimSpace(out), "%s", of)
		}
	}
}

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

// outside is an address outside of the cluster, routed is one to which pods keep their address, and router is
// the underlay's gateway to both.
const (
	outside = "203.0.113.5"
	routed  = "203.0.113.6"
	router  = "172.31.99.1"
)

// withOutside adds an address outside of the cluster and routes to it on all nodes. The nodes
// use strict reverse path filtering.
func (w *world) withOutside() {
	w.t.Helper()
	w.ip("central", "addr", "replace", router+"/24", "dev", "underlay")
	for _, to := range []string{outside, routed} {
		w.ip("central", "addr", "replace", to+"/32", "dev", "lo")
	}
	for host := range w.agents {
		w.ip(host, "route", "replace", "default", "via", router)
		_, err := w.lab.Exec(w.t.Context(), host, "sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=1")
		require.NoError(w.t, err)
	}
}

func (w *world) ip(namespace string, args ...string) string {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), namespace, append([]string{"ip"}, args...)...)
	require.NoError(w.t, err)
	return out
}

// who answers with its own name, and with the source address of the request.
func (w *world) who(namespace, name string) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Serve(namespace, 8080, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(out, name+" "+host)
	})))
}

// ask sends a request to who from a namespace.
func (w *world) ask(from string, to string, port int) (string, error) {
	return w.lab.HTTPGet(w.t.Context(), from, "http://"+net.JoinHostPort(to, strconv.Itoa(port)))
}

// askWithin is ask for an answer within a time.
func (w *world) askWithin(within time.Duration, from, to string, port int) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	return w.lab.HTTPGet(ctx, from, "http://"+net.JoinHostPort(to, strconv.Itoa(port)))
}

// tries counts the tries of a question.
type tries int

// patience returns how long the next try waits for an answer: twice as long as the one before. The packets of a try that began while
// rules changed can be lost for seconds, and on a busy machine an answer needs long.
func (n *tries) patience() time.Duration {
	const first, most = time.Second / 2, 5
	*n++
	return first << min(*n-1, most)
}

// seen waits until who answers as expected.
func (w *world) seen(from, to string, port int, want ...string) {
	w.t.Helper()
	var n tries
	await(w.t, fmt.Sprintf("%s asks %s", from, to), func() error {
		got, err := w.askWithin(n.patience(), from, to, port)
		if err == nil && !slices.Contains(want, got) {
			err = fmt.Errorf("answer %q, want one of %q", got, want)
		}
		return err
	})
}

// management returns the address of a node's management port, and the source address of its
// traffic to services.
func (w *world) management(host string) (address, service netip.Addr) {
	w.t.Helper()
	await(w.t, host+" has its address", func() error {
		out, err := w.lab.Exec(w.t.Context(), host, "ip", "-4", "-o", "addr", "show", "dev", "coe0")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		i := slices.Index(fields, "inet")
		if i < 0 {
			return fmt.Errorf("no address: %s", out)
		}
		address = netip.MustParsePrefix(fields[i+1] + "/32"[len("/32")*strings.Count(fields[i+1], "/"):]).Addr()
		return nil
	})
	return address, address.Next()
}

// service posts a service with its endpoints.
func (w *world) service(n int, address string, endpoints ...string) {
	w.t.Helper()
	w.nodePortService(n, address, 0, endpoints...)
}

// nodePortService is service with a node port; 0 for none.
func (w *world) nodePortService(n int, address string, nodePort int, endpoints ...string) {
	w.t.Helper()
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf(`{"ip-address":%q}`, e))
	}
	w.put("service:service-information/services/"+uid("s", n), fmt.Sprintf(
		`{"services":[{"uid":%q,"name":"s%d","network-NS":"default","cluster-ip-address":%q,"service-ports":[{"port":80,"target-port":"8080","node-port":%d}]}]}`,
		uid("s", n), n, address, nodePort))
	w.put("service:endpoints-info/endpoints/"+uid("e", n), fmt.Sprintf(
		`{"endpoints":[{"uid":%q,"name":"s%d","network-NS":"default","endpoint-addresses":[%s],"endpoint-ports":[{"port":8080}]}]}`,
		uid("e", n), n, strings.Join(list, ",")))
}

// joined is two hosts that are connected to the pod network, a pod on each, and an address
// outside. Each of them runs who.
func joined(t *testing.T) (w *world, pods map[string]*sandbox) {
	w = newWorld(t, patient, "host1", "host2")
	w.withOutside()
	pods = map[string]*sandbox{}
	for i, host := range []string{"host1", "host2"} {
		p := w.pod(host, i, "default", "pod-"+host)
		p.mustAdd()
		pods[host] = p
		w.who(p.inLab(), p.name)
		w.who(host, host)
	}
	w.who("central", "outside")
	return w, pods
}

// TestNode: nodes and pods reach each other without NAT. Pods reach the outside with the
// address of their node. A machine outside that has routes reaches pods without NAT, and the other
// way round with --no-masquerade. Nodes and pods reach every service.
func TestNode(t *testing.T) {
	t.Parallel()
	w, pods := joined(t)
	for _, host := range []string{"host1", "host2"} {
		management, _ := w.management(host)
		for _, to := range pods {
			w.seen(host, to.address.String(), 8080, to.name+" "+management.String())
		}
		p := pods[host]
		for _, to := range []string{"host1", "host2"} {
			w.seen(p.inLab(), w.address(to), 8080, to+" "+p.address.String())
			other, _ := w.management(to)
			w.seen(p.inLab(), other.String(), 8080, to+" "+p.address.String())
		}
		w.seen(p.inLab(), outside, 8080, "outside "+w.address(host))
	}
	for host, p := range pods { // as coe-bridge routes says
		w.ip("central", "route", "add", p.address.String(), "via", w.address(host))
		w.seen("central", p.address.String(), 8080, p.name+" "+ovnhost.Central.String())
		w.seen(p.inLab(), routed, 8080, "outside "+p.address.String())
	}
	w.services(pods)
	w.nodePortService(4, "10.96.0.13", 30080, pods["host2"].address.String())
	for host := range pods { // a client outside, also where the endpoint is not
		w.seen("central", w.address(host), 30080, "pod-host2 "+w.edge(host))
	}
	for _, nobody := range []string{"10.96.0.99", "10.42.200.200"} {
		_, err := w.ask(pods["host1"].inLab(), nobody, 80)
		require.ErrorContains(t, err, "no route to host", nobody)
	}
	status, answer := w.bridge.Bridge().Do(http.MethodPut, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/web",
		`{"network":[{"network-id":"web","allocation-pool":[{"subnet":"100.96.7.0/24"}]}]}`)
	require.Equal(t, http.StatusBadRequest, status, "nodes' own addresses are not for pods: %s", answer)
	require.Contains(t, answer, "--node-network")
	w.pastTheSwitch(pods["host1"])
}

// pastTheSwitch: a pod sends packets to the MAC address of its link's other end. Beside the userspace datapath
// the kernel of the node sees them. The node takes none and forwards none.
func (w *world) pastTheSwitch(p *sandbox) {
	w.t.Helper()
	link, node := w.podLink(p), w.address(p.host)
	for _, filter := range []string{"all", link} {
		_, err := w.lab.Exec(w.t.Context(), p.host, "sysctl", "-q", "-w", "net.ipv4.conf."+filter+".rp_filter=0")
		require.NoError(w.t, err)
	}
	w.ip(p.inLab(), "neigh", "replace", node, "lladdr", w.mac(p.host, link), "dev", "eth0")
	w.ip(p.inLab(), "route", "replace", node, "dev", "eth0")
	w.drops(p.host, "own-pods", func() { w.unreachable(p.inLab(), node) })
	w.ip(p.inLab(), "route", "replace", outside, "via", node, "dev", "eth0", "onlink")
	w.drops(p.host, "no-forward", func() { w.unreachable(p.inLab(), outside) })
}

// services posts services whose endpoints are pods, a node, and an outside address.
func (w *world) services(pods map[string]*sandbox) {
	w.t.Helper()
	w.service(1, "10.96.0.10", pods["host1"].address.String(), pods["host2"].address.String())
	w.service(2, "10.96.0.11", w.address("host1"))
	w.service(3, "10.96.0.12", outside)
	for _, host := range []string{"host1", "host2"} {
		_, as := w.management(host)
		w.seen(host, "10.96.0.10", 80, "pod-host1 "+as.String(), "pod-host2 "+as.String())
		w.seen(host, "10.96.0.11", 80, "host1 "+as.String())
		w.seen(host, "10.96.0.12", 80, "outside "+w.address(host))
		p := pods[host]
		w.seen(p.inLab(), "10.96.0.11", 80, "host1 "+p.address.String())
		w.seen(p.inLab(), "10.96.0.12", 80, "outside "+w.address(host))
	}
}

// TestNodeHeals: the agent restores every part of a node's connection at once after it was
// removed, because the kernel and the switch report the change.
func TestNodeHeals(t *testing.T) {
	t.Parallel()
	w, pods := joined(t)
	far := pods["host2"]
	address, _ := w.management("host1")
	whole := func() {
		w.seen("host1", far.address.String(), 8080, far.name+" "+address.String())
		w.seen(pods["host1"].inLab(), outside, 8080, "outside "+w.address("host1"))
		await(t, "all is there", w.isWhole)
	}
	whole()
	for _, harm := range []string{
		"nft flush ruleset",
		"nft delete table ip coe-bridge",
		"nft flush chain ip coe-bridge way-out",
		"nft add rule ip coe-bridge way-out accept",
		"nft add chain ip coe-bridge another",
		"ip route flush proto 206",
		"ip route del 10.42.0.0/16",
		"ip route replace 10.42.0.0/16 dev coe0 proto 206",
		"ip route add 192.0.2.0/24 dev coe0 proto 206",
		"ip addr flush dev coe0",
		"ip addr add 192.0.2.1/24 dev coe0",
		"ip link set coe0 mtu 1000",
		"ip link set coe0 address 0a:58:00:00:00:01",
		"ip link set coe0 down",
		"ip link set coe0-port down",
		"ip link del coe0",
		"ip link set coe0 name mine",
		"sysctl -q -w net.ipv4.ip_forward=0",
	} {
		w.mends(harm, whole)
	}
	w.step("the port is deleted", func() {
		_, err := w.lab.Host("host1").VSCtl(t.Context(), "del-port", "coe0-port")
		require.NoError(w.t, err)
		whole()
	})
	w.step("the switch's parts are restarted", func() {
		host := w.lab.Host("host1")
		require.NoError(w.t, host.VSwitchd.Restart(t.Context()))
		require.NoError(w.t, host.Controller.Restart(t.Context()))
		w.withOutside() // br-phy's link was created again
		whole()
	})
	w.step("the agent comes back and touches nothing", func() {
		before := w.snapshot("host1")
		require.NoError(w.t, w.agents["host1"].Restart(t.Context()))
		whole()
		require.Zero(w.t, w.metric("host1", "coe_agent_node_changes_total"))
		require.Equal(w.t, before, w.snapshot("host1"))
	})
	w.step("the agent was away", func() {
		require.NoError(w.t, w.agents["host1"].Kill())
		w.ip("host1", "link", "del", "coe0")
		_, err := w.lab.Exec(t.Context(), "host1", "nft", "flush", "ruleset")
		require.NoError(w.t, err)
		w.agents["host1"].relay.cut(true)
		require.NoError(w.t, w.agents["host1"].Start(t.Context()))
		whole()
		w.agents["host1"].relay.cut(false)
	})
}

// isWhole fails if a part of host1's connection is missing or wrong.
func (w *world) isWhole() error {
	for _, part := range []struct {
		argv string
		has  []string
		not  string
	}{
		{"nft list table ip coe-bridge", []string{"masquerade", "snat to 100.96.0.3", "10.96.0.0/12"}, "\t\taccept\n"},
		{"nft list table ip coe-bridge", []string{"chain way-out"}, "chain another"},
		{"ip route show proto 206", []string{
			"10.42.0.0/16 via 100.96.0.1 dev coe0 src 100.96.0.2", "10.96.0.0/12 via", "100.96.0.0/16 dev coe0 scope link", "100.96.0.3 via",
		}, "192.0.2.0"},
		{"ip addr show coe0", []string{"100.96.0.2/32", "mtu 1442", ",UP", "0a:58:64:60:00:02"}, "192.0.2.1"},
		{"ip addr show coe0-port", []string{"mtu 1442", ",UP"}, "192.0.2.1"},
		{"sysctl net.ipv4.ip_forward", []string{"= 1"}, "= 0"},
	} {
		out, err := w.lab.Exec(w.t.Context(), "host1", strings.Fields(part.argv)...)
		if err != nil {
			return err
		}
		for _, has := range part.has {
			if !strings.Contains(out, has) {
				return fmt.Errorf("%s: there is no %q in %s", part.argv, has, out)
			}
		}
		if strings.Contains(out, part.not) {
			return fmt.Errorf("%s: there is %q in %s", part.argv, part.not, out)
		}
	}
	return nil
}

// snapshot returns the state of a host, with kernel numbers that identify new objects.
func (w *world) snapshot(host string) (all []string) {
	w.t.Helper()
	for _, argv := range []string{"ip -4 addr", "ip route", "nft -a -s list ruleset", "ip -o link"} {
		out, err := w.lab.Exec(w.t.Context(), host, strings.Fields(argv)...)
		require.NoError(w.t, err)
		all = append(all, out)
	}
	return all
}

// flowMTU is at most the MTU of pods.
const flowMTU = 1400

// TestNodeNoLoss: nodes and pods reach each other all the time, and lose no packet, while the agent, the bridge and northd restart.
func TestNodeNoLoss(t *testing.T) {
	w, pods := joined(t)
	near, far := pods["host1"], pods["host2"]
	w.service(1, "10.96.0.10", far.address.String())
	address, as := w.management("host1")
	w.seen("host1", far.address.String(), 8080, far.name+" "+address.String())
	w.seen("host1", "10.96.0.10", 80, far.name+" "+as.String())
	w.seen(near.inLab(), outside, 8080, "outside "+w.address("host1"))
	ways := []packets.Way{
		{From: "host1", To: far.inLab(), Address: far.address},
		{From: near.inLab(), To: "central", Address: netip.MustParseAddr(outside)},
		{From: near.inLab(), To: "host2", Address: w.lab.Host("host2").Address},
		{From: far.inLab(), To: "host1", Address: address},
	}
	for _, way := range ways {
		require.NoError(t, w.lab.Ping(t.Context(), way.From, way.Address))
	}
	asked := w.asking("host1", "10.96.0.10", 80)
	text, err := packets.Streams{Lab: w.lab, Ways: ways, MTU: flowMTU, Hosts: []string{"host1", "host2"}}.Keep(t.Context(), func() {
		for range 2 {
			for _, agent := range w.agents {
				require.NoError(t, agent.Restart(t.Context()))
			}
			w.bridge.Kill()
			w.startBridge()
			require.NoError(t, w.lab.Northd.Restart(t.Context()))
			require.NoError(t, w.lab.Sync(t.Context()))
		}
	})
	require.NoError(t, err)
	t.Log(text)
	require.NoError(t, asked())
	for _, host := range []string{"host1", "host2"} {
		require.Zero(t, w.metric(host, "coe_agent_node_changes_total"))
	}
}

// pinged is the number of packets of pinging: six seconds, or more on a busy machine.
const pinged = 300

// pinging sends packets, and fails the test if there was an outage.
func (w *world) pinging(from, to string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	said := make(chan string, 1)
	go func() {
		out, _ := w.lab.Exec(ctx, from, "ping", "-n", "-i", "0.02", "-c", strconv.Itoa(pinged), "-W", "5", to)
		said <- out
	}()
	w.t.Cleanup(func() {
		defer cancel()
		most, last := packets.Lost(<-said)
		require.LessOrEqual(w.t, max(most, pinged-last), packets.MaxLost, "packets lost in a row from %s to %s", from, to)
	})
}

// asking requests pages repeatedly until stopped. The stop function fails if a request failed.
func (w *world) asking(from, to string, port int) (stop func() error) {
	end, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				failed <- nil
				return
			default:
			}
			if _, err := w.ask(from, to, port); err != nil {
				failed <- err
				return
			}
		}
	}()
	return func() error {
		close(end)
		return <-failed
	}
}

// TestNodeLeaves: a renamed node keeps its place. A deleted node loses it, and gets one again when
// it returns. An agent for OpenDaylight, which follows no bridge that serves OVN first, leaves nothing behind. The cleanup removes everything.
func TestNodeLeaves(t *testing.T) {
	w, pods := joined(t)
	w.isJoined(pods["host2"])
	w.step("renamed", func() {
		w.nameNode("host1", "other")
		await(w.t, "the port is another host's", func() error { return w.lsp("requested-chassis=other") })
		w.nameNode("host1", "host1")
		w.isJoined(pods["host2"])
	})
	w.step("removed", func() {
		status, answer := w.bridge.Bridge().Do(http.MethodDelete, "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/"+uid("n", 0), "")
		require.Equal(t, 2, status/100, answer)
		await(w.t, "nothing is left", w.hasLeft)
		await(w.t, "its rows are gone", func() error {
			if w.lsp("") == nil {
				return errors.New("the switch port is there")
			}
			return nil
		})
		w.nameNode("host1", "host1")
		w.isJoined(pods["host2"])
	})
	w.step("given to OpenDaylight, and taken back", func() {
		agent := w.agents["host1"]
		require.NoError(w.t, agent.Terminate())
		apart, err := w.lab.Launch(t.Context(), ovnhost.Command{
			Name: "host1/agent-apart", Pod: "host1", Argv: append(slices.Clone(agent.argv), "--backend", "odl", "--ovs-manager", "tcp:127.0.0.1:6640"),
			Ready: func(context.Context) error { return w.manager("tcp:127.0.0.1:6640") },
		})
		require.NoError(w.t, err)
		require.Error(w.t, w.hasLeft(), "it keeps its connection, because the bridge serves OVN first")
		require.NoError(w.t, apart.Terminate())
		require.NoError(w.t, agent.Start(t.Context()))
		w.isJoined(pods["host2"])
		await(w.t, "the switch has no manager", func() error { return w.manager("") })
	})
	w.step("cleaned up", func() {
		require.NoError(w.t, pods["host1"].del())
		require.NoError(w.t, w.agents["host1"].Terminate())
		_, err := w.lab.Exec(t.Context(), "host1", append(slices.Clone(w.agents["host1"].argv), "--cleanup")...)
		require.NoError(w.t, err)
		require.NoError(w.t, w.hasLeft())
	})
}

// manager fails unless host1's switch has exactly that manager.
func (w *world) manager(want string) error {
	out, err := w.lab.Host("host1").VSCtl(w.t.Context(), "get-manager")
	if err == nil && strings.TrimSpace(out) != want {
		err = fmt.Errorf("the manager is %q", out)
	}
	return err
}

// mends waits until the agent of host1 mends what a command has changed, and checks that everything is whole.
func (w *world) mends(harm string, whole func()) {
	w.step(harm, func() {
		changes := w.metric("host1", "coe_agent_node_changes_total")
		w.onHost1(harm)
		await(w.t, "the change is seen", func() error {
			if w.metric("host1", "coe_agent_node_changes_total") == changes {
				return errors.New("nothing was mended")
			}
			return nil
		})
		whole()
	})
}

func (w *world) nameNode(host, name string) {
	w.t.Helper()
	w.put("k8s-node:k8s-nodes-info/k8s-nodes/"+uid("n", 0), fmt.Sprintf(
		`{"k8s-nodes":[{"uid":%q,"host-name":%q,"internal-ip-address":%q}]}`, uid("n", 0), name, w.address(host)))
}

// isJoined waits until host1 reaches a pod from its own address.
func (w *world) isJoined(pod *sandbox) {
	w.t.Helper()
	address, _ := w.management("host1")
	w.seen("host1", pod.address.String(), 8080, pod.name+" "+address.String())
}

// lsp fails if host1's management port does not have an option in OVN.
func (w *world) lsp(option string) error {
	out, err := w.lab.NBCtl(w.t.Context(), "--bare", "--columns=name,options", "find", "Logical_Switch_Port",
		"name=\"node:"+w.address("host1")+":management\"")
	if err == nil && (out == "" || !strings.Contains(out, option)) {
		err = fmt.Errorf("no port with option %q: %q", option, out)
	}
	return err
}

// hasLeft fails if a part of host1's connection still exists.
func (w *world) hasLeft() error {
	for argv, own := range map[string]string{"nft list ruleset": "coe-bridge", "ip route": "206", "ip link": "coe0"} {
		out, err := w.lab.Exec(w.t.Context(), "host1", strings.Fields(argv)...)
		if err == nil && strings.Contains(out, own) {
			err = errors.New(argv + ": " + out)
		}
		if err != nil {
			return err
		}
	}
	out, err := w.lab.Host("host1").VSCtl(w.t.Context(), "list-ports", "br-int")
	if err == nil && strings.Contains(out, "coe0") {
		err = errors.New(out)
	}
	return err
}

// TestNodePackets: packets up to the MTU of pod links pass between node and pod, and larger ones
// cause ICMP errors. Bulk transfers are complete. Session affinity works.
func TestNodePackets(t *testing.T) {
	w, pods := joined(t)
	far := pods["host2"]
	w.isJoined(far)
	for from, to := range map[string]string{"host1": far.address.String(), far.inLab(): w.address("host1")} {
		_, err := w.lab.Exec(t.Context(), from, "ping", "-n", "-c", "2", "-M", "do", "-s", strconv.Itoa(1442-28), to)
		require.NoError(t, err)
		_, err = w.lab.Exec(t.Context(), from, "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", strconv.Itoa(1443-28), to)
		require.Error(t, err)
	}
	bulk := strings.Repeat("0123456789abcdef", 1<<18)
	for _, at := range []string{far.inLab(), "central"} {
		require.NoError(t, w.lab.Serve(at, 8081, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, bulk) })))
	}
	for from, to := range map[string]string{"host1": far.address.String(), pods["host1"].inLab(): outside} {
		got, err := w.ask(from, to, 8081)
		require.NoError(t, err)
		require.True(t, got == bulk, "from %s", from)
	}

	w.service(1, "10.96.0.10", pods["host1"].address.String(), far.address.String())
	require.Eventually(t, func() bool { return len(w.whoAnswers("host1", 16)) == 2 }, converge, interval)
	_, err := w.lab.NBCtl(t.Context(), "--wait=hv", "set", "Load_Balancer", "default:s1:tcp", "options:affinity_timeout=10800")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(w.whoAnswers("host1", 16)) == 1 }, converge, interval)
	require.Len(t, w.whoAnswers("host1", 50), 1)
}

// whoAnswers sends requests to a service, and returns the number of answers by server.
func (w *world) whoAnswers(from string, times int) map[string]int {
	all := map[string]int{}
	for range times {
		if got, err := w.ask(from, "10.96.0.10", 80); err == nil {
			all[got]++
		}
	}
	return all
}

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// network is a network outside with a router, which has the addresses outside and outside6 too. It does not know pods.
type network struct{ name, prefix string }

func (n network) at(host int) string { return fmt.Sprintf("%s.%d", n.prefix, host) }

// The addresses in a network of the router, of the node and of the gateway.
const (
	ofNextHop = 253
	ofNode    = 10
	ofGateway = 138
)

// connect connects a new NIC of a host to a new network.
func (w *world) connect(host, nic string, to network) {
	w.t.Helper()
	s := w.sandbox(host, "default", to.name, "", to.name)
	w.ip(host, "link", "add", nic, "mtu", "1500", "type", "veth", "peer", "name", "eth0", "netns", s.netns())
	w.ip(host, "link", "set", nic, "up")
	w.ip(to.name, "link", "set", "eth0", "up")
	w.ip(to.name, "addr", "add", to.at(ofNextHop)+"/24", "dev", "eth0")
	w.ip(to.name, "addr", "add", to.at6(ofNextHop)+"/64", "dev", "eth0", "nodad")
	w.ip(to.name, "addr", "add", linkLocalHop+"/64", "dev", "eth0", "nodad")
	w.ip(to.name, "addr", "add", outside+"/32", "dev", "lo")
	w.ip(to.name, "addr", "add", outside6+"/128", "dev", "lo")
	ns, err := netns.GetFromName(s.netns())
	require.NoError(w.t, err)
	defer func() { _ = ns.Close() }()
	require.NoError(w.t, links.SoftwareChecksums(ns, "eth0"))
	w.who(to.name, to.name)
}

// gatewayNIC is a NIC by which a gateway leads to a network: a NIC of its own, or one that the node uses too.
type gatewayNIC struct {
	network
	host, nic string
	shared    bool
}

// connectNIC connects the NIC to its new network. A shared one has addresses of the node, and must join its bridge (share).
func (w *world) connectNIC(n gatewayNIC) {
	w.t.Helper()
	w.connect(n.host, n.nic, n.network)
	if n.shared {
		w.ip(n.host, "addr", "add", n.at(ofNode)+"/24", "dev", n.nic)
		w.ip(n.host, "addr", "add", n.at6(ofNode)+"/64", "dev", n.nic, "nodad")
	}
}

// share lets the NIC join its bridge.
func (w *world) share(n gatewayNIC) {
	w.t.Helper()
	_, err := w.lab.Exec(w.t.Context(), n.host, bridgetest.Program(w.t), "gateway", "nics-to-bridge", n.nic,
		"--ovs-db", w.lab.Host(n.host).OVSDB.Remote, "--state-dir", w.agents[n.host].dir)
	require.NoError(w.t, err)
}

// flag is the flag of gateway init that names what attached returns.
func (n gatewayNIC) flag() string {
	if n.shared {
		return "--bridge-interface"
	}
	return "--physical-interface"
}

func (n gatewayNIC) attached() string {
	if n.shared {
		return "br" + n.nic
	}
	return n.nic
}

// init returns the command that makes the host a gateway, with IPv4.
func (n gatewayNIC) init() []string {
	return []string{"init", n.flag(), n.attached(), "--physical-ip", n.at(ofGateway) + "/24", "--default-gw", n.at(ofNextHop)}
}

// init6 is init with both families.
func (n gatewayNIC) init6(nextHop string) []string {
	return []string{
		"init", n.flag(), n.attached(), "--physical-ip", n.at(ofGateway) + "/24," + n.at6(ofGateway) + "/64", "--default-gw", n.at(ofNextHop) + "," + nextHop,
	}
}

// gateway runs coe-bridge gateway on a host.
func (w *world) gateway(host string, args ...string) (string, error) {
	return w.lab.Exec(w.t.Context(), host, w.gatewayCommand(host, args...)...)
}

func (w *world) gatewayCommand(host string, args ...string) []string {
	dir := filepath.Join(w.lab.Dir, host)
	argv := append([]string{bridgetest.Program(w.t), "gateway", args[0], "--node-address", w.address(host)}, args[1:]...)
	return append(argv,
		"--server", w.agents[host].relay.url, "--user", bridgetest.User, "--password-file", filepath.Join(dir, "password"),
		"--ovs-db", w.lab.Host(host).OVSDB.Remote, "--state-dir", w.agents[host].dir)
}

// killedGateway runs coe-bridge gateway on a host again and again, and kills it whenever it has changed something, until it
// has nothing to do. The first time it kills the agent of the host too, which starts again afterwards. It kills the command
// before the answer to its write at the bridge, and after other changes if the command has not ended by then.
func (w *world) killedGateway(host string, args ...string) {
	w.t.Helper()
	kills := 0
	args = append(slices.Clone(args), "--server", w.unanswered(host))
	for before := ""; before != w.state(host); {
		before = w.state(host)
		ctx, kill := context.WithCancel(w.t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := w.lab.Exec(ctx, host, w.gatewayCommand(host, args...)...)
			ended <- err
		}()
		var err error
		for running := true; running; {
			select {
			case err = <-ended:
				require.NoError(w.t, err)
				running = false
			case <-time.After(interval):
				if w.state(host) != before {
					kill()
					<-ended
					if kills++; kills == 1 {
						require.NoError(w.t, w.agents[host].Kill())
					}
					running = false
				}
			}
		}
		kill()
	}
	require.Positive(w.t, kills)
	require.NoError(w.t, w.agents[host].Start(w.t.Context()))
}

// unanswered returns the URL of a server in a host that forwards all requests to the bridge, and does not answer those that
// have written. A dry run and an error are answered.
func (w *world) unanswered(host string) string {
	w.t.Helper()
	to, err := url.Parse(w.bridge.Bridge().URL())
	require.NoError(w.t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.URL.Query().Has("dry-run") {
			proxy.ServeHTTP(rw, r)
			return
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if answer.Code >= 300 {
			http.Error(rw, answer.Body.String(), answer.Code)
			return
		}
		<-r.Context().Done()
	}))
	inHost(w.t, w.lab.Namespace(host), func() {
		_ = server.Listener.Close()
		server.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
	})
	server.Start()
	w.t.Cleanup(server.Close)
	return server.URL
}

// mustGateway is gateway, whose output must contain a text.
func (w *world) mustGateway(want, host string, args ...string) {
	w.t.Helper()
	out, err := w.gateway(host, args...)
	require.NoError(w.t, err)
	require.Contains(w.t, out, want)
}

// state is what the commands change on a host, at the bridge and in OVN.
func (w *world) state(host string) string {
	w.t.Helper()
	var all []string
	for _, args := range [][]string{{"list-br"}, {"get", "Open_vSwitch", ".", "external_ids"}} {
		out, err := w.lab.Host(host).VSCtl(w.t.Context(), args...)
		require.NoError(w.t, err)
		all = append(all, out)
	}
	status, _ := w.bridge.Bridge().Do("GET", "/restconf/config/coe-gateways:gateways/gateway/"+w.address(host), "")
	all = append(all, http.StatusText(status))
	for _, table := range []string{"Logical_Router", "Logical_Switch", "NAT", "Logical_Router_Policy"} {
		out, err := w.lab.NBCtl(w.t.Context(), "--bare", "--columns=_uuid", "find", table, "external_ids:coe-bridge/kind=gateway")
		require.NoError(w.t, err)
		all = append(all, table+":"+out)
	}
	return strings.Join(all, "\n")
}

// block returns the IPv4 address block of a host's pods.
func (w *world) block(host string) string {
	w.t.Helper()
	return w.blockOf(host, netip.Addr.Is4)
}

// blockOf returns the address block of a host's pods that is of a family: the block of the node, or that of an elan-instance.
func (w *world) blockOf(host string, is func(netip.Addr) bool) string {
	w.t.Helper()
	var body struct {
		Nodes struct {
			Node []struct {
				Address  string         `json:"address"`
				Gateways []netip.Prefix `json:"gateway"`
			} `json:"node"`
		} `json:"nodes"`
		Subnets struct {
			Subnet []struct {
				ELAN   string       `json:"elan-instance-name"`
				Prefix netip.Prefix `json:"prefix"`
			} `json:"subnet"`
		} `json:"subnets"`
	}
	for _, list := range []string{"nodes", "subnets"} {
		_, text := w.bridge.Bridge().Do("GET", "/restconf/config/coe-netvirt:"+list, "")
		require.NoError(w.t, json.Unmarshal([]byte(text), &body))
	}
	var blocks []netip.Prefix
	for _, n := range body.Nodes.Node {
		if n.Address == w.address(host) {
			blocks = append(blocks, n.Gateways...)
		}
	}
	for _, s := range body.Subnets.Subnet {
		if strings.Contains(s.ELAN, w.address(host)) {
			blocks = append(blocks, s.Prefix)
		}
	}
	for _, b := range blocks {
		if is(b.Addr()) {
			return b.Masked().String()
		}
	}
	require.Fail(w.t, "no block", "%+v", body)
	return ""
}

// TestGateway: a node becomes a gateway, on a NIC of its own and on one that the node uses too. Its pods leave by it with its address,
// and so do pinned pods of another node. Nodes and pods reach each other as before. Afterwards nothing is left.
func TestGateway(t *testing.T) {
	t.Parallel()
	w, pods := joined(t)
	_, err := w.lab.Host("host1").VSCtl(t.Context(), "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=physnet1:br-x")
	require.NoError(t, err)
	w.eachNIC(w.testRefusedNIC, func(n gatewayNIC) { w.testGateway(pods, n) })
}

// eachNIC calls test for a NIC of host1 of each kind, and before it prepare for the shared one, which has not joined its bridge yet.
func (w *world) eachNIC(prepare, test func(gatewayNIC)) {
	w.t.Helper()
	for _, n := range []gatewayNIC{{network{"north", "10.33.75"}, "host1", "eth1", false}, {network{"south", "10.33.76"}, "host1", "eth2", true}} {
		w.step(n.flag(), func() {
			w.connectNIC(n)
			if n.shared {
				prepare(n)
				w.share(n)
			}
			test(n)
		})
	}
}

// testRefusedNIC: a NIC with an address does not serve a gateway alone, and is not shared before it joins a bridge.
func (w *world) testRefusedNIC(n gatewayNIC) {
	w.t.Helper()
	_, err := w.gateway(n.host, "init", "--physical-interface", n.nic, "--physical-ip", n.at(ofGateway)+"/24", "--default-gw", n.at(ofNextHop))
	require.ErrorContains(w.t, err, n.nic+" has address "+n.at(ofNode)+"/24, so it does not serve the gateway alone")
	_, err = w.gateway(n.host, n.init()...)
	require.ErrorContains(w.t, err, "the switch has no bridge br"+n.nic+": coe-bridge gateway nics-to-bridge creates one")
}

func (w *world) testGateway(pods map[string]*sandbox, north gatewayNIC) {
	t := w.t
	kernel := func(host string) string { return "outside " + w.address(host) }
	gateway := north.name + " " + north.at(ofGateway)
	for host, p := range pods {
		w.seen(p.inLab(), outside, 8080, kernel(host))
	}
	before, args := w.state("host1"), north.init()
	w.mustGateway("would be changed", "host1", append(args, "--dry-run")...)
	_, err := w.gateway("host1", "init", north.flag(), north.attached(), "--physical-ip", north.at(ofGateway)+"/24", "--default-gw", "10.33.77.1")
	require.ErrorContains(t, err, "next-hop 10.33.77.1 is not the address of another machine in "+north.at(0)+"/24")
	_, err = w.gateway("host1", "init", "--physical-interface", "eth0", "--physical-ip", w.address("host1")+"/24", "--default-gw", router)
	require.ErrorContains(t, err, "this node has the address "+w.address("host1")+" itself")
	_, err = w.gateway("host1", append(args, "--node-address", w.address("host2"))...)
	require.ErrorContains(t, err, "no link of this machine has the address "+w.address("host2"))
	require.Equal(t, before, w.state("host1"))

	w.killedGateway("host1", args...)
	w.mustGateway("nothing to do", "host1", args...)
	require.Contains(t, w.state("host1"), `ovn-bridge-mappings="physnet1:br-x,coe-gateway:br`+north.nic+`"`)
	_, err = w.gateway("host1", "init", "--bridge-interface", "br-phy", "--physical-ip", north.at(ofGateway)+"/24", "--default-gw", north.at(ofNextHop))
	require.ErrorContains(t, err, "the gateway of this node has another NIC or bridge ("+north.attached()+")")
	w.seen(pods["host1"].inLab(), outside, 8080, gateway)
	w.seen(pods["host2"].inLab(), outside, 8080, kernel("host2"))
	w.step("pods on other nodes are pinned", func() {
		pinned := slices.Concat(args, []string{"--rampout-ip-subnets", w.block("host2")})
		w.mustGateway("configure gateway", "host1", pinned...)
		w.mustGateway("nothing to do", "host1", pinned...)
		w.seen(pods["host2"].inLab(), outside, 8080, gateway)
		for _, p := range pods {
			w.tracedBy(p, "host1")
		}
	})
	w.step("a subnet that has no pods", func() {
		_, err := w.gateway("host1", slices.Concat(args, []string{"--rampout-ip-subnets", "10.43.0.0/16," + w.block("host2")})...)
		require.ErrorContains(t, err, "the gateway is configured, and has a problem: the pinned subnet 10.43.0.0/16 is not in a range of pods")
		w.seen(pods["host2"].inLab(), outside, 8080, gateway)
		w.mustGateway("configure gateway", "host1", slices.Concat(args, []string{"--rampout-ip-subnets", w.block("host2")})...)
	})
	w.step("pods on a node with another gateway are pinned", func() {
		other := "coe-gateways:gateways/gateway/" + w.address("host2")
		w.put(other, fmt.Sprintf(`{"gateway":[{"node":%q,"chassis":"host2","address":%q,"prefix-length":24,"next-hop":%q,"pinned-subnets":["10.42.0.0/16"]}]}`,
			w.address("host2"), north.at(ofGateway+1), north.at(ofNextHop))) // it is connected to nothing
		await(t, "OVN has the gateway", func() error {
			out, err := w.lab.NBCtl(t.Context(), "lr-list")
			if err == nil && !strings.Contains(out, "gateway:"+w.address("host2")) {
				err = errors.New(out)
			}
			return err
		})
		require.NoError(t, w.lab.Sync(t.Context()))
		w.seen(pods["host2"].inLab(), outside, 8080, gateway) // the longest prefix decides, and before the gateway of the node
		_, err := w.lab.Exec(t.Context(), pods["host1"].inLab(), "ping", "-n", "-c", "2", "-W", "1", outside)
		require.Error(t, err, "the pods of host1 are pinned to the other gateway")
		w.tracedBy(pods["host1"], "host2")
		w.tracedBy(pods["host2"], "host1")
		status, answer := w.bridge.Bridge().Do("DELETE", "/restconf/config/"+other, "")
		require.Equal(t, 2, status/100, answer)
		w.seen(pods["host1"].inLab(), outside, 8080, gateway)
	})
	w.step("nodes and pods reach each other as before", func() {
		for host, p := range pods {
			management, _ := w.management(host)
			w.seen(p.inLab(), w.address("host1"), 8080, "host1 "+p.address.String())
			w.seen(p.inLab(), w.address("host2"), 8080, "host2 "+p.address.String())
			w.seen(p.inLab(), pods["host1"].address.String(), 8080, "pod-host1 "+p.address.String())
			w.seen(host, pods["host2"].address.String(), 8080, "pod-host2 "+management.String())
			w.seen(host, outside, 8080, kernel(host))
		}
	})
	w.step("link-local addresses stay on the node of the pod", func() {
		for host, p := range pods {
			w.ip(host, "addr", "replace", "169.254.20.10/32", "dev", "lo")
			w.seen(p.inLab(), "169.254.20.10", 8080, host+" "+p.address.String())
		}
	})
	w.step("nothing but answers comes in", func() {
		spoofed := w.address("host1") // policies always allow the node of the pod
		to := netip.AddrPortFrom(pods["host1"].address, 9)
		var receives net.PacketConn
		require.NoError(t, w.lab.In(pods["host1"].inLab(), func() (err error) {
			receives, err = net.ListenPacket("udp4", ":9")
			return err
		}))
		defer func() { _ = receives.Close() }()
		require.NoError(t, receives.SetReadDeadline(time.Now().Add(converge)))
		w.ip(north.name, "addr", "add", spoofed+"/32", "dev", "lo")
		w.ip(north.name, "route", "add", "10.42.0.0/16", "via", north.at(ofGateway))
		require.NoError(t, w.lab.Ping(t.Context(), north.name, netip.MustParseAddr(north.at(ofGateway))))
		send := func(from, source, text string) {
			require.NoError(t, w.lab.In(from, func() error {
				conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(source)}, net.UDPAddrFromAddrPort(to))
				if err == nil {
					_, err = conn.Write([]byte(text))
					_ = conn.Close()
				}
				return err
			}))
		}
		for range 3 {
			send(north.name, spoofed, "from outside")
		}
		require.NoError(t, w.lab.Ping(t.Context(), north.name, netip.MustParseAddr(north.at(ofGateway))))
		send("host1", "", "from the node")
		buffer := make([]byte, 100)
		n, _, err := receives.ReadFrom(buffer)
		require.NoError(t, err)
		require.Equal(t, "from the node", string(buffer[:n]))
	})
	if north.shared {
		w.step("the node uses the NIC too", func() { w.testSharedNIC(pods["host1"], north) })
	}
	w.step("the bridge and the agent start again", func() {
		w.bridge.Kill()
		require.NoError(t, w.agents["host1"].Kill())
		w.seen(pods["host1"].inLab(), outside, 8080, gateway)
		w.seen(pods["host2"].inLab(), outside, 8080, gateway)
		w.startBridge()
		require.NoError(t, w.agents["host1"].Start(t.Context()))
		w.seen(pods["host2"].inLab(), outside, 8080, gateway)
	})
	w.step("remove", func() {
		w.mustGateway("would be changed", "host1", "remove", "--dry-run")
		w.killedGateway("host1", "remove")
		w.mustGateway("nothing to do", "host1", "remove")
		for host, p := range pods {
			w.seen(p.inLab(), outside, 8080, kernel(host))
		}
		if north.shared {
			w.nodeUses(north)
		}
		w.nothingIsLeft(before)
	})
}

// nothingIsLeft waits until the state of host1 is as before.
func (w *world) nothingIsLeft(before string) {
	w.t.Helper()
	await(w.t, "nothing is left", func() error {
		if now := w.state("host1"); now != before {
			return fmt.Errorf("%s\nbefore:\n%s", now, before)
		}
		return nil
	})
}

// testSharedNIC: the node has its own address on the NIC of a gateway.
func (w *world) testSharedNIC(p *sandbox, n gatewayNIC) {
	w.t.Helper()
	_, err := w.gateway(n.host, "init", n.flag(), n.attached(), "--physical-ip", n.at(ofNode)+"/24", "--default-gw", n.at(ofNextHop))
	require.ErrorContains(w.t, err, "this node has the address "+n.at(ofNode)+" itself")
	w.nodeUses(n)
	w.seen(p.inLab(), n.at(ofNode), 8080, n.host+" "+n.at(ofGateway))
}

// nodeUses: the node reaches the network of a shared NIC, and is reached there.
func (w *world) nodeUses(n gatewayNIC) {
	w.t.Helper()
	w.seen(n.host, n.at(ofNextHop), 8080, n.name+" "+n.at(ofNode))
	w.seen(n.name, n.at(ofNode), 8080, n.host+" "+n.at(ofNextHop))
}

// tracedBy requires that the bridge names the gateway by which a pod leaves.
func (w *world) tracedBy(p *sandbox, host string) {
	w.t.Helper()
	var traced []status.Namespace
	require.True(w.t, w.bridge.Bridge().Get("operational/coe-status:pods/namespace/"+p.namespace, &traced))
	i := slices.IndexFunc(traced[0].Pods, func(one status.Pod) bool { return one.UID == p.uid })
	require.GreaterOrEqual(w.t, i, 0)
	require.Equal(w.t, []netip.Addr{netip.MustParseAddr(w.address(host))}, traced[0].Pods[i].Gateways)
}

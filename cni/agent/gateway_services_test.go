package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// gatewaySide is what a test of a gateway of host1 needs of one family.
type gatewaySide struct {
	side
	client, gateway string   // in the network outside
	link            string   // the address of the gateway that endpoints see
	network         string   // the network outside
	spoofed         []string // addresses that policies allow: first one of the node, then that of a pod that reaches itself
	inside          []string
}

// gatewaySides returns the families of the gateway of a host in a network.
func (w *exposeWorld) gatewaySides(host string, north network) (all []gatewaySide) {
	w.t.Helper()
	address, _ := w.management(host)
	number := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}.Number(address)
	for _, s := range w.sides() {
		g := gatewaySide{side: s, client: north.at(ofNextHop), gateway: north.at(ofGateway), network: north.at(0) + "/24", spoofed: []string{w.address(host), "169.254.169.5"}, inside: []string{"10.42.0.0/16", "10.96.0.0/16"}}
		links := nodenet.GatewayLinks
		if s.name == "IPv6" {
			g.client, g.gateway, g.network, links = north.at6(ofNextHop), north.at6(ofGateway), north.at6(0)+"/64", nodenet.GatewayLinksIPv6
			g.spoofed = []string{nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}.Address(number).String(), "fd69::5"}
			g.inside = []string{"fd42::/64", "fd97::/112"}
		}
		link, ok := nodenet.GatewayLink(links, number)
		require.True(w.t, ok)
		g.link = link.Addr().Next().Next().String()
		all = append(all, g)
	}
	return all
}

// rejected waits until a port rejects connections.
func (w *exposeWorld) rejected(from, node string, port int) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s rejects %s", node, from), func() error {
		conn, err := w.lab.Dial(within(w.t, time.Second), from, "tcp", net.JoinHostPort(node, strconv.Itoa(port)))
		if err == nil {
			_ = conn.Close()
			return errors.New("it answers")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return err
	})
}

// TestGatewayServices: a client outside reaches services by the load balancers of a gateway of OVN, at node ports and at
// external addresses, by IPv4 and IPv6.
func TestGatewayServices(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t)
	north := network{"north", "10.33.75"}
	w.connect("host1", "eth1", north)
	args := []string{
		"init", "--physical-interface", "eth1", "--physical-ip", north.at(ofGateway) + "/24," + north.at6(ofGateway) + "/64",
		"--default-gw", north.at(ofNextHop) + "," + linkLocalHop,
	}
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1", "host2")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1")
	before := w.state("host1")
	w.mustGateway("changed", "host1", append(args, "--services")...)
	w.mustGateway("nothing to do", "host1", append(args, "--services")...)
	sides := w.gatewaySides("host1", north)
	each := func(name string, do func(gatewaySide)) {
		for _, s := range sides {
			w.step(name+": "+s.name, func() { do(s) })
		}
	}
	each("node ports", func(s gatewaySide) {
		w.answered(north.name, s.gateway, cluster, all(s.link)...)
		w.answered(north.name, s.gateway, local, "pod-host1 "+s.client)
		w.reachesEach(north.name, s.gateway, cluster, all(s.link)...)
		w.seen(w.pods["host1"].inLab(), s.outside, 8080, "north "+s.gateway)
		w.answered("central", s.address("host1"), cluster, all(s.edges["host1"])...) // nodes answer as before
		w.answered("central", s.address("host1"), local, "pod-host1 "+s.edges["host1"])
	})
	each("endpoints", func(s gatewaySide) { w.testGatewayEndpoints(s, cluster, local) })
	w.step("endpoints on nodes", func() { w.testGatewayHosts(sides, cluster) })
	w.testGatewayAddresses(sides)
	each("nothing else comes in", func(s gatewaySide) { w.testGatewayKeepsOut(s, cluster, local) })
	each("policies", func(s gatewaySide) { w.testGatewayPolicies(s, cluster, local) })
	w.step("the bridge is away", func() {
		w.bridge.Kill()
		for _, s := range sides {
			w.answered(north.name, s.gateway, cluster, all(s.link)...)
		}
		w.startBridge()
		for _, s := range sides {
			w.answered(north.name, s.gateway, local, "pod-host1 "+s.client)
		}
	})
	w.step("without services", func() {
		w.mustGateway("configure gateway", "host1", args...)
		for _, s := range sides {
			w.silent(north.name, s.gateway, cluster)
			w.seen(w.pods["host1"].inLab(), s.outside, 8080, "north "+s.gateway)
		}
		w.mustGateway("configure gateway", "host1", append(args, "--services")...)
		for _, s := range sides {
			w.answered(north.name, s.gateway, cluster, all(s.link)...)
		}
	})
	w.step("the NIC is gone, remove", func() {
		require.FileExists(w.t, filepath.Join(w.agents["host1"].dir, "nics", "eth1.json"))
		w.ip("host1", "link", "del", "eth1")
		w.mustGateway("changed", "host1", "remove")
		w.mustGateway("nothing to do", "host1", "remove")
		require.NoFileExists(w.t, filepath.Join(w.agents["host1"].dir, "nics", "eth1.json"))
		await(w.t, "nothing is left", func() error {
			if now := w.state("host1"); now != before {
				return fmt.Errorf("%s\nbefore:\n%s", now, before)
			}
			out, err := w.lab.NBCtl(w.t.Context(), "--bare", "--columns=name", "list", "Load_Balancer")
			if err == nil && strings.Contains(out, "gateway") {
				err = errors.New(out)
			}
			return err
		})
	})
}

// reachesEach waits until each of some answers was received over TCP.
func (w *exposeWorld) reachesEach(from, node string, at nodePorts, want ...string) {
	w.t.Helper()
	for _, answer := range want {
		w.seen(from, node, at.tcp, answer)
	}
}

func (w *exposeWorld) testGatewayEndpoints(s gatewaySide, cluster, local nodePorts) {
	const north = "north"
	client, gateway, link := s.client, s.gateway, s.link
	w.endpoints("local", "host1", "host2")
	w.endpoints("cluster", "host2")
	w.answered(north, gateway, cluster, "pod-host2 "+link)
	w.answered(north, gateway, local, "pod-host1 "+client)
	w.endpoints("local", "host2")
	w.silent(north, gateway, local)
	w.endpoints("local")
	w.rejected(north, gateway, local.tcp)
	w.endpoints("local", "host1")
	w.endpoints("cluster", "host1", "host2")
	w.answered(north, gateway, local, "pod-host1 "+client)

	w.affinity("cluster", corev1.ServiceAffinityClientIP)
	var tried tries
	await(w.t, "a client keeps its endpoint", func() error {
		within := tried.patience()
		first, err := w.askWithin(within, north, gateway, cluster.tcp)
		for n := 0; err == nil && n < 15; n++ {
			var now string
			if now, err = w.askWithin(within, north, gateway, cluster.tcp); err == nil && now != first {
				err = fmt.Errorf("first %q, then %q", first, now)
			}
		}
		return err
	})
	if s.name == "IPv4" { // OVN 23.03 cannot choose by an IPv6 address
		w.testGatewayClients(s, cluster)
	}
	w.affinity("cluster", corev1.ServiceAffinityNone)
	w.reachesEach(north, gateway, cluster, all(link)...)
}

// testGatewayClients: with session affinity different clients get different endpoints.
func (w *exposeWorld) testGatewayClients(s gatewaySide, cluster nodePorts) {
	prefix, host := netip.MustParsePrefix(s.network), netip.MustParseAddr(s.client)
	seen := map[string]bool{}
	for n := 0; n < 16 && len(seen) < 2; n++ {
		host = host.Prev()
		text := netip.PrefixFrom(host, prefix.Bits()).String()
		w.ip("north", "addr", "add", text, "dev", "eth0", "nodad")
		require.NoError(w.t, w.lab.In("north", func() error {
			conn, err := net.DialUDP("udp", &net.UDPAddr{IP: host.AsSlice()}, &net.UDPAddr{IP: net.ParseIP(s.gateway), Port: cluster.udp})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			await(w.t, text+" has an endpoint", func() error {
				got, err := exchange(conn, time.Second)
				if err == nil {
					seen[got] = true
				}
				return err
			})
			return nil
		}))
		w.ip("north", "addr", "del", text, "dev", "eth0")
	}
	require.Len(w.t, seen, 2)
}

// testGatewayHosts: an endpoint is a program of a node, such as a pod on the network of its host. Its IPv6 address is the second
// one of the node.
func (w *exposeWorld) testGatewayHosts(sides []gatewaySide, cluster nodePorts) {
	nodes := w.api.CoreV1().Nodes()
	for _, host := range []string{"host1", "host2"} { // RESTCONF knows one address
		n, err := nodes.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}, metav1.CreateOptions{})
		require.NoError(w.t, err)
		for _, address := range []string{w.address(host), w.address6(host)} {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
		_, err = nodes.UpdateStatus(w.t.Context(), n, metav1.UpdateOptions{})
		require.NoError(w.t, err)
	}
	for _, host := range []string{"host1", "host2"} {
		w.who(host, host)
		w.endpointsAt("cluster", w.address(host))
		w.putSlice("cluster", "cluster-6", discoveryv1.AddressTypeIPv6, w.address6(host))
		for _, s := range sides {
			w.seen("north", s.gateway, cluster.tcp, host+" "+s.link)
		}
	}
	w.endpoints("cluster", "host1", "host2")
	for _, s := range sides {
		w.answered("north", s.gateway, cluster, all(s.link)...)
	}
}

func (w *exposeWorld) testGatewayAddresses(sides []gatewaySide) {
	const north = "north"
	at := nodePorts{80, 80}
	var external, balancers, last []string
	for _, s := range sides {
		external, balancers, last = append(external, s.externalIP), append(balancers, s.balancerIP), append(last, s.lastIP)
		w.ip(north, "route", "replace", s.external, "via", s.gateway)
	}
	w.addresses("cluster", external, balancers...)
	w.addresses("local", nil, last...)
	for _, s := range sides {
		w.step("external addresses: "+s.name, func() {
			for _, address := range []string{s.externalIP, s.balancerIP} {
				w.answered(north, address, at, all(s.link)...)
			}
			w.answered(north, s.lastIP, at, "pod-host1 "+s.client)
			w.answered(w.pods["host2"].inLab(), s.lastIP, at, "pod-host1 "+s.pod("host2"))
			unused := netip.MustParsePrefix(s.external).Addr().Next()
			require.Error(w.t, w.lab.Ping(within(w.t, time.Second), north, unused))

			client := netip.MustParseAddr(s.client)
			w.restrict("cluster", netip.PrefixFrom(client, client.BitLen()).String())
			w.answered(north, s.balancerIP, at, all(s.link)...)
			w.restrict("cluster", s.elsewhere)
			w.silent(north, s.balancerIP, at)
			w.answered(north, s.externalIP, at, all(s.link)...)
			w.restrict("cluster")
			w.answered(north, s.balancerIP, at, all(s.link)...)
		})
	}
	owner, link := "/restconf/config/service:service-information/services/"+uid("s", 2), sides[0].link
	status, answer := w.bridge.Bridge().Do("PUT", owner, fmt.Sprintf(
		`{"services":[{"uid":%q,"name":"owner","network-NS":"other","cluster-ip-address":%q,"service-ports":[{"port":80}]}]}`, uid("s", 2), externalIP))
	require.Equal(w.t, 2, status/100, answer)
	w.silent(north, externalIP, at) // it belongs to another namespace
	status, answer = w.bridge.Bridge().Do("DELETE", owner, "")
	require.Equal(w.t, 2, status/100, answer)
	w.answered(north, externalIP, at, all(link)...)
}

// testGatewayKeepsOut: other packets do not come in, nor those that pretend to be from inside. Policies always allow the
// node of a pod.
func (w *exposeWorld) testGatewayKeepsOut(s gatewaySide, cluster, local nodePorts) {
	const north, port = "north", 20000 // no port that the kernel chooses
	var answers net.PacketConn         // the answer of a pod goes to the node
	require.NoError(w.t, w.lab.In("host1", func() (err error) {
		answers, err = net.ListenPacket("udp", net.JoinHostPort(s.spoofed[0], strconv.Itoa(port)))
		return err
	}))
	defer func() { _ = answers.Close() }()
	for _, inside := range s.inside {
		w.ip(north, "route", "add", inside, "via", s.gateway)
	}
	errs := make([]error, len(s.spoofed))
	var asked sync.WaitGroup
	for i, from := range s.spoofed {
		w.ip(north, "addr", "add", from, "dev", "lo", "nodad")
		source := netip.AddrPortFrom(netip.MustParseAddr(from), port)
		asked.Go(func() { errs[i] = w.noAnswerFromOutside(source, s.gateway, local.udp, cluster.udp) })
	}
	asked.Wait()
	require.NoError(w.t, errors.Join(errs...))
	for _, from := range s.spoofed {
		w.ip(north, "addr", "del", from, "dev", "lo")
	}
	require.NoError(w.t, answers.SetReadDeadline(time.Now().Add(time.Second)))
	n, from, err := answers.ReadFrom(make([]byte, 64))
	require.ErrorIs(w.t, err, os.ErrDeadlineExceeded, "%d bytes of %s", n, from)
	service, err := w.api.CoreV1().Services("default").Get(w.t.Context(), "cluster", metav1.GetOptions{})
	require.NoError(w.t, err)
	closed := []question{{north, s.pod("host1"), nodePorts{8080, 8080}}, {north, s.gateway, nodePorts{8080, 8080}}}
	for _, address := range service.Spec.ClusterIPs {
		if netip.MustParseAddr(address).Is4() == netip.MustParseAddr(s.client).Is4() {
			closed = append(closed, question{north, address, nodePorts{80, 80}})
		}
	}
	w.allSilent(closed...)
}

// noAnswerFromOutside fails unless a source in the network outside has no answer from ports of a gateway.
func (w *exposeWorld) noAnswerFromOutside(source netip.AddrPort, gateway string, ports ...int) error {
	return w.lab.In("north", func() error {
		for _, to := range ports {
			conn, err := dialFrom(within(w.t, patience.Patience), source, netip.AddrPortFrom(netip.MustParseAddr(gateway), uint16(to)))
			if err != nil {
				return err
			}
			answer, err := exchange(conn, silence)
			_ = conn.Close()
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("port %d answers %s: %q: %w", to, source, answer, err)
			}
		}
		return nil
	})
}

// testGatewayPolicies: a policy sees the client or, if the gateway is the client, the gateway's address in its link, and
// never the node of the pod.
func (w *exposeWorld) testGatewayPolicies(s gatewaySide, cluster, local nodePorts) {
	const north = "north"
	gateway, link := s.gateway, netip.MustParseAddr(s.link)
	api := w.api.NetworkingV1().NetworkPolicies("default")
	policy := func(blocks ...string) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "ingress"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
		}
		for _, block := range blocks {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: block}}}})
		}
		return p
	}
	_, err := api.Create(w.t.Context(), policy(), metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.allSilent(question{north, gateway, cluster}, question{north, gateway, local})
	_, err = api.Update(w.t.Context(), policy(netip.PrefixFrom(link, link.BitLen()).String()), metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.answered(north, gateway, cluster, all(s.link)...)
	w.silent(north, gateway, local)
	_, err = api.Update(w.t.Context(), policy(s.network), metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.answered(north, gateway, local, "pod-host1 "+s.client)
	w.silent(north, gateway, cluster)
	require.NoError(w.t, api.Delete(w.t.Context(), "ingress", metav1.DeleteOptions{}))
	w.answered(north, gateway, cluster, all(s.link)...)
}

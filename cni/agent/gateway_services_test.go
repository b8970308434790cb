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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// link returns the address of a host's gateway that endpoints see.
func (w *exposeWorld) link(host string) string {
	w.t.Helper()
	address, _ := w.management(host)
	link, ok := coe.GatewayLink(coe.NodeNetwork{Prefix: netip.MustParsePrefix("100.96.0.0/16")}.Number(address))
	require.True(w.t, ok)
	return link.Addr().Next().Next().String()
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
// external addresses.
func TestGatewayServices(t *testing.T) {
	w := newExposeWorld(t)
	north := network{"north", "10.33.75"}
	w.connect("host1", "eth1", north)
	client, gateway := north.at(ofNextHop), north.at(ofGateway)
	args := []string{"init", "--physical-interface", "eth1", "--physical-ip", gateway + "/24", "--default-gw", client}
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1", "host2")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1")
	before := w.state("host1")
	w.mustGateway("changed", "host1", append(args, "--services")...)
	w.mustGateway("nothing to do", "host1", append(args, "--services")...)
	link := w.link("host1")

	w.step("node ports", func() {
		w.answered(north.name, gateway, cluster, all(link)...)
		w.answered(north.name, gateway, local, "pod-host1 "+client)
		w.reachesEach(north.name, gateway, cluster, all(link)...)
		w.seen(w.pods["host1"].inLab(), outside, 8080, "north "+gateway)
		w.answered("central", w.address("host1"), cluster, all(w.edge("host1"))...) // nodes answer as before
	})
	w.step("endpoints", func() { w.testGatewayEndpoints(north, gateway, cluster, local, link) })
	w.step("endpoints on nodes", func() { w.testGatewayHosts(north, gateway, cluster, link) })
	w.step("external addresses", func() { w.testGatewayAddresses(north, gateway, link) })
	w.step("nothing else comes in", func() { w.testGatewayKeepsOut(north, gateway, cluster, local) })
	w.step("policies", func() { w.testGatewayPolicies(north, gateway, cluster, local, link) })
	w.step("the bridge is away", func() {
		w.bridge.Kill()
		w.answered(north.name, gateway, cluster, all(link)...)
		w.startBridge()
		w.answered(north.name, gateway, local, "pod-host1 "+client)
	})
	w.step("without services", func() {
		w.mustGateway("configure gateway", "host1", args...)
		w.silent(north.name, gateway, cluster)
		w.seen(w.pods["host1"].inLab(), outside, 8080, "north "+gateway)
		w.mustGateway("configure gateway", "host1", append(args, "--services")...)
		w.answered(north.name, gateway, cluster, all(link)...)
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

func (w *exposeWorld) testGatewayEndpoints(north network, gateway string, cluster, local nodePorts, link string) {
	client := north.at(ofNextHop)
	w.endpoints("local", "host1", "host2")
	w.endpoints("cluster", "host2")
	w.answered(north.name, gateway, cluster, "pod-host2 "+link)
	w.answered(north.name, gateway, local, "pod-host1 "+client)
	w.endpoints("local", "host2")
	w.silent(north.name, gateway, local)
	w.endpoints("local")
	w.rejected(north.name, gateway, local.tcp)
	w.endpoints("local", "host1")
	w.endpoints("cluster", "host1", "host2")
	w.answered(north.name, gateway, local, "pod-host1 "+client)

	api := w.api.CoreV1().Services("default")
	s, err := api.Get(w.t.Context(), "cluster", metav1.GetOptions{})
	require.NoError(w.t, err)
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	await(w.t, "a client keeps its endpoint", func() error {
		first, err := w.ask(north.name, gateway, cluster.tcp)
		for n := 0; err == nil && n < 15; n++ {
			var now string
			if now, err = w.ask(north.name, gateway, cluster.tcp); err == nil && now != first {
				err = fmt.Errorf("first %q, then %q", first, now)
			}
		}
		return err
	})
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	_, err = api.Update(w.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// testGatewayHosts: an endpoint is a program of a node, such as a pod on the network of its host.
func (w *exposeWorld) testGatewayHosts(north network, gateway string, cluster nodePorts, link string) {
	for _, host := range []string{"host1", "host2"} {
		w.who(host, host)
		w.endpointsAt("cluster", w.address(host))
		w.seen(north.name, gateway, cluster.tcp, host+" "+link)
	}
	w.endpoints("cluster", "host1", "host2")
	w.answered(north.name, gateway, cluster, all(link)...)
}

func (w *exposeWorld) testGatewayAddresses(north network, gateway, link string) {
	client, at := north.at(ofNextHop), nodePorts{80, 80}
	w.addresses("cluster", []string{externalIP}, balancerIP)
	w.addresses("local", nil, localIP)
	w.ip(north.name, "route", "replace", "198.51.100.0/24", "via", gateway)
	for _, address := range []string{externalIP, balancerIP} {
		w.answered(north.name, address, at, all(link)...)
	}
	w.answered(north.name, localIP, at, "pod-host1 "+client)
	w.answered(w.pods["host2"].inLab(), localIP, at, "pod-host1 "+w.pods["host2"].address.String())
	require.Error(w.t, w.lab.Ping(within(w.t, time.Second), north.name, netip.MustParseAddr("198.51.100.77")))

	w.restrict("cluster", client+"/32")
	w.answered(north.name, balancerIP, at, all(link)...)
	w.restrict("cluster", "192.0.2.0/24")
	w.silent(north.name, balancerIP, at)
	w.answered(north.name, externalIP, at, all(link)...)
	w.restrict("cluster")
	w.answered(north.name, balancerIP, at, all(link)...)

	owner := "/restconf/config/service:service-information/services/" + uid("s", 2)
	status, answer := w.bridge.Bridge().Do("PUT", owner, fmt.Sprintf(
		`{"services":[{"uid":%q,"name":"owner","network-NS":"other","cluster-ip-address":%q,"service-ports":[{"port":80}]}]}`, uid("s", 2), externalIP))
	require.Equal(w.t, 2, status/100, answer)
	w.silent(north.name, externalIP, at) // it belongs to another namespace
	status, answer = w.bridge.Bridge().Do("DELETE", owner, "")
	require.Equal(w.t, 2, status/100, answer)
	w.answered(north.name, externalIP, at, all(link)...)
}

// testGatewayKeepsOut: other packets do not come in, nor those that pretend to be from inside. Policies always allow the
// node of a pod.
func (w *exposeWorld) testGatewayKeepsOut(north network, gateway string, cluster, local nodePorts) {
	pod, spoofed := w.pods["host1"], w.address("host1")
	const port = 40000
	var answers net.PacketConn // the answer of a pod goes to the node
	require.NoError(w.t, w.lab.In("host1", func() (err error) {
		answers, err = net.ListenPacket("udp4", net.JoinHostPort(spoofed, strconv.Itoa(port)))
		return err
	}))
	defer func() { _ = answers.Close() }()
	w.ip(north.name, "addr", "add", spoofed+"/32", "dev", "lo")
	w.ip(north.name, "route", "add", "10.42.0.0/16", "via", gateway)
	w.ip(north.name, "route", "add", "10.96.0.0/12", "via", gateway)
	defer w.ip(north.name, "addr", "del", spoofed+"/32", "dev", "lo")
	for _, to := range []int{local.udp, cluster.udp} {
		require.NoError(w.t, w.lab.In(north.name, func() error {
			conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(spoofed), Port: port}, &net.UDPAddr{IP: net.ParseIP(gateway), Port: to})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if _, err := exchange(conn, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("port %d answers: %w", to, err)
			}
			return nil
		}))
	}
	require.NoError(w.t, answers.SetReadDeadline(time.Now().Add(time.Second)))
	n, from, err := answers.ReadFrom(make([]byte, 64))
	require.ErrorIs(w.t, err, os.ErrDeadlineExceeded, "%d bytes of %s", n, from)
	s, err := w.api.CoreV1().Services("default").Get(w.t.Context(), "cluster", metav1.GetOptions{})
	require.NoError(w.t, err)
	w.silent(north.name, s.Spec.ClusterIP, nodePorts{80, 80})
	w.silent(north.name, pod.address.String(), nodePorts{8080, 8080})
	w.silent(north.name, gateway, nodePorts{8080, 8080})
}

// testGatewayPolicies: a policy sees the client or, if the gateway is the client, the gateway's address in its link, and
// never the node of the pod.
func (w *exposeWorld) testGatewayPolicies(north network, gateway string, cluster, local nodePorts, link string) {
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
	w.silent(north.name, gateway, cluster)
	w.silent(north.name, gateway, local)
	_, err = api.Update(w.t.Context(), policy(link+"/32"), metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.answered(north.name, gateway, cluster, all(link)...)
	w.silent(north.name, gateway, local)
	_, err = api.Update(w.t.Context(), policy(north.at(0)+"/24"), metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.answered(north.name, gateway, local, "pod-host1 "+north.at(ofNextHop))
	w.silent(north.name, gateway, cluster)
	require.NoError(w.t, api.Delete(w.t.Context(), "ingress", metav1.DeleteOptions{}))
	w.answered(north.name, gateway, cluster, all(link)...)
}

package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/sctp"
)

// TestTwoGateways: two nodes are gateways with services, the second one on a NIC that the node uses too. Clients reach services by
// both at once, also with the same source, and each gets its answers by the gateway that it asks.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t)
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1", "host2")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1", "host2")
	at := map[string]network{"host1": {"north", "10.33.75"}, "host2": {"south", "10.33.76"}}
	sides := map[string][]gatewaySide{}
	for host, outside := range at {
		n := gatewayNIC{outside, host, "eth1", host == "host2"}
		w.connectNIC(n)
		if n.shared {
			w.share(n)
		}
		w.mustGateway("changed", host, append(n.init6(n.at6(ofNextHop)), "--services")...)
		sides[host] = w.gatewaySides(host, outside)
	}
	answers := func(hosts ...string) {
		t.Helper()
		for _, host := range hosts {
			for _, s := range sides[host] {
				client := at[host].name
				w.answered(client, s.gateway, cluster, all(s.link)...)
				w.reachesEach(client, s.gateway, cluster, all(s.link)...)
				w.answered(client, s.gateway, local, "pod-"+host+" "+s.client)
				w.seen(w.pods[host].inLab(), s.outside, 8080, client+" "+s.gateway)
			}
		}
	}
	answers("host1", "host2")
	w.step("the same source at both", func() {
		for i := range sides["host1"] {
			for _, port := range []int{cluster.udp, local.udp} {
				w.sameSource(at, sides, i, port, port == local.udp)
			}
		}
	})
	w.step("one of them ends", func() {
		w.mustGateway("changed", "host1", "remove")
		answers("host2")
		var former []question
		for _, s := range sides["host1"] {
			former = append(former, question{"north", s.gateway, cluster})
		}
		w.allSilent(former...)
	})
}

// sameSource sends datagrams from one address and port to a port of both gateways in turn. Each is answered by the asked one.
func (w *exposeWorld) sameSource(at map[string]network, sides map[string][]gatewaySide, family, port int, local bool) {
	w.t.Helper()
	conns := map[string]net.Conn{}
	for host, outside := range at {
		s := sides[host][family]
		require.NoError(w.t, w.lab.In(outside.name, func() error {
			conn, err := dialFrom(within(w.t, patience.Patience), netip.AddrPortFrom(netip.MustParseAddr(s.outside), 20000), netip.AddrPortFrom(netip.MustParseAddr(s.gateway), uint16(port)))
			conns[host] = conn
			return err
		}))
		defer func() { _ = conns[host].Close() }()
	}
	for range 3 {
		for host, conn := range conns {
			s := sides[host][family]
			want := all(s.link)
			if local {
				want = []string{"pod-" + host + " " + s.outside}
			}
			await(w.t, s.gateway+" answers "+s.outside, func() error {
				got, err := exchange(conn, patientPing)
				if err == nil {
					require.Contains(w.t, want, got)
				}
				return err
			})
		}
	}
}

// TestGatewayEgressIP: a pod that an EgressIP selects leaves with its egress address, not by the gateway of its node. The
// gateway leads clients to it with the policy Cluster only: the answers of Local endpoints would leave by the egress address.
func TestGatewayEgressIP(t *testing.T) {
	w := newEgressWorld(t)
	north := network{"north", "10.33.75"}
	w.connect("host1", "eth1", north)
	w.mustGateway("changed", "host1", "init", "--physical-interface", "eth1", "--physical-ip", north.at(ofGateway)+"/24", "--default-gw", north.at(ofNextHop), "--services")
	w.who(w.near.inLab(), "near")
	link := (&exposeWorld{world: w.world}).gatewaySides("host1", north)[0].link
	ports := map[string]int{}
	for name, policy := range map[string]corev1.ServiceExternalTrafficPolicy{"cluster": corev1.ServiceExternalTrafficPolicyCluster, "local": corev1.ServiceExternalTrafficPolicyLocal} {
		s, err := w.api.CoreV1().Services("chosen").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		ports[name] = int(s.Spec.Ports[0].NodePort)
		_, err = w.api.DiscoveryV1().EndpointSlices("chosen").Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{w.near.address.String()}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	answers := func() {
		t.Helper()
		w.seen(north.name, north.at(ofGateway), ports["local"], "near "+north.at(ofNextHop))
		w.seen(north.name, north.at(ofGateway), ports["cluster"], "near "+link)
	}
	answers()
	w.seen(w.near.inLab(), outside, 8080, "north "+north.at(ofGateway))

	w.label("host2", true)
	w.apply("shop", egressIP, "chosen")
	w.heldBy("shop", egressIP, "host2")
	w.leaves(w.near, egressIP)
	w.seen(w.unchosen.inLab(), outside, 8080, "north "+north.at(ofGateway))
	w.seen(north.name, north.at(ofGateway), ports["cluster"], "near "+link)
	await(t, "the Local endpoint is left out", func() error {
		problems := fmt.Sprint(w.bridge.Bridge().Status().Problems)
		if !strings.Contains(problems, "does not lead to endpoints such as "+w.near.address.String()+", which answer by egressip shop") {
			return errors.New(problems)
		}
		return nil
	})
	(&exposeWorld{world: w.world}).silentTCP(north.name, north.at(ofGateway), ports["local"])

	_, err := w.plane.Kubectl(t.Context(), "delete", "egressip", "shop")
	require.NoError(t, err)
	answers()
}

// TestSCTP: INIT chunks of a client outside arrive at endpoints, translated, by a node and by a gateway, by IPv4 and IPv6. The
// userspace datapath of Open vSwitch 3.1 translates no ports of SCTP, so endpoints of the gateway listen on the node port.
func TestSCTP(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t)
	north := network{"north", "10.33.75"}
	n := gatewayNIC{north, "host1", "eth1", false}
	w.connectNIC(n)
	w.mustGateway("changed", "host1", append(n.init6(n.at6(ofNextHop)), "--services")...)
	pods := map[string]sctp.Listener{}
	for host, p := range w.pods {
		require.NoError(t, w.lab.In(p.inLab(), func() (err error) {
			pods[host], err = sctp.Listen()
			return err
		}))
		t.Cleanup(func() { _ = pods[host].Close() })
	}
	sides := w.gatewaySides("host1", north)
	for i, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		name, byNode, byGateway := strings.ToLower(string(policy)), uint16(30080+i), uint16(30090+i)
		w.exposeSCTP(name+"-node", policy, byNode, 8080)
		w.exposeSCTP(name+"-gateway", policy, byGateway, byGateway)
		for _, s := range sides {
			source := s.link
			if policy == corev1.ServiceExternalTrafficPolicyLocal {
				source = s.client
			}
			w.arrives(pods, north.name, netip.AddrPortFrom(netip.MustParseAddr(s.gateway), byGateway), source, byGateway)
			// By the node it is the edge address with both policies: the pod answers by the gateway.
			w.arrives(pods, "central", netip.AddrPortFrom(netip.MustParseAddr(s.address("host1")), byNode), s.edges["host1"], 8080)
		}
	}
}

// exposeSCTP creates a service of SCTP with a node port, whose endpoints are a port of both pods.
func (w *exposeWorld) exposeSCTP(name string, policy corev1.ServiceExternalTrafficPolicy, nodePort, target uint16) {
	w.t.Helper()
	_, err := w.api.CoreV1().Services("default").Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 80, NodePort: int32(nodePort)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	for family, address := range map[discoveryv1.AddressType]func(string) string{
		discoveryv1.AddressTypeIPv4: func(host string) string { return w.pods[host].address.String() },
		discoveryv1.AddressTypeIPv6: func(host string) string { return w.six[w.pods[host]] },
	} {
		_, err := w.api.DiscoveryV1().EndpointSlices("default").Create(w.t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: family,
			Ports:       []discoveryv1.EndpointPort{{Name: new("sctp"), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(target))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address("host1")}}, {Addresses: []string{address("host2")}}},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// arrives sends INIT chunks until one has arrived at a port of a pod with a certain source.
func (w *exposeWorld) arrives(pods map[string]sctp.Listener, from string, to netip.AddrPort, source string, port uint16) {
	w.t.Helper()
	next := uint16(20000)
	await(w.t, fmt.Sprintf("an INIT of %s to %s comes from %s", from, to, source), func() error {
		next++
		if err := w.lab.In(from, func() error { return sctp.Send(next, to) }); err != nil {
			return err
		}
		for host, l := range pods {
			received, err := l.Received()
			if err != nil {
				return err
			}
			for _, p := range received {
				if p.To == port && p.Sound && p.From.Addr().String() == source {
					return nil
				}
				err = errors.Join(err, fmt.Errorf("pod-%s: %+v", host, p))
			}
			if err != nil {
				return err
			}
		}
		return errors.New("none has arrived")
	})
}

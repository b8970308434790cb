package agent_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isolate makes the pods of the namespace default isolated in a direction, except for blocks.
func (w *exposeWorld) isolate(direction networkingv1.PolicyType, blocks ...string) {
	w.t.Helper()
	var peers []networkingv1.NetworkPolicyPeer
	for _, block := range blocks {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: block}})
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "isolate"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{direction}}}
	switch {
	case len(peers) == 0:
	case direction == networkingv1.PolicyTypeIngress:
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}}
	default:
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
	}
	api := w.api.NetworkingV1().NetworkPolicies("default")
	_, err := api.Update(w.t.Context(), policy, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(w.t.Context(), policy, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// TestNodePortsAndPolicies: nobody reaches a pod that a policy isolates by a node port, whichever node is asked,
// except the programs of the pod's own node. A pod whose egress is isolated does not leave by a node port of
// its own node, by IPv6 neither. An ipBlock with the addresses allows both. A forged source opens nothing.
func TestNodePortsAndPolicies(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t)
	for _, host := range []string{"host1", "host2"} {
		w.putNode(host, "a", w.address(host), w.address6(host))
	}
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1")
	beyond := w.expose("beyond", corev1.ServiceExternalTrafficPolicyCluster, "host2")
	near, far, edge := w.address("host1"), w.address("host2"), w.edge("host1")
	others := []string{"host2", w.pods["host2"].inLab()}
	sources := []string{far, edge} // at the local port
	open := func() {
		t.Helper()
		w.answered("central", near, cluster, "pod-host1 "+edge)
		w.answered("central", near, local, "pod-host1 "+outsider)
		for i, from := range others {
			w.answered(from, near, cluster, "pod-host1 "+edge)
			w.answered(from, near, local, "pod-host1 "+sources[i])
		}
		w.answered("central", far, cluster, "pod-host1 "+w.edge("host2"))
	}
	open()
	w.step("ingress is isolated", func() {
		w.isolate(networkingv1.PolicyTypeIngress)
		for _, from := range append(others, "central") {
			w.allSilent(question{from, near, cluster}, question{from, near, local}, question{from, far, cluster})
		}
		_, as := w.management("host1")
		w.answered("host1", near, cluster, "pod-host1 "+as.String())
	})
	w.step("a route to cluster addresses through the node opens nothing", func() {
		service, err := w.api.CoreV1().Services("default").Get(t.Context(), "cluster", metav1.GetOptions{})
		require.NoError(w.t, err)
		w.ip("central", "route", "replace", "10.96.0.0/12", "via", near)
		w.silent("central", service.Spec.ClusterIP, nodePorts{80, 80})
		w.isolate(networkingv1.PolicyTypeIngress, edge+"/32")
		w.answered("central", service.Spec.ClusterIP, nodePorts{80, 80}, "pod-host1 "+edge)
	})
	w.step("an ipBlock sees the address of the node that was asked", func() {
		w.answered("central", near, cluster, "pod-host1 "+edge)
		w.answered(others[1], near, local, "pod-host1 "+edge)
		w.allSilent(question{"host2", near, local}, question{"central", near, local}, question{"central", far, cluster})
	})
	w.step("an ipBlock sees the address of a node that is the client of a local port", func() {
		w.isolate(networkingv1.PolicyTypeIngress, far+"/32")
		w.answered("host2", near, local, "pod-host1 "+far)
		w.silent("host2", near, cluster)
	})
	w.step("an ipBlock with everything allows it", func() {
		w.isolate(networkingv1.PolicyTypeIngress, "0.0.0.0/0")
		open()
	})
	w.who("host1", "host1")
	for _, s := range w.sides() {
		w.step("egress is isolated: "+s.name, func() { w.testIsolatedEgress(s, beyond) })
	}
	w.step("forged sources", func() { w.forgedAtPorts(cluster, local) })
}

// testIsolatedEgress isolates the egress of the pod on host1, which asks the service "beyond".
func (w *exposeWorld) testIsolatedEgress(s side, beyond nodePorts) {
	inside, near, far := w.pods["host1"].inLab(), s.address("host1"), s.address("host2")
	w.isolate(networkingv1.PolicyTypeEgress, "0.0.0.0/0", "::/0")
	w.answered(inside, near, beyond, "pod-host2 "+s.edges["host1"])
	w.isolate(networkingv1.PolicyTypeEgress)
	w.allSilent(question{inside, near, beyond}, question{inside, far, beyond})
	w.seen(inside, near, 8080, "host1 "+s.pod("host1"))
	_, err := w.lab.Exec(w.t.Context(), inside, "ping", "-n", "-c", "1", "-W", "5", near)
	require.NoError(w.t, err)
	w.isolate(networkingv1.PolicyTypeEgress, "0.0.0.0/0", "::/0")
	w.answered(inside, near, beyond, "pod-host2 "+s.edges["host1"])
}

// forgedAtPorts sends packets to node ports from elsewhere, with an address of the node, or of a pod, as source. By IPv4 Linux drops
// those with addresses of the node.
func (w *exposeWorld) forgedAtPorts(ports ...nodePorts) {
	const second, second6 = "172.31.99.212", "fd00:31:99::1012" // of host1
	w.ip("host1", "addr", "add", second+"/24", "dev", "br-phy")
	w.ip("host1", "addr", "add", second6+"/64", "dev", "br-phy", "nodad")
	w.ip("central", "neigh", "replace", second6, "lladdr", w.mac("host1", "br-phy"), "dev", "underlay")
	for _, filter := range []string{"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.br-phy.rp_filter=0"} {
		_, err := w.lab.Exec(w.t.Context(), "host1", "sysctl", "-q", "-w", filter)
		require.NoError(w.t, err)
	}
	far := w.pods["host2"]
	for _, at := range ports {
		w.answered("central", second6, at, "pod-host1 "+router6, "pod-host1 "+w.sides()[1].edges["host1"])
		w.forgedAt(at, "ip", second, far.address.String())
		w.forgedAt(at, "ip6", second6, w.address6("host1"), "fd00:96::2", w.six[far])
	}
}

// forgedAt sends packets of a family to a node port of host1 from elsewhere: the node drops those with these sources.
func (w *exposeWorld) forgedAt(at nodePorts, family, to string, sources ...string) {
	var atOnce []string // usable as a source
	if family == "ip6" {
		atOnce = []string{"nodad"}
	}
	for _, from := range sources {
		w.ip("central", append([]string{"addr", "add", from, "dev", "lo"}, atOnce...)...)
		w.ip("central", "route", "replace", to, "dev", "underlay", "src", from)
		w.dropsForged("host1", family, from, func() {
			_, err := w.askUDP(silence, "central", to, at.udp)
			require.ErrorIs(w.t, err, os.ErrDeadlineExceeded)
		})
		w.ip("central", "route", "del", to)
		w.ip("central", "addr", "del", from, "dev", "lo")
	}
}

// TestNodePortAsEndpoint: a service whose endpoint is its own node port leads to the node, and not to the
// service again.
func TestNodePortAsEndpoint(t *testing.T) {
	t.Parallel()
	w := newExposeWorld(t)
	at := w.expose("circle", corev1.ServiceExternalTrafficPolicyCluster, "host1")
	w.answered("central", w.address("host1"), at, "pod-host1 "+w.edge("host1"))
	api := w.api.DiscoveryV1().EndpointSlices("default")
	slice, err := api.Get(t.Context(), "circle", metav1.GetOptions{})
	require.NoError(t, err)
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(at.tcp))}, {Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(at.udp))},
	}
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{w.address("host1")}}}
	_, err = api.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	for _, asked := range []string{"host1", "host2"} {
		for _, from := range []string{"central", "host1", w.pods["host2"].inLab()} {
			await(t, fmt.Sprintf("%s asks %s", from, asked), func() error {
				conn, err := w.lab.Dial(within(t, patient), from, "tcp", net.JoinHostPort(w.address(asked), strconv.Itoa(at.tcp)))
				if err == nil {
					_ = conn.Close()
					return errors.New("it answers")
				}
				if !strings.Contains(err.Error(), "refused") {
					return err
				}
				return nil
			})
		}
	}
}

package agent_test

import (
	"errors"
	"fmt"
	"net"
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
// its own node. An ipBlock with the addresses allows both.
func TestNodePortsAndPolicies(t *testing.T) {
	w := newExposeWorld(t)
	cluster := w.expose("cluster", corev1.ServiceExternalTrafficPolicyCluster, "host1")
	local := w.expose("local", corev1.ServiceExternalTrafficPolicyLocal, "host1")
	beyond := w.expose("beyond", corev1.ServiceExternalTrafficPolicyCluster, "host2")
	near, far, edge := w.address("host1"), w.address("host2"), w.edge("host1")
	inside := w.pods["host1"].inLab()
	others := []string{"host2", w.pods["host2"].inLab()}
	open := func() {
		t.Helper()
		w.answered("central", near, cluster, "pod-host1 "+edge)
		w.answered("central", near, local, "pod-host1 "+outsider)
		for _, from := range others {
			w.answered(from, near, cluster, "pod-host1 "+edge)
			w.answered(from, near, local, "pod-host1 "+edge)
		}
		w.answered("central", far, cluster, "pod-host1 "+w.edge("host2"))
	}
	open()
	w.step("ingress is isolated", func() {
		w.isolate(networkingv1.PolicyTypeIngress)
		for _, from := range append(others, "central") {
			w.silent(from, near, cluster)
			w.silent(from, near, local)
			w.silent(from, far, cluster)
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
		w.answered("host2", near, local, "pod-host1 "+edge)
		w.silent("central", near, local)
		w.silent("central", far, cluster)
	})
	w.step("an ipBlock with everything allows it", func() {
		w.isolate(networkingv1.PolicyTypeIngress, "0.0.0.0/0")
		open()
	})
	w.step("egress is isolated", func() {
		w.who("host1", "host1")
		w.answered(inside, near, beyond, "pod-host2 "+edge)
		w.isolate(networkingv1.PolicyTypeEgress)
		w.silent(inside, near, beyond)
		w.silent(inside, far, beyond)
		w.seen(inside, near, 8080, "host1 "+w.pods["host1"].address.String())
		_, err := w.lab.Exec(t.Context(), inside, "ping", "-n", "-c", "1", "-W", "5", near)
		require.NoError(w.t, err)
		w.isolate(networkingv1.PolicyTypeEgress, "0.0.0.0/0")
		w.answered(inside, near, beyond, "pod-host2 "+edge)
	})
}

// TestNodePortAsEndpoint: a service whose endpoint is its own node port leads to the node, and not to the
// service again.
func TestNodePortAsEndpoint(t *testing.T) {
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

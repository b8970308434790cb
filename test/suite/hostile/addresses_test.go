package hostile_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// report creates a pod on a node, and reports addresses in its status, as its kubelet could, before
// the bridge has chosen an address for it.
func (w *tenants) report(namespace, name, node, address string) {
	w.t.Helper()
	grace := int64(0)
	_, err := w.ControlPlane.Client().CoreV1().Pods(namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "pause"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	require.NoError(w.t, w.SetPodStatus(w.t.Context(), namespace, name, kubetest.PodStatus{
		Phase: corev1.PodRunning, Ready: true, Addresses: []netip.Addr{netip.MustParseAddr(address)},
	}))
}

// problem waits for the problem of an object.
func (w *tenants) problem(kind, name string, reason coe.Reason, says string) {
	w.t.Helper()
	bridgetest.Await(w.t, interval, converge, "a problem of "+kind+" "+name, func() error {
		problems := w.Status().Problems
		for _, p := range problems {
			if p.Kind == kind && p.Name == name && p.Reason == string(reason) && strings.Contains(p.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("want %s: %q; have %+v", reason, says, problems)
	})
}

// ports returns the addresses and the chassis of each port of a pod.
func (w *tenants) ports() map[string]string {
	w.t.Helper()
	out, err := w.lab.NBCtl(w.t.Context(), "--format=json", "--columns=name,addresses,options", "find", "Logical_Switch_Port", `type=""`)
	require.NoError(w.t, err)
	all := map[string]string{}
	for _, row := range table(w.t, out) {
		all[row["name"].(string)] = fmt.Sprint(row["addresses"], row["options"])
	}
	return all
}

// A captured kubelet reports addresses in the status of its pod that belong to nodes, to the node
// network, to links between routers, to services, to another pod or to the Internet. The pod gets
// none of them, with or without an address of its own.
func TestAddressesOfOthersInAPodsStatus(t *testing.T) {
	w := newTenants(t)
	for name, c := range map[string]struct {
		address string
		reason  coe.Reason
		says    string
	}{
		"node":        {kubetest.NodeAddress(1).String(), coe.AddressInvalid, "is the address of node node-1"},
		"own-node":    {kubetest.NodeAddress(0).String(), coe.AddressInvalid, "is the address of the pod's node"},
		"gateway":     {"100.96.0.1", coe.AddressInvalid, "the range of the node network"},
		"management":  {"100.96.0.4", coe.AddressInvalid, "the range of the node network"},
		"transit":     {"100.64.0.2", coe.AddressInvalid, "the range of the network's own links"},
		"api-server":  {"10.96.0.1", coe.AddressInvalid, "the range of cluster addresses"},
		"future-ip":   {"10.96.99.99", coe.AddressInvalid, "the range of cluster addresses"},
		"pod":         {w.victim, coe.AddressTaken, "is the address of pod ns-0/pod-0"},
		"internet":    {"8.8.8.8", coe.AddressInvalid, "--pod-network"},
		"credentials": {"169.254.169.254", coe.AddressInvalid, "169.254.169.254"},
	} {
		w.report("ns-1", name, "node-0", c.address)
		w.problem("pod", name, c.reason, c.says)
	}
	for port, has := range w.ports() {
		require.True(t, port == "ns-0:pod-0" || port == "ns-1:pod-1" || strings.HasPrefix(port, "node:"), "port %s: %s", port, has)
	}
	require.Contains(t, w.ports()["ns-0:pod-0"], w.victim)
}

// A client with the role writer can request an address outside every pool for a pod. It cannot
// request an address of another part of the network.
func TestAddressesThatAWriterRequests(t *testing.T) {
	w := newTenants(t)
	post := func(n int, address string) {
		status, answer := w.Do(http.MethodPost, "/restconf/config/pod:coe", fmt.Sprintf(`{"pods":[{
			"uid":"00000000-0000-4000-8000-00000000000%d","name":"posted-%d","network-NS":"ns-1","host-ip-address":%q,
			"interface":[{"uid":"00000000-0000-4000-8000-00000000000%d","ip-address":%q}]}]}`, n, n, kubetest.NodeAddress(0), n, address))
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	post(1, kubetest.NodeAddress(1).String())
	w.problem("pod", "posted-1", coe.AddressInvalid, "is the address of node node-1")
	post(2, "100.96.0.4")
	w.problem("pod", "posted-2", coe.AddressInvalid, "the range of the node network")
	post(3, "203.0.113.7")
	require.Equal(t, "203.0.113.7", w.address("ns-1:posted-3"))
}

// A pool is refused if it contains addresses with another use. A node that reports an address of an
// existing pool does not disable the pool.
func TestPoolsOfOthersAddresses(t *testing.T) {
	w := newTenants(t)
	put := func(subnet string) (int, string) {
		return w.Do(http.MethodPut, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/shop",
			`{"network":[{"network-id":"shop","allocation-pool":[{"subnet":"`+subnet+`"}]}]}`)
	}
	for subnet, says := range map[string]string{
		"10.200.0.0/16": "the address of node node-", "100.96.0.0/24": "the node network",
		"100.64.0.0/16": "the network's own links", "10.96.7.0/24": "cluster addresses",
	} {
		status, answer := put(subnet)
		require.Equal(t, http.StatusBadRequest, status, answer)
		require.Contains(t, answer, says)
	}
	w.claim("captured", "10.32.0.250")
	w.problem("node", "captured", coe.AddressInvalid, "is in pool")
	_, err := w.MakePods(t.Context(), kubetest.PodLoad{Count: 3, Nodes: 2, Prefix: "later-"})
	require.NoError(t, err)
	for n := range 3 {
		require.NotEqual(t, "10.32.0.250", w.address(fmt.Sprintf("ns-0:later-%d", n)))
	}
}

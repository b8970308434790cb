package hostile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// claim reports an address for a node, as its kubelet does. It creates the node if it does not exist.
func (w *tenants) claim(node, address string) {
	w.t.Helper()
	require.NoError(w.t, w.Apply(w.t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: "+node+"}}"))
	_, err := w.ControlPlane.Client().CoreV1().Nodes().Patch(w.t.Context(), node, "application/merge-patch+json",
		[]byte(`{"status":{"addresses":[{"type":"InternalIP","address":"`+address+`"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(w.t, err)
}

// A captured kubelet reports the address of another node. The other node keeps its address and its
// chassis, also after a restart. The pods of the captured node get no network with the other node's
// address. When the other node is deleted, the address is free.
func TestTheFirstNodeKeepsItsAddress(t *testing.T) {
	w := newTenants(t)
	victim := kubetest.NodeAddress(0).String()
	before := w.ports()
	require.Contains(t, before["ns-0:pod-0"], "node-0", "its chassis")

	// The API server chooses the UIDs. At least one of several captured nodes has a lower UID than
	// the victim.
	for n := range 8 {
		w.claim(fmt.Sprint("captured-", n), victim)
	}
	for n := range 8 {
		w.problem("node", fmt.Sprint("captured-", n), coe.AddressTaken, "its address "+victim+" is the address of node node-0, which had it first")
	}
	w.report("ns-1", "thief", "captured-0", "10.32.0.200")
	w.problem("pod", "thief", coe.NoNode, "reports the address "+victim+" of node node-0")
	w.AwaitSync(converge)
	require.Equal(t, before, w.ports())

	w.Stop()
	w.Restart()
	w.problem("node", "captured-0", coe.AddressTaken, "which had it first")
	w.AwaitSync(converge)
	require.Equal(t, before, w.ports())

	// A captured kubelet reports no address for its node, and a false host address for its pods.
	require.NoError(t, w.Apply(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: silent}}"))
	w.report("ns-1", "false-host", "silent", "10.32.0.201")
	_, err := w.ControlPlane.Client().CoreV1().Pods("ns-1").Patch(t.Context(), "false-host", "application/merge-patch+json",
		[]byte(`{"status":{"hostIP":"`+victim+`","hostIPs":[{"ip":"`+victim+`"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.problem("pod", "false-host", coe.NoNode, "of node node-0")
	require.Equal(t, before, w.ports())

	require.NoError(t, w.ControlPlane.Client().CoreV1().Nodes().Delete(t.Context(), "node-0", metav1.DeleteOptions{}))
	bridgetest.Await(t, interval, converge, "another captured node has the address", func() error {
		held := 0
		for _, p := range w.Status().Problems {
			if p.Kind == "node" && strings.Contains(p.Message, "is the address of node captured-") {
				held++
			}
		}
		if held != 7 {
			return fmt.Errorf("%d of the 8 nodes are refused", held)
		}
		return nil
	})
}

// A node that reports the address of a pod, or an address of the node network, does not get it.
func TestNodesWithAddressesOfOthers(t *testing.T) {
	w := newTenants(t)
	before := w.ports()
	w.claim("captured", w.victim)
	w.problem("node", "captured", coe.AddressInvalid, "is the address of pod ns-0/pod-0")
	w.claim("captured", "100.96.0.2")
	w.problem("node", "captured", coe.AddressInvalid, "the range of the node network")
	w.claim("captured", "10.96.0.1")
	w.problem("node", "captured", coe.AddressInvalid, "the range of cluster addresses")
	w.AwaitSync(converge)
	after := w.ports()
	for port, had := range before {
		require.Equal(t, had, after[port], port)
	}
}

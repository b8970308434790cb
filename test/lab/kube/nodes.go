package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns the name of node i of MakeNodes.
func Node(i int) string { return "node-" + strconv.Itoa(i) }

// Namespace returns the name of namespace i of MakeNamespaces.
func Namespace(i int) string { return "ns-" + strconv.Itoa(i) }

// NodeAddress returns the internal address of node i of MakeNodes, in 10.200.0.0/16.
func NodeAddress(i int) netip.Addr { return addressAt(10<<24|200<<16, i) }

// addressAt returns the i-th address after base.
func addressAt(base uint32, i int) netip.Addr {
	a := base + uint32(i) + 1
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// MakeNodes creates n nodes that are ready and have capacity.
func (c *ControlPlane) MakeNodes(ctx context.Context, n int) (Timings, error) {
	return Each(ctx, n, Workers, func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make node %s: %w", Node(i), err)
		}
		return nil
	})
}

func newNode(i int) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("10000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   Node(i),
			Labels: map[string]string{corev1.LabelHostname: Node(i), corev1.LabelOSStable: "linux"},
		},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: NodeAddress(i).String()},
				{Type: corev1.NodeHostName, Address: Node(i)},
			},
		},
	}
}

// MakeNamespaces creates n namespaces.
func (c *ControlPlane) MakeNamespaces(ctx context.Context, n int) (Timings, error) {
	return Each(ctx, n, Workers, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace(i)}}
		_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make namespace %s: %w", Namespace(i), err)
		}
		return nil
	})
}

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

// Node is the name of a node of MakeNodes.
func Node(i int) string { return "node-" + strconv.Itoa(i) }

// Namespace is the name of a namespace of MakeNamespaces.
func Namespace(i int) string { return "ns-" + strconv.Itoa(i) }

// NodeAddress is the internal address of a node of MakeNodes, of 10.200.0.0/16.
func NodeAddress(i int) netip.Addr { return addressAt(10<<24|200<<16, i) }

// addressAt is the i-th address after base, none of which is base itself.
func addressAt(base uint32, i int) netip.Addr {
	a := base + uint32(i) + 1
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// MakeNodes makes n nodes that are ready and have room.
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

// MakeNamespaces makes n namespaces.
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

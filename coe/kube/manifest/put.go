package manifest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Put puts the objects into a Store, like package kube does.
func (m *Set) Put(tx *state.Tx) {
	for _, n := range m.Namespaces {
		tx.PutNamespace(coe.Kubernetes, kube.Namespace(n))
	}
	for _, n := range m.Nodes {
		tx.PutNode(coe.Kubernetes, kube.Node(n, ""))
	}
	nodes := m.nodeAddresses()
	for _, p := range m.Pods {
		tx.PutPod(coe.Kubernetes, onNode(p, nodes))
	}
	for _, s := range m.Services {
		if service := kube.Service(s); service != nil {
			tx.PutService(coe.Kubernetes, service)
		}
	}
	for _, s := range m.Slices {
		if endpoints := kube.Endpoints(s); endpoints != nil {
			tx.PutEndpoints(coe.Kubernetes, endpoints)
		}
	}
	for _, p := range m.Policies {
		tx.PutPolicy(coe.Kubernetes, kube.Policy(p))
	}
	for _, p := range m.AccessLists {
		tx.PutPolicy(coe.Kubernetes, p)
	}
}

// nodeAddresses returns the nodes' addresses by name.
func (m *Set) nodeAddresses() map[string]netip.Addr {
	addresses := make(map[string]netip.Addr, len(m.Nodes))
	for _, n := range m.Nodes {
		addresses[n.Name] = kube.Node(n, "").Address()
	}
	return addresses
}

// onNode converts a pod, with the address of its node.
func onNode(p *corev1.Pod, nodes map[string]netip.Addr) *coe.Pod {
	pod := kube.Pod(p)
	pod.HostIP = kube.HostIP(nodes, pod.NodeName, pod.HostIP)
	return pod
}

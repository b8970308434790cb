package manifest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// World returns the World of the network policies in the manifests.
//
// Every namespace has the label kubernetes.io/metadata.name, which an API server sets. A
// namespace without a Namespace object has only that label. A node has the addresses of its
// Node object, and the addresses that its pods report.
func (m *Set) World() (policy.World, error) {
	var w policy.World
	namespaces := map[string]*metav1.ObjectMeta{}
	for _, p := range m.Pods {
		namespaces[p.Namespace] = &metav1.ObjectMeta{Name: p.Namespace}
		w.Pods = append(w.Pods, policyPod(p))
	}
	for _, n := range m.Namespaces {
		namespaces[n.Name] = &n.ObjectMeta
	}
	for name, n := range namespaces {
		labels := maps.Clone(n.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelMetadataName] = name
		w.Namespaces = append(w.Namespaces, policy.Namespace{
			Name: name, Labels: kube.Labels(&metav1.ObjectMeta{Labels: labels, Annotations: n.Annotations}),
		})
	}
	w.Nodes = m.policyNodes()
	for _, p := range m.Policies {
		if _, err := kube.PolicySpec(p); err != nil {
			return policy.World{}, err
		}
		w.Policies = append(w.Policies, kube.Policy(p)) // a policy above a limit allows nothing
	}
	w.Policies = append(w.Policies, m.AccessLists...)
	return w, nil
}

func policyPod(p *corev1.Pod) policy.Pod {
	pod := policy.Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Labels: kube.Labels(&p.ObjectMeta),
		HostNetwork: p.Spec.HostNetwork, Finished: kube.Finished(p),
	}
	for c := range kube.LastingContainers(p) {
		for _, port := range c.Ports {
			pod.Ports = append(pod.Ports, coe.ContainerPort{
				Name: port.Name, Protocol: protocolName(port.Protocol), Port: uint16(port.ContainerPort),
			})
		}
	}
	pod.Addresses = addAddress(pod.Addresses, p.Status.PodIP)
	for _, ip := range p.Status.PodIPs {
		pod.Addresses = addAddress(pod.Addresses, ip.IP)
	}
	return pod
}

// protocolName returns the protocol of a checked port; if there is none, it is TCP.
func protocolName(p corev1.Protocol) string {
	if p == "" {
		p = corev1.ProtocolTCP
	}
	return strings.ToLower(string(p))
}

// policyNodes returns the nodes that Node objects or pods name, with their addresses.
func (m *Set) policyNodes() []policy.Node {
	addresses := map[string][]netip.Addr{}
	for _, n := range m.Nodes {
		addresses[n.Name] = nil
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				addresses[n.Name] = addAddress(addresses[n.Name], a.Address)
			}
		}
	}
	for _, p := range m.Pods {
		name := p.Spec.NodeName
		if name == "" {
			continue
		}
		addresses[name] = addAddress(addresses[name], p.Status.HostIP)
		for _, ip := range p.Status.HostIPs {
			addresses[name] = addAddress(addresses[name], ip.IP)
		}
	}
	var nodes []policy.Node
	for name, of := range addresses {
		nodes = append(nodes, policy.Node{Name: name, Addresses: of})
	}
	return nodes
}

// addAddress adds a checked address, unless it is empty or already there.
func addAddress(all []netip.Addr, text string) []netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil || slices.Contains(all, addr.WithZone("").Unmap()) {
		return all
	}
	return append(all, addr.WithZone("").Unmap())
}

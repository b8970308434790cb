package kube

import (
	"encoding/json"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// The conversions keep strings of the objects. Both decoders of client-go, protobuf and JSON,
// copy each string, so a kept string does not keep the response in memory.

// Pod converts a pod, except the time of its report. HostIP is the address in the pod's status;
// the address of the Node object overrides it (see HostIP).
//
// The addresses in the pod's status become requested addresses. They come from another
// network plugin, or from a lease that was lost with the datastore. They cannot conflict with
// an existing lease: a lease is kept while the pod is on its node, and the kubelet reports the
// addresses of the lease. If a pod has interfaces in several networks, its addresses may
// belong to another network, and none are requested.
func Pod(in *corev1.Pod) *coe.Pod {
	out := &coe.Pod{
		UID:       uid(in.UID),
		Name:      in.Name,
		Namespace: namespace(in.Namespace),
		NodeName:  in.Spec.NodeName,
		HostIP:    address(in.Status.HostIP),
		NoNetwork: in.Spec.HostNetwork || Finished(in),
		Reported:  coe.Reported{Revision: in.ResourceVersion},
	}
	if out.NoNetwork {
		return out
	}
	out.Ignored, out.HostPorts = ignoredOfPod(in), hostPorts(in)
	out.Labels, out.Ports = Labels(&in.ObjectMeta), namedPorts(in)
	out.DHCP = in.Annotations[coe.DHCPAnnotation] == "true"
	if hasSeveralNetworks(in) {
		return out
	}
	if addresses := podAddresses(in); len(addresses) > 0 {
		out.Interfaces = []coe.PodInterface{{UID: out.UID, Addresses: addresses}}
	}
	return out
}

// HostIP returns the address of a pod's node: the address of its Node object, otherwise the
// address in the pod's status, otherwise zero. The result does not depend on the order in
// which objects arrive.
func HostIP(nodes map[string]netip.Addr, name string, status netip.Addr) netip.Addr {
	if addr := nodes[name]; addr.IsValid() {
		return addr
	}
	return status
}

// Finished reports whether none of the pod's containers will run again. A pod that is being
// deleted is not finished: it may still need its network.
func Finished(in *corev1.Pod) bool {
	return in.Status.Phase == corev1.PodSucceeded || in.Status.Phase == corev1.PodFailed
}

// networkStatus is the annotation in which Multus and others list the networks of a pod, before
// the kubelet reports the addresses of one of them: "Kubernetes Network Custom Resource
// Definition De-facto Standard", section 5.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

func hasSeveralNetworks(in *corev1.Pod) bool {
	text, found := in.Annotations[networkStatus]
	if !found {
		return false
	}
	var networks []json.RawMessage
	return json.Unmarshal([]byte(text), &networks) == nil && len(networks) > 1
}

// podAddresses returns the addresses in the pod's status, the first of each family.
func podAddresses(in *corev1.Pod) []netip.Addr {
	texts := []string{in.Status.PodIP}
	if len(in.Status.PodIPs) > 0 {
		texts = texts[:0]
		for _, ip := range in.Status.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	return onePerFamily(texts)
}

// Node converts a node. If it has several addresses of one type, the first counts: the kubelet
// also reports the first in the status of pods. The first internal address of the other family counts too. A node with egressLabel may hold egress addresses.
func Node(in *corev1.Node, egressLabel string) *coe.Node {
	out := &coe.Node{
		UID:        uid(in.UID),
		HostName:   in.Name,
		InternalIP: nodeAddress(in, corev1.NodeInternalIP),
		ExternalIP: nodeAddress(in, corev1.NodeExternalIP),
		Zone:       in.Labels[corev1.LabelTopologyZone],
		Cordoned:   in.Spec.Unschedulable,
	}
	for _, a := range in.Status.Addresses {
		if addr := address(a.Address); a.Type == corev1.NodeInternalIP && addr.IsValid() && addr.Is4() != out.InternalIP.Is4() {
			out.SecondIP = addr
			break
		}
	}
	_, out.Egress = in.Labels[egressLabel]
	cidrs := in.Spec.PodCIDRs
	if len(cidrs) == 0 {
		cidrs = []string{in.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		cidr, err := netip.ParsePrefix(text)
		if err == nil && !out.PodCIDR(cidr.Addr()).IsValid() {
			out.PodCIDRs = append(out.PodCIDRs, cidr.Masked())
		}
	}
	return out
}

func nodeAddress(in *corev1.Node, kind corev1.NodeAddressType) netip.Addr {
	for _, a := range in.Status.Addresses {
		if addr := address(a.Address); a.Type == kind && addr.IsValid() {
			return addr
		}
	}
	return netip.Addr{}
}

// Namespace converts a namespace.
func Namespace(in *corev1.Namespace) *coe.Namespace {
	return &coe.Namespace{
		UID:         uid(in.UID),
		Name:        in.Name,
		Terminating: in.DeletionTimestamp != nil || in.Status.Phase == corev1.NamespaceTerminating,
		Labels:      Labels(&in.ObjectMeta),
		PolicyLog:   policyLog(in),
		Ignored:     ignoredOfNamespace(in),
	}
}

// policyLog returns what the annotation of a namespace says; empty if it is not understood.
func policyLog(in *corev1.Namespace) coe.PolicyLog {
	switch log := coe.PolicyLog(in.Annotations[coe.PolicyLogAnnotation]); log {
	case coe.LogDropped, coe.LogAll:
		return log
	}
	return ""
}

// Labels returns the labels of a pod or a namespace, with the security profiles that it names: by
// an annotation, separated by commas, or one by a label.
func Labels(in *metav1.ObjectMeta) coe.Labels {
	labels := coe.NewLabels(in.Labels)
	if names := in.Labels[coe.ProfilesAnnotation] + "," + in.Annotations[coe.ProfilesAnnotation]; names != "," {
		labels = labels.WithProfiles(strings.Split(names, ",")...)
	}
	return labels
}

// namedPorts returns the named ports of the containers that run as long as the pod. Ports above a limit
// are left out, so no policy allows them by their name.
func namedPorts(in *corev1.Pod) coe.ContainerPorts {
	var ports []coe.ContainerPort
	for c := range LastingContainers(in) {
		for _, p := range c.Ports {
			if p.Name != "" && len(ports) < coe.MaxNamedPorts {
				ports = append(ports, coe.ContainerPort{Name: p.Name, Protocol: protocol(p.Protocol), Port: uint16(p.ContainerPort)})
			}
		}
	}
	return coe.NewContainerPorts(ports...)
}

// LastingContainers returns the containers whose ports have names in services and policies: all
// but the init containers that end, as Kubernetes defines it for EndpointSlices.
func LastingContainers(in *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range in.Spec.Containers {
			if !yield(&in.Spec.Containers[i]) {
				return
			}
		}
		for i := range in.Spec.InitContainers {
			c := &in.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
	}
}

// uid returns an object's UID in lower case, as coe requires.
func uid[T ~string](in T) string { return strings.ToLower(string(in)) }

func namespace(name string) string {
	if name == "" {
		return coe.DefaultNamespace
	}
	return name
}

// address parses an address that the API server has validated; zero if there is none. An IPv6
// zone is dropped, because pod addresses are not link-local.
func address(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.WithZone("").Unmap()
}

// onePerFamily parses addresses, and returns the first of each family.
func onePerFamily(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		addr := address(text)
		sameFamily := func(a netip.Addr) bool { return a.Is4() == addr.Is4() }
		if addr.IsValid() && !slices.ContainsFunc(out, sameFamily) {
			out = append(out, addr)
		}
	}
	return slices.Clip(out)
}

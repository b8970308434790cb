package kube

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// The conversions keep strings of the object as they are. Both of client-go's
// decoders, protobuf and JSON, copy each string out of the response, so a kept
// name keeps nothing else alive.

// Pod is what a pod object says, but for the time at which it said so. Its HostIP
// is the one of the pod's status; where the Node object is known its address is
// believed instead (HostIP).
//
// A pod that has addresses in its status is said to have them: they come from
// elsewhere, or from a lease of ours that was lost with the datastore. They can't
// quarrel with a lease that is there. A lease is kept while the pod is on its
// node, and the kubelet reports what the CNI plugin handed out, which is the
// lease. Where the pod has interfaces of several networks, those in its status may be
// another network's, and nothing is said.
func Pod(in *corev1.Pod) *coe.Pod {
	out := &coe.Pod{
		UID:       uid(in.UID),
		Name:      in.Name,
		Namespace: namespace(in.Namespace),
		NodeName:  in.Spec.NodeName,
		HostIP:    address(in.Status.HostIP),
		NoNetwork: in.Spec.HostNetwork || Finished(in),
		Said:      coe.Said{Revision: in.ResourceVersion},
	}
	if out.NoNetwork {
		return out
	}
	out.Ignored = ignoredOfPod(in)
	if hasSeveralNetworks(in) {
		return out
	}
	if addresses := podAddresses(in); len(addresses) > 0 {
		out.Interfaces = []coe.PodInterface{{UID: out.UID, Addresses: addresses}}
	}
	return out
}

// HostIP is the address of a pod's node: what the Node object of its name says, of
// which nodes has the address, else what the pod's status says; zero where neither is
// known. So it depends on what is there now, and not on which of the two was there
// first.
func HostIP(nodes map[string]netip.Addr, name string, status netip.Addr) netip.Addr {
	if addr := nodes[name]; addr.IsValid() {
		return addr
	}
	return status
}

// Finished tells whether none of the pod's containers will run again. One that is
// being deleted is not finished: it may need its network to end well.
func Finished(in *corev1.Pod) bool {
	return in.Status.Phase == corev1.PodSucceeded || in.Status.Phase == corev1.PodFailed
}

// networkStatus is the annotation in which who gives a pod several networks, as Multus
// does, lists them before kubelet reports the addresses of one: see "Kubernetes Network
// Custom Resource Definition De-facto Standard", section 5.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

func hasSeveralNetworks(in *corev1.Pod) bool {
	text, found := in.Annotations[networkStatus]
	if !found {
		return false
	}
	var networks []json.RawMessage
	return json.Unmarshal([]byte(text), &networks) == nil && len(networks) > 1
}

// podAddresses are those of the pod's status, the first of each family.
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

// Node is what a node object says. Of several addresses of one type the first is
// the node's: the kubelet reports that one in its pods' status too.
func Node(in *corev1.Node) *coe.Node {
	out := &coe.Node{
		UID:        uid(in.UID),
		HostName:   in.Name,
		InternalIP: nodeAddress(in, corev1.NodeInternalIP),
		ExternalIP: nodeAddress(in, corev1.NodeExternalIP),
	}
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

// Namespace is what a namespace object says.
func Namespace(in *corev1.Namespace) *coe.Namespace {
	return &coe.Namespace{
		UID:         uid(in.UID),
		Name:        in.Name,
		Terminating: in.DeletionTimestamp != nil || in.Status.Phase == corev1.NamespaceTerminating,
		Ignored:     unknownAnnotations(in.Annotations),
	}
}

// uid is an object's uid as coe writes uuids.
func uid[T ~string](in T) string { return strings.ToLower(string(in)) }

func namespace(name string) string {
	if name == "" {
		return coe.DefaultNamespace
	}
	return name
}

// address reads an address that the API server has checked; zero where there is
// none. An IPv6 zone is dropped: pods' addresses are not of one link.
func address(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.WithZone("").Unmap()
}

// onePerFamily reads addresses, the first of each family.
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

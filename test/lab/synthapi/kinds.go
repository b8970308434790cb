package synthapi

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// Kind describes a kind of objects.
type Kind[T any] struct {
	Path   string
	List   func(metav1.ListMeta, []T) runtime.Object
	Object func(T) runtime.Object
}

// The kinds that the bridge reads.
var (
	Namespaces = Kind[corev1.Namespace]{
		"/api/v1/namespaces",
		func(m metav1.ListMeta, items []corev1.Namespace) runtime.Object {
			return &corev1.NamespaceList{TypeMeta: kind("v1", "NamespaceList"), ListMeta: m, Items: items}
		},
		func(o corev1.Namespace) runtime.Object {
			o.TypeMeta = kind("v1", "Namespace")
			return &o
		},
	}
	Nodes = Kind[corev1.Node]{
		"/api/v1/nodes",
		func(m metav1.ListMeta, items []corev1.Node) runtime.Object {
			return &corev1.NodeList{TypeMeta: kind("v1", "NodeList"), ListMeta: m, Items: items}
		},
		func(o corev1.Node) runtime.Object {
			o.TypeMeta = kind("v1", "Node")
			return &o
		},
	}
	Pods = Kind[corev1.Pod]{
		"/api/v1/pods",
		func(m metav1.ListMeta, items []corev1.Pod) runtime.Object {
			return &corev1.PodList{TypeMeta: kind("v1", "PodList"), ListMeta: m, Items: items}
		},
		func(o corev1.Pod) runtime.Object {
			o.TypeMeta = kind("v1", "Pod")
			return &o
		},
	}
	Services = Kind[corev1.Service]{
		"/api/v1/services",
		func(m metav1.ListMeta, items []corev1.Service) runtime.Object {
			return &corev1.ServiceList{TypeMeta: kind("v1", "ServiceList"), ListMeta: m, Items: items}
		},
		func(o corev1.Service) runtime.Object {
			o.TypeMeta = kind("v1", "Service")
			return &o
		},
	}
	EndpointSlices = Kind[discoveryv1.EndpointSlice]{
		"/apis/discovery.k8s.io/v1/endpointslices",
		func(m metav1.ListMeta, items []discoveryv1.EndpointSlice) runtime.Object {
			return &discoveryv1.EndpointSliceList{TypeMeta: kind("discovery.k8s.io/v1", "EndpointSliceList"), ListMeta: m, Items: items}
		},
		func(o discoveryv1.EndpointSlice) runtime.Object {
			o.TypeMeta = kind("discovery.k8s.io/v1", "EndpointSlice")
			return &o
		},
	}
	Policies = Kind[networkingv1.NetworkPolicy]{
		"/apis/networking.k8s.io/v1/networkpolicies",
		func(m metav1.ListMeta, items []networkingv1.NetworkPolicy) runtime.Object {
			return &networkingv1.NetworkPolicyList{TypeMeta: kind("networking.k8s.io/v1", "NetworkPolicyList"), ListMeta: m, Items: items}
		},
		func(o networkingv1.NetworkPolicy) runtime.Object {
			o.TypeMeta = kind("networking.k8s.io/v1", "NetworkPolicy")
			return &o
		},
	}
	ServiceCIDRs = Kind[networkingv1.ServiceCIDR]{
		"/apis/networking.k8s.io/v1/servicecidrs",
		func(m metav1.ListMeta, items []networkingv1.ServiceCIDR) runtime.Object {
			return &networkingv1.ServiceCIDRList{TypeMeta: kind("networking.k8s.io/v1", "ServiceCIDRList"), ListMeta: m, Items: items}
		},
		func(o networkingv1.ServiceCIDR) runtime.Object {
			o.TypeMeta = kind("networking.k8s.io/v1", "ServiceCIDR")
			return &o
		},
	}
)

func kind(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// Meta adds to metadata what the API server sets. The UID consists of the kind, which has 4 hex digits, and the number.
func Meta(m metav1.ObjectMeta, kind string, i int) metav1.ObjectMeta {
	m.UID, m.ResourceVersion = types.UID(fmt.Sprintf("00000000-0000-4000-%s-%012d", kind, i)), "1"
	m.CreationTimestamp = metav1.Now()
	return m
}

// Namespace returns the namespace with a number, as in package kube.
func Namespace(i int) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: Meta(metav1.ObjectMeta{Name: kube.Namespace(i)}, "8001", i)}
}

// Node returns the node with a number, as in package kube.
func Node(i int) corev1.Node {
	return corev1.Node{
		ObjectMeta: Meta(metav1.ObjectMeta{Name: kube.Node(i)}, "8002", i),
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: kube.NodeAddress(i).String()},
		}},
	}
}

// Pod returns the pod with a number of a load, as a running one with the annotations that the API has.
func (a *API) Pod(l kube.PodLoad, i int) corev1.Pod {
	p := *l.Pod(i)
	p.ObjectMeta = Meta(p.ObjectMeta, "8003", i)
	p.Status.Phase = corev1.PodRunning
	p.Annotations = a.Annotations(p.Namespace, p.Name)
	return p
}

// Service returns the service with a number of a load, with a cluster address from 10.96.0.0/12.
func Service(l kube.ServiceLoad, i int) corev1.Service {
	s := l.Service(i)
	s.ObjectMeta = Meta(s.ObjectMeta, "8004", i)
	s.Spec.Type = corev1.ServiceTypeClusterIP
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)}).String()
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	return *s
}

// EndpointSlice returns the endpoints of the service with a number of a load.
func EndpointSlice(l kube.ServiceLoad, i int) discoveryv1.EndpointSlice {
	e := l.Slice(i, 0)
	e.ObjectMeta = Meta(e.ObjectMeta, "8005", i)
	for p := range e.Ports {
		e.Ports[p].Protocol = new(corev1.ProtocolTCP)
	}
	return *e
}

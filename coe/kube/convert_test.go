package kube_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

const someUID = "B498B7AE-4CBD-3563-B75D-7EAF444510C6"

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{UID: someUID, Namespace: namespace, Name: name, ResourceVersion: "17"}
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func TestPod(t *testing.T) {
	const uid = "b498b7ae-4cbd-3563-b75d-7eaf444510c6"
	said := coe.Reported{Revision: "17"}
	tests := map[string]struct {
		spec   corev1.PodSpec
		status corev1.PodStatus
		want   coe.Pod
	}{
		"without a node": {},
		"with a node": {
			spec:   corev1.PodSpec{NodeName: "n1"},
			status: corev1.PodStatus{HostIP: "192.168.33.12"},
			want:   coe.Pod{NodeName: "n1", HostIP: netip.MustParseAddr("192.168.33.12")},
		},
		"addresses from elsewhere, the first of each family": {
			status: corev1.PodStatus{PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "10.1.2.4"}, {IP: "fd00::3"}}},
			want:   coe.Pod{Interfaces: []coe.PodInterface{{UID: uid, Addresses: addrs("10.1.2.3", "fd00::3")}}},
		},
		"the old leaf alone": {
			status: corev1.PodStatus{PodIP: "10.1.2.3"},
			want:   coe.Pod{Interfaces: []coe.PodInterface{{UID: uid, Addresses: addrs("10.1.2.3")}}},
		},
		"on the host's network": {
			spec:   corev1.PodSpec{HostNetwork: true},
			status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "192.168.33.12"}}},
			want:   coe.Pod{NoNetwork: true},
		},
		"succeeded": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}},
			want:   coe.Pod{NoNetwork: true},
		},
		"ports with a name, of containers that last": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}}},
					{Ports: []corev1.ContainerPort{{Name: "init", ContainerPort: 1}}},
				},
				Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {ContainerPort: 81}}}},
			},
			want: coe.Pod{Ports: coe.NewContainerPorts(
				coe.ContainerPort{Name: "dns", Protocol: "udp", Port: 53}, coe.ContainerPort{Name: "web", Protocol: "tcp", Port: 80},
			)},
		},
		"failed": {status: corev1.PodStatus{Phase: corev1.PodFailed}, want: coe.Pod{NoNetwork: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.UID, test.want.Name, test.want.Namespace, test.want.Reported = uid, "p", "a", said
			got := kube.Pod(&corev1.Pod{ObjectMeta: named("a", "p"), Spec: test.spec, Status: test.status})
			require.Equal(t, &test.want, got)
		})
	}
	for status, want := range map[string][]coe.PodInterface{
		`[{"name":"cbr0","interface":"eth0"},{"name":"a/coe","interface":"net1"}]`: nil,
		`[{"name":"coe-bridge","interface":"eth0"}]`:                               {{UID: uid, Addresses: addrs("10.1.2.3")}},
		`not JSON`: {{UID: uid, Addresses: addrs("10.1.2.3")}},
	} {
		t.Run("network status "+status, func(t *testing.T) {
			in := &corev1.Pod{ObjectMeta: named("a", "p"), Status: corev1.PodStatus{PodIP: "10.1.2.3"}}
			in.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": status}
			require.Equal(t, want, kube.Pod(in).Interfaces)
		})
	}
	t.Run("labels", func(t *testing.T) {
		in := &corev1.Pod{ObjectMeta: named("a", "p")}
		in.Labels = map[string]string{"app": "web"}
		require.Equal(t, coe.NewLabels(in.Labels), kube.Pod(in).Labels)
	})
	t.Run("being deleted keeps its network", func(t *testing.T) {
		in := &corev1.Pod{ObjectMeta: named("a", "p"), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		in.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		require.False(t, kube.Pod(in).NoNetwork)
	})
}

func TestNode(t *testing.T) {
	meta := named("", "n1")
	meta.Labels = map[string]string{corev1.LabelTopologyZone: "a", "egress": ""}
	got := kube.Node(&corev1.Node{
		ObjectMeta: meta,
		Spec:       corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64", "10.244.2.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n1"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
			{Type: corev1.NodeInternalIP, Address: "192.168.33.12"},
			{Type: corev1.NodeInternalIP, Address: "fd01::12"},
		}},
	}, "egress")
	require.Equal(t, &coe.Node{
		UID: "b498b7ae-4cbd-3563-b75d-7eaf444510c6", HostName: "n1", Zone: "a", Egress: true, Cordoned: true,
		InternalIP: netip.MustParseAddr("192.168.33.12"), SecondIP: netip.MustParseAddr("fd01::12"), ExternalIP: netip.MustParseAddr("203.0.113.1"),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
	}, got)
}

func TestNamespace(t *testing.T) {
	in := &corev1.Namespace{ObjectMeta: named("", "a")}
	require.False(t, kube.Namespace(in).Terminating)
	in.Status.Phase = corev1.NamespaceTerminating
	require.True(t, kube.Namespace(in).Terminating)
	require.Equal(t, "a", kube.Namespace(in).Name)
}

// Settings without effect are reported, and only those.
func TestIgnored(t *testing.T) {
	annotated := func(names ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Annotations: map[string]string{"example.com/coe-bridge.io": "a"}}
		for _, name := range names {
			m.Annotations[name] = "1"
		}
		return m
	}
	pod := func(m metav1.ObjectMeta, hostPort int32, onHost bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{HostNetwork: onHost, Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: hostPort}},
		}}}}
	}
	require.Zero(t, kube.Pod(pod(annotated(kube.InterfacesAnnotation), 0, false)).Ignored)
	require.Empty(t, kube.Pod(pod(annotated(), 80, true)).HostPorts, "the pod is on the host network")
	require.Equal(t, []uint16{80}, kube.Pod(pod(annotated(), 80, false)).HostPorts)
	require.Equal(t, coe.Bandwidth|coe.UnknownAnnotation,
		kube.Pod(pod(annotated("kubernetes.io/egress-bandwidth", "coe-bridge.io/typo"), 0, false)).Ignored)
	require.Equal(t, coe.DHCPValue, kube.Pod(pod(annotated(coe.DHCPAnnotation), 0, false)).Ignored)
	require.False(t, kube.Pod(pod(annotated(coe.DHCPAnnotation), 0, false)).DHCP)
	asks := kube.Pod(pod(metav1.ObjectMeta{Annotations: map[string]string{coe.DHCPAnnotation: "true"}}, 0, false))
	require.True(t, asks.DHCP)
	require.Zero(t, asks.Ignored)
	require.Equal(t, coe.UnknownAnnotation, kube.Namespace(&corev1.Namespace{ObjectMeta: annotated("coe-bridge.io/x")}).Ignored)
	require.Zero(t, kube.Namespace(&corev1.Namespace{ObjectMeta: annotated()}).Ignored)

	for value, want := range map[string]coe.Namespace{
		"drop": {PolicyLog: coe.LogDropped}, "all": {PolicyLog: coe.LogAll}, "ALL": {Ignored: coe.PolicyLogValue}, "": {Ignored: coe.PolicyLogValue},
	} {
		in := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{coe.PolicyLogAnnotation: value}}}
		got := kube.Namespace(in)
		require.Equal(t, want, coe.Namespace{PolicyLog: got.PolicyLog, Ignored: got.Ignored}, "%q", value)
	}

	local := corev1.ServiceInternalTrafficPolicyLocal
	for want, spec := range map[coe.Ignored]corev1.ServiceSpec{
		0: {
			Type: corev1.ServiceTypeNodePort, InternalTrafficPolicy: &local, TrafficDistribution: new("PreferClose"),
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		},
	} {
		require.Equal(t, want, kube.Service(&corev1.Service{ObjectMeta: annotated(), Spec: spec}).Ignored, want.String())
	}
}

func TestService(t *testing.T) {
	minute, proxy := int32(60), corev1.LoadBalancerIPModeProxy
	local, cluster := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster
	tests := map[string]struct {
		spec   corev1.ServiceSpec
		status corev1.ServiceStatus
		want   coe.Service
	}{
		"both families": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"}},
			want: coe.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1")},
		},
		"headless": {
			spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}},
			want: coe.Service{Headless: true},
		},
		"ports": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{
				{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http"), NodePort: 30080},
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(5353)},
				{Name: "ss7", Protocol: corev1.ProtocolSCTP, Port: 2905},
			}},
			want: coe.Service{ClusterIPs: addrs("10.96.0.1"), Ports: []coe.ServicePort{
				{Name: "web", Protocol: "tcp", Port: 80, TargetPort: "http", NodePort: 30080},
				{Name: "dns", Protocol: "udp", Port: 53, TargetPort: "5353"},
				{Name: "ss7", Protocol: "sctp", Port: 2905},
			}},
		},
		"further addresses": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ExternalIPs: []string{"203.0.113.1"}},
			status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
				{IP: "203.0.113.2"}, {Hostname: "lb.example.org"}, {IP: "203.0.113.3", IPMode: &proxy}, {IP: "203.0.113.1"},
			}}},
			want: coe.Service{
				ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("203.0.113.1", "203.0.113.2"), LoadBalancerIPs: addrs("203.0.113.2", "203.0.113.1"),
			},
		},
		"some clients": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", LoadBalancerSourceRanges: []string{"192.0.2.1/24", " 2001:db8::/32", "wrong"}},
			want: coe.Service{
				ClusterIPs: addrs("10.96.0.1"), Restricted: true,
				SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")},
			},
		},
		"endpoints on the node": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30081},
			want: coe.Service{ClusterIPs: addrs("10.96.0.1"), Local: true, HealthPort: 30081},
		},
		"endpoints on the node of the client": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", InternalTrafficPolicy: &local},
			want: coe.Service{ClusterIPs: addrs("10.96.0.1"), InternalLocal: true},
		},
		"endpoints near the client": {
			spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", InternalTrafficPolicy: &cluster, TrafficDistribution: new("PreferSameNode")},
			want: coe.Service{ClusterIPs: addrs("10.96.0.1"), Distributes: true},
		},
		"affinity": {
			spec: corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP},
			want: coe.Service{Affinity: 10800},
		},
		"affinity for a time": {
			spec: corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &minute},
			}},
			want: coe.Service{Affinity: 60},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.UID, test.want.Name, test.want.Namespace = "b498b7ae-4cbd-3563-b75d-7eaf444510c6", "s", "a"
			require.Equal(t, &test.want, kube.Service(&corev1.Service{ObjectMeta: named("a", "s"), Spec: test.spec, Status: test.status}))
		})
	}
	require.Nil(t, kube.Service(&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}))

	for mode, want := range map[string]bool{"Auto": true, "auto": true, "Disabled": false, "": false} {
		in := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.AnnotationTopologyMode: mode}}}
		require.Equal(t, want, kube.Service(in).Distributes, mode)
	}
}

func TestEndpoints(t *testing.T) {
	yes, no := true, false
	endpoint := func(ready, serving, terminating *bool, addresses ...string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{
			Ready: ready, Serving: serving, Terminating: terminating,
		}}
	}
	port, name, udp := int32(8080), "web", corev1.ProtocolUDP
	in := &discoveryv1.EndpointSlice{
		ObjectMeta:  named("a", "s-x7d"),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			endpoint(&yes, &yes, &no, "10.1.0.2", "10.1.0.99"),
			endpoint(nil, nil, nil, "10.1.0.1"),
			endpoint(&yes, &no, &yes, "10.1.0.3"), // publishNotReadyAddresses
			endpoint(&no, &yes, &yes, "10.1.0.4"),
			endpoint(&no, nil, &yes, "10.1.0.5"),
			endpoint(&no, &no, &yes, "10.1.0.6"),
			endpoint(&no, &yes, nil, "10.1.0.7"),
			endpoint(&yes, nil, nil),
		},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}, {Port: &port, Protocol: &udp}, {Name: &name}},
	}
	require.Nil(t, kube.Endpoints(in), "belongs to no service")
	in.Labels = map[string]string{discoveryv1.LabelServiceName: "s"}
	require.Equal(t, &coe.Endpoints{
		UID: "b498b7ae-4cbd-3563-b75d-7eaf444510c6", Name: "s", Namespace: "a",
		Addresses:   addrs("10.1.0.1", "10.1.0.2", "10.1.0.3"),
		Terminating: addrs("10.1.0.4", "10.1.0.5"),
		Ports:       []coe.EndpointPort{{Name: "web", Protocol: "tcp", Port: 8080}, {Protocol: "udp", Port: 8080}},
		PortsByName: true,
	}, kube.Endpoints(in))
	in.AddressType = discoveryv1.AddressTypeFQDN
	require.Nil(t, kube.Endpoints(in))
}

// The places of endpoints are in the order of their addresses: the ready ones, then those that terminate.
func TestPlacesOfEndpoints(t *testing.T) {
	yes, no := true, false
	terminates := discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	got := kube.Endpoints(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.4"}, NodeName: new("four"), Conditions: terminates},
			{Addresses: []string{"10.1.0.3"}, NodeName: new("three"), Hints: &discoveryv1.EndpointHints{}},
			{Addresses: []string{"10.1.0.1"}},
			{Addresses: []string{"10.1.0.9"}, NodeName: new("nine"), Conditions: discoveryv1.EndpointConditions{Ready: &no}},
			{Addresses: []string{"10.1.0.2"}, NodeName: new("two"), Hints: &discoveryv1.EndpointHints{
				ForNodes: []discoveryv1.ForNode{{Name: "two"}, {Name: "four"}}, ForZones: []discoveryv1.ForZone{{Name: "a"}},
			}},
		},
	})
	require.Equal(t, addrs("10.1.0.1", "10.1.0.2", "10.1.0.3"), got.Addresses)
	require.Equal(t, addrs("10.1.0.4"), got.Terminating)
	require.Equal(t, []coe.Place{
		{}, {Node: "two", Hints: &coe.Hints{Nodes: []string{"two", "four"}, Zones: []string{"a"}}}, {Node: "three"}, {Node: "four"},
	}, got.Places)
	require.True(t, got.Hinted())
}

func TestNamespaceOfNone(t *testing.T) {
	require.Equal(t, coe.DefaultNamespace, kube.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(someUID)}}).Namespace)
}

// A pod and a namespace name security profiles by an annotation, and one by a label.
func TestLabelsWithProfiles(t *testing.T) {
	const key = coe.ProfilesAnnotation
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		want                []string
	}{
		"none":       {map[string]string{"app": "web"}, map[string]string{key: " , "}, nil},
		"annotation": {map[string]string{"app": "web"}, map[string]string{key: "web, db,,web"}, []string{"db", "web"}},
		"label":      {map[string]string{"app": "web", key: "web"}, nil, []string{"web"}},
		"both":       {map[string]string{key: "web"}, map[string]string{key: "db"}, []string{"db", "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}
			want := coe.NewLabels(c.labels).WithProfiles(c.want...)
			pod, namespace := kube.Pod(&corev1.Pod{ObjectMeta: in}), kube.Namespace(&corev1.Namespace{ObjectMeta: in})
			require.Equal(t, want, pod.Labels)
			require.Equal(t, want, namespace.Labels)
			require.Zero(t, pod.Ignored|namespace.Ignored)
			require.Equal(t, c.want, slices.Collect(pod.Labels.Profiles()))
		})
	}
}

func TestServiceCIDR(t *testing.T) {
	in := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{UID: "8F2A", Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16", "fd00:97::/108"}}}
	require.Equal(t, &coe.ServiceCIDR{
		UID: "8f2a", Name: "more", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd00:97::/108")},
	}, kube.ServiceCIDR(in))
}

// The conversion refuses what an API server without the schema of EgressIPs accepts.
func TestEgressSpec(t *testing.T) {
	spec := func(text string) *coe.EgressSpec {
		in := &unstructured.Unstructured{}
		require.NoError(t, in.UnmarshalJSON([]byte(`{"apiVersion":"coe-bridge.io/v1","kind":"EgressIP",
			"metadata":{"uid":"A","name":"shop","creationTimestamp":"2026-11-25T10:00:00Z"},"spec":`+text+`}`)))
		return kube.EgressSpec(in)
	}
	got := spec(`{"egressIPs":["192.0.2.10"],"namespaceSelector":{"matchLabels":{"team":"shop"}},"podSelector":{}}`)
	require.Equal(t, &coe.EgressSpec{
		UID: "a", Name: "shop", Created: time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC), Address: netip.MustParseAddr("192.0.2.10"),
		Namespaces: coe.Selector{Requirements: []coe.Requirement{{Key: "team", Operator: coe.In, Values: []string{"shop"}}}},
	}, got)
	for text, want := range map[string]string{
		`{"egressIPs":["192.0.2.10"]}`:                                                "spec.namespaceSelector",
		`{"egressIPs":[],"namespaceSelector":{}}`:                                     "exactly one",
		`{"egressIPs":["192.0.2.1","192.0.2.2"],"namespaceSelector":{}}`:              "exactly one",
		`{"egressIPs":["fd00::1"],"namespaceSelector":{}}`:                            "IPv4",
		`{"egressIPs":"192.0.2.1","namespaceSelector":{}}`:                            "",
		`{"egressIPs":["192.0.2.1"],"namespaceSelector":{"matchLabels":{"a b":"c"}}}`: "spec.namespaceSelector",
	} {
		got := spec(text).Invalid + spec(text).InvalidAddress
		require.NotEmpty(t, got, text)
		require.Contains(t, got, want)
	}
}

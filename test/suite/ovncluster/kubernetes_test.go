package ovncluster

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// startKubernetes serves a Kubernetes without objects to the bridge, until the end of the test. Services with ports of UDP can only come from there.
func (w *world) startKubernetes() {
	t := w.t
	t.Helper()
	require.NoError(t, w.lab.In(ovnhost.CentralNamespace, func() (err error) {
		w.kubernetes, err = synthapi.Serve(t.TempDir())
		return err
	}))
	t.Cleanup(func() { require.NoError(t, w.kubernetes.Close()) })
	synthapi.Add(w.kubernetes, synthapi.Namespaces, 0, nil)
	synthapi.Add(w.kubernetes, synthapi.Nodes, 0, nil)
	synthapi.Add(w.kubernetes, synthapi.Pods, 0, nil)
	synthapi.Add(w.kubernetes, synthapi.Policies, 0, nil)
	synthapi.Add(w.kubernetes, synthapi.ServiceCIDRs, 0, nil)
	w.services = synthapi.Add(w.kubernetes, synthapi.Services, 0, w.service)
	w.slices = synthapi.Add(w.kubernetes, synthapi.EndpointSlices, 0, w.slice)
}

// createService creates the service with ports, with its endpoint in each family.
func (w *world) createService() {
	w.t.Helper()
	require.NoError(w.t, w.services.AwaitWatch(w.t.Context()))
	require.NoError(w.t, w.slices.AwaitWatch(w.t.Context()))
	require.NoError(w.t, w.services.Resize(1))
	require.NoError(w.t, w.slices.Resize(len(w.families)))
}

// servedPorts has the ports of the service. The ports of the endpoint are higher by toEndpoint.
var servedPorts = []corev1.ServicePort{
	{Name: "udp", Protocol: corev1.ProtocolUDP, Port: servedPort},
	{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servedPort},
	{Name: "hairpin", Protocol: corev1.ProtocolUDP, Port: hairpinPort},
	{Name: "isolated", Protocol: corev1.ProtocolUDP, Port: isolatedPort},
}

func (w *world) service(i int) corev1.Service {
	s := corev1.Service{ObjectMeta: synthapi.Meta(metav1.ObjectMeta{Namespace: "web", Name: "ports"}, "8004", i)}
	for _, f := range w.families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, f.ports.String())
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for _, p := range servedPorts {
		p.TargetPort = intstr.FromInt32(p.Port + toEndpoint)
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

// slice returns the endpoints of a family.
func (w *world) slice(i int) discoveryv1.EndpointSlice {
	far := w.families[i].far.address
	s := discoveryv1.EndpointSlice{
		ObjectMeta: synthapi.Meta(metav1.ObjectMeta{
			Namespace: "web", Name: "ports-" + far.String(), Labels: map[string]string{discoveryv1.LabelServiceName: "ports"},
		}, "8005", i),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{far.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	if far.Is6() {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range servedPorts {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(p.Port + toEndpoint)})
	}
	return s
}

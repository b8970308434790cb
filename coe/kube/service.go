package kube

import (
	"math"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Service converts a service; nil for an ExternalName, which has no address.
func Service(in *corev1.Service) *coe.Service {
	if in.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	out := &coe.Service{
		UID:       uid(in.UID),
		Name:      in.Name,
		Namespace: namespace(in.Namespace),
		Headless:  in.Spec.ClusterIP == corev1.ClusterIPNone,
		Affinity:  affinity(in),
		Local:     in.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		Ignored:   ignoredOfService(in),
	}
	if !out.Headless {
		out.ClusterIPs = clusterIPs(in)
		out.ExternalIPs = externalIPs(in)
	}
	for _, p := range few(in.Spec.Ports, coe.MaxServicePorts) {
		out.Ports = append(out.Ports, coe.ServicePort{
			Name:       p.Name,
			Protocol:   protocol(p.Protocol),
			Port:       uint16(p.Port),
			TargetPort: targetPortText(p.TargetPort),
			NodePort:   uint16(p.NodePort),
		})
	}
	return out
}

// few returns at most limit+1 values: enough to notice that the limit is exceeded.
func few[T any](all []T, limit int) []T { return all[:min(len(all), limit+1)] }

func clusterIPs(in *corev1.Service) []netip.Addr {
	if len(in.Spec.ClusterIPs) > 0 {
		return onePerFamily(in.Spec.ClusterIPs)
	}
	return onePerFamily([]string{in.Spec.ClusterIP})
}

// externalIPs returns the service's addresses besides its cluster addresses. A load balancer in
// Proxy mode forwards to node ports, so its address is not included.
func externalIPs(in *corev1.Service) []netip.Addr {
	var out []netip.Addr
	add := func(text string) {
		if a := address(text); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, text := range few(in.Spec.ExternalIPs, coe.MaxVIPs) {
		add(text)
	}
	for _, ingress := range few(in.Status.LoadBalancer.Ingress, coe.MaxVIPs) {
		if ingress.IPMode == nil || *ingress.IPMode != corev1.LoadBalancerIPModeProxy {
			add(ingress.IP)
		}
	}
	return out
}

// targetPortText returns a number or a name; empty if the object has neither, as a manifest may
// that no API server has defaulted.
func targetPortText(in intstr.IntOrString) string {
	if in.Type == intstr.Int && in.IntVal == 0 {
		return ""
	}
	return in.String()
}

// affinity returns how long a client keeps its endpoint, in seconds; 0: no affinity.
func affinity(in *corev1.Service) uint32 {
	if in.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	config := in.Spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return uint32(corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return uint32(*config.ClientIP.TimeoutSeconds)
}

func protocol(in corev1.Protocol) string {
	switch in {
	case corev1.ProtocolUDP:
		return "udp"
	case corev1.ProtocolSCTP:
		return "sctp"
	default: // the default of the API server
		return "tcp"
	}
}

// Endpoints converts an endpoint slice; nil if it belongs to no service or has no IP addresses.
//
// The conditions of the slice already include publishNotReadyAddresses. Only the first
// address of an endpoint counts, as for kube-proxy. Ports without a number are ignored.
func Endpoints(in *discoveryv1.EndpointSlice) *coe.Endpoints {
	service := in.Labels[discoveryv1.LabelServiceName]
	if service == "" || in.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	out := &coe.Endpoints{
		UID:         uid(in.UID),
		Name:        service,
		Namespace:   namespace(in.Namespace),
		PortsByName: true,
	}
	for i := range in.Endpoints {
		addEndpoint(out, &in.Endpoints[i])
	}
	// The order of endpoints in a slice has no meaning.
	slices.SortFunc(out.Addresses, netip.Addr.Compare)
	slices.SortFunc(out.Terminating, netip.Addr.Compare)
	for _, p := range few(in.Ports, coe.MaxServicePorts) {
		if p.Port != nil && isPort(*p.Port) {
			out.Ports = append(out.Ports, endpointPort(p))
		}
	}
	return out
}

// addEndpoint adds an endpoint's address:
//
// ready | serving | terminating | added to
// yes   | any     | any         | Addresses
// no    | yes     | yes         | Terminating
// no    | otherwise             | neither
//
// A missing condition counts as yes, except terminating.
func addEndpoint(out *coe.Endpoints, in *discoveryv1.Endpoint) {
	if len(in.Addresses) == 0 {
		return
	}
	addr := address(in.Addresses[0])
	if !addr.IsValid() {
		return
	}
	is := func(condition *bool, otherwise bool) bool {
		if condition == nil {
			return otherwise
		}
		return *condition
	}
	c := in.Conditions
	switch {
	case is(c.Ready, true):
		out.Addresses = append(out.Addresses, addr)
	case is(c.Serving, true) && is(c.Terminating, false):
		out.Terminating = append(out.Terminating, addr)
	}
}

// isPort reports whether a number is one of a port. The API server accepts others in an EndpointSlice.
func isPort(number int32) bool { return number > 0 && number <= math.MaxUint16 }

func endpointPort(in discoveryv1.EndpointPort) coe.EndpointPort {
	out := coe.EndpointPort{Port: uint16(*in.Port), Protocol: "tcp"}
	if in.Name != nil {
		out.Name = *in.Name
	}
	if in.Protocol != nil {
		out.Protocol = protocol(*in.Protocol)
	}
	return out
}

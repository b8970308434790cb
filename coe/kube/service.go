package kube

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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

		HealthPort:    uint16(in.Spec.HealthCheckNodePort),
		InternalLocal: ptr.Deref(in.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal,
		Distributes:   distributes(in),
		Ignored:       ignoredOfService(in),
	}
	if !out.Headless {
		out.ClusterIPs = clusterIPs(in)
		setExternalIPs(out, in)
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

// distributes reports whether the service requests hints for its endpoints.
func distributes(in *corev1.Service) bool {
	mode := in.Annotations[corev1.AnnotationTopologyMode]
	return in.Spec.TrafficDistribution != nil || mode != "" && !strings.EqualFold(mode, "disabled")
}

// few returns at most limit+1 values: enough to notice that the limit is exceeded.
func few[T any](all []T, limit int) []T { return all[:min(len(all), limit+1)] }

func clusterIPs(in *corev1.Service) []netip.Addr {
	if len(in.Spec.ClusterIPs) > 0 {
		return onePerFamily(in.Spec.ClusterIPs)
	}
	return onePerFamily([]string{in.Spec.ClusterIP})
}

// setExternalIPs sets the service's addresses besides its cluster addresses, and who reaches them. A load
// balancer in Proxy mode forwards to node ports, so its address is not included.
func setExternalIPs(out *coe.Service, in *corev1.Service) {
	add := func(all []netip.Addr, text string) []netip.Addr {
		if a := address(text); a.IsValid() && !slices.Contains(all, a) {
			all = append(all, a)
		}
		return all
	}
	for _, text := range few(in.Spec.ExternalIPs, coe.MaxVIPs) {
		out.ExternalIPs = add(out.ExternalIPs, text)
	}
	for _, ingress := range few(in.Status.LoadBalancer.Ingress, coe.MaxVIPs) {
		if ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) != corev1.LoadBalancerIPModeProxy {
			out.ExternalIPs, out.LoadBalancerIPs = add(out.ExternalIPs, ingress.IP), add(out.LoadBalancerIPs, ingress.IP)
		}
	}
	out.Restricted = len(in.Spec.LoadBalancerSourceRanges) > 0
	for _, text := range few(in.Spec.LoadBalancerSourceRanges, coe.MaxSourceRanges) {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil { // the API server accepts no other
			out.SourceRanges = append(out.SourceRanges, p.Masked())
		}
	}
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
	setEndpoints(out, in.Endpoints)
	for _, p := range few(in.Ports, coe.MaxServicePorts) {
		if p.Port != nil && isPort(*p.Port) {
			out.Ports = append(out.Ports, endpointPort(p))
		}
	}
	return out
}

// setEndpoints sets the addresses of an Endpoints, and their places. The order of endpoints in a
// slice has no meaning, so it sorts them.
func setEndpoints(out *coe.Endpoints, in []discoveryv1.Endpoint) {
	type placed struct {
		addr  netip.Addr
		place coe.Place
	}
	var byUse [2][]placed // ready, and terminating
	known := false
	for i := range in {
		e := &in[i]
		use, used := useOf(e.Conditions)
		if !used || len(e.Addresses) == 0 || !address(e.Addresses[0]).IsValid() {
			continue
		}
		p := placed{address(e.Addresses[0]), coe.Place{Node: ptr.Deref(e.NodeName, ""), Hints: hints(e.Hints)}}
		known = known || p.place != coe.Place{}
		byUse[use] = append(byUse[use], p)
	}
	for use, all := range byUse {
		slices.SortStableFunc(all, func(a, b placed) int { return a.addr.Compare(b.addr) })
		for _, p := range all {
			if use == ready {
				out.Addresses = append(out.Addresses, p.addr)
			} else {
				out.Terminating = append(out.Terminating, p.addr)
			}
			if known {
				out.Places = append(out.Places, p.place)
			}
		}
	}
}

const ready, terminating = 0, 1

// useOf says how an endpoint is used:
//
// ready | serving | terminating | use
// yes   | any     | any         | ready
// no    | yes     | yes         | terminating
// no    | otherwise             | none
//
// A missing condition counts as yes, except terminating.
func useOf(c discoveryv1.EndpointConditions) (use int, used bool) {
	switch {
	case ptr.Deref(c.Ready, true):
		return ready, true
	case ptr.Deref(c.Serving, true) && ptr.Deref(c.Terminating, false):
		return terminating, true
	}
	return 0, false
}

// hints returns the hints of an endpoint; nil if there are none.
func hints(in *discoveryv1.EndpointHints) *coe.Hints {
	if in == nil || len(in.ForNodes)+len(in.ForZones) == 0 {
		return nil
	}
	out := &coe.Hints{}
	for _, n := range in.ForNodes {
		out.Nodes = append(out.Nodes, n.Name)
	}
	for _, z := range in.ForZones {
		out.Zones = append(out.Zones, z.Name)
	}
	return out
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

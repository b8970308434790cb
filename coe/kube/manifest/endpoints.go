package manifest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// SelectedEndpoints returns the endpoints of services with a selector and without EndpointSlices
// in the manifests: the matching pods, as if all were ready. leased returns the addresses of
// the pod with a UID. A pod without addresses is not an endpoint; a pod on the host network has
// the address of its node.
func (m *Set) SelectedEndpoints(leased func(uid string) []netip.Addr) []*coe.Endpoints {
	sliced := map[string]bool{}
	for _, s := range m.Slices {
		sliced[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]] = true
	}
	nodes := m.nodeAddresses()
	var all []*coe.Endpoints
	for _, s := range m.Services {
		service := kube.Service(s)
		if service == nil || len(s.Spec.Selector) == 0 || sliced[s.Namespace+"/"+s.Name] {
			continue
		}
		for _, p := range m.selected(s) {
			pod := onNode(p, nodes)
			addresses := leased(pod.UID)
			if p.Spec.HostNetwork && pod.HostIP.IsValid() {
				addresses = []netip.Addr{pod.HostIP}
			}
			if len(addresses) > 0 {
				all = append(all, endpoint(service, p, addresses))
			}
		}
	}
	return all
}

// ServiceAt returns the service that has an address; nil if there is none.
func (m *Set) ServiceAt(a netip.Addr) *coe.Service {
	for _, in := range m.Services {
		if s := kube.Service(in); s != nil && (slices.Contains(s.ClusterIPs, a) || slices.Contains(s.ExternalIPs, a)) {
			return s
		}
	}
	return nil
}

// selected returns the pods that a service selects.
func (m *Set) selected(s *corev1.Service) []*corev1.Pod {
	selector := labels.SelectorFromSet(s.Spec.Selector)
	var pods []*corev1.Pod
	for _, p := range m.Pods {
		if p.Namespace == s.Namespace && !kube.Finished(p) && selector.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

// endpoint returns a pod as the Endpoints of a service. Each pod has its own, because pods may
// name their ports differently.
func endpoint(s *coe.Service, p *corev1.Pod, addresses []netip.Addr) *coe.Endpoints {
	e := &coe.Endpoints{
		UID:  stableUID(fmt.Sprintf("Endpoint %s/%s/%s", s.Namespace, s.Name, p.Name)),
		Name: s.Name, Namespace: s.Namespace, Addresses: addresses, PortsByName: true,
	}
	for _, port := range s.Ports {
		if number, found := targetPort(port, p); found {
			e.Ports = append(e.Ports, coe.EndpointPort{Name: port.Name, Protocol: port.Protocol, Port: number})
		}
	}
	return e
}

// targetPort returns the pod's port for a port of a service; false if no port of the pod has the
// name.
func targetPort(port coe.ServicePort, p *corev1.Pod) (uint16, bool) {
	if port.TargetPort == "" {
		return port.Port, true
	}
	if number, err := strconv.ParseUint(port.TargetPort, 10, 16); err == nil {
		return uint16(number), true
	}
	for c := range kube.LastingContainers(p) {
		for _, named := range c.Ports {
			protocol := strings.ToLower(cmp.Or(string(named.Protocol), "tcp"))
			if named.Name == port.TargetPort && protocol == port.Protocol {
				return uint16(named.ContainerPort), true
			}
		}
	}
	return 0, false
}

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// annotation is the annotation of a pod with its interface.
type annotation struct {
	Name     string         `json:"name"`
	Network  string         `json:"network"`
	IPs      []netip.Prefix `json:"ips"`
	MAC      string         `json:"mac"`
	Gateways []netip.Addr   `json:"gateways"`
	Default  bool           `json:"default"`
}

// fresh has the objects of a list from an API server.
type fresh struct {
	pods     []corev1.Pod
	nodes    map[string]netip.Addr // internal addresses by name
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

func list(ctx context.Context, c kubernetes.Interface) (*fresh, error) {
	all := metav1.ListOptions{}
	pods, err := c.CoreV1().Pods("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, all)
	if err != nil {
		return nil, err
	}
	services, err := c.CoreV1().Services("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	endpoints, err := c.DiscoveryV1().EndpointSlices("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	f := &fresh{pods: pods.Items, nodes: map[string]netip.Addr{}, services: services.Items, slices: endpoints.Items}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				f.nodes[n.Name] = netip.MustParseAddr(a.Address)
			}
		}
	}
	return f, nil
}

func hasNetwork(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// node returns the address of a pod's node. It is zero if the pod must not have a network.
func (f *fresh) node(p *corev1.Pod) netip.Addr {
	if !hasNetwork(p) {
		return netip.Addr{}
	}
	if a, found := f.nodes[p.Spec.NodeName]; found {
		return a
	}
	a, _ := netip.ParseAddr(p.Status.HostIP) // zero for none
	return a
}

// wanted returns the expected rows of the cluster, one in each line. The addresses are from the
// annotations of pods and the places of nodes. It fails if an annotation is missing or differs from the
// lease, or if two pods or nodes have the same address.
func (f *fresh) wanted(leases []lease, j joined, g gateways) ([]string, error) {
	w := &wantedRows{
		lines: map[string]bool{"router transit:100:1": true}, holders: map[netip.Addr]string{}, leases: map[string]lease{}, joined: j, gateways: g,
	}
	for _, l := range leases {
		if l.Released == "" {
			w.leases[l.PodUID] = l
		}
	}
	errs := []error{w.nodes(f)}
	for i := range f.pods {
		node := f.node(&f.pods[i])
		if !node.IsValid() && hasNetwork(&f.pods[i]) {
			node = w.leases[string(f.pods[i].UID)].Node // it keeps its former node, if it had one
		}
		if node.IsValid() {
			chassis := f.pods[i].Spec.NodeName
			if !f.nodes[chassis].IsValid() {
				chassis = "" // the name of the node is unknown
			}
			errs = append(errs, w.pod(&f.pods[i], node, chassis))
		}
	}
	for uid, l := range w.leases {
		errs = append(errs, fmt.Errorf("lease of %s (%s) is of no pod that needs one", l.Name, uid))
	}
	for i := range f.services {
		w.service(&f.services[i], f.slices)
	}
	errs = append(errs, w.switches(f, leases), w.reachable(f))
	var lines []string
	for line := range w.lines {
		lines = append(lines, line)
	}
	return lines, errors.Join(errs...)
}

type wantedRows struct {
	lines   map[string]bool
	holders map[netip.Addr]string
	leases  map[string]lease // of pods that were not checked yet
	joined  joined
	// gateways are nil in ovn.LayoutELAN.
	gateways gateways
}

func (w *wantedRows) add(format string, args ...any) { w.lines[fmt.Sprintf(format, args...)] = true }

func (w *wantedRows) pod(p *corev1.Pod, node netip.Addr, chassis string) error {
	name, elan := p.Namespace+":"+p.Name, node.String()+":"+p.Namespace
	var said []annotation
	if err := json.Unmarshal([]byte(p.Annotations["coe-bridge.io/interfaces"]), &said); err != nil {
		return fmt.Errorf("pod %s is annotated %q: %w", name, p.Annotations, err)
	}
	if len(said) != 1 {
		return fmt.Errorf("pod %s is annotated with %d interfaces", name, len(said))
	}
	i := said[0]
	if i.Name != name || i.Network != elan || !i.Default || len(i.IPs) == 0 || len(i.IPs) != len(i.Gateways) {
		return fmt.Errorf("pod %s on %s is annotated %+v", name, node, i)
	}
	if err := w.leased(p, i, node); err != nil {
		return err
	}
	var texts, networks []string
	for n, ip := range i.IPs {
		if other := w.holders[ip.Addr()]; other != "" {
			return fmt.Errorf("pods %s and %s both have %s", other, name, ip.Addr())
		}
		w.holders[ip.Addr()] = name
		network := w.networkOf(node, ip)
		if ip.Addr() == i.Gateways[n] || ip.Addr() == network.Addr() {
			return fmt.Errorf("pod %s has %s of network %s with gateway %s", name, ip.Addr(), network, i.Gateways[n])
		}
		texts = append(texts, ip.Addr().String())
		if p.Annotations["coe-bridge.io/dhcp"] != "" {
			networks = append(networks, network.String())
		}
	}
	on, err := w.network(p.Namespace, node, i)
	w.add("port %s on %s: %s %s, dhcp %s, pod %s, chassis %s", name, on, i.MAC, strings.Join(texts, " "),
		strings.Join(networks, " "), p.UID, chassis)
	return err
}

// network adds the rows of the network of a pod, and returns the switch of the pod.
func (w *wantedRows) network(namespace string, node netip.Addr, i annotation) (on string, err error) {
	if w.gateways != nil {
		return "node:" + node.String(), w.onNode(namespace, node, i)
	}
	for n, ip := range i.IPs {
		w.block(i.Network, namespace, ip, i.Gateways[n])
		w.leaves(node, ip.Masked())
	}
	w.namespace(namespace)
	w.add("switch %s", i.Network)
	return i.Network, nil
}

// leased fails unless the pod's lease matches its annotation.
func (w *wantedRows) leased(p *corev1.Pod, i annotation, node netip.Addr) error {
	l, found := w.leases[string(p.UID)]
	delete(w.leases, string(p.UID))
	var addresses []netip.Addr
	for _, ip := range i.IPs {
		addresses = append(addresses, ip.Addr())
	}
	if !found || l.Name != i.Name || l.Node != node || l.MAC != i.MAC || !slices.Equal(l.Addresses, addresses) {
		return fmt.Errorf("pod %s is annotated %+v and has lease %+v", p.Name, i, l)
	}
	return nil
}

// block adds the rows that connect the addresses of one network.
func (w *wantedRows) block(elan, namespace string, ip netip.Prefix, gateway netip.Addr) {
	at := elan + "/" + ip.Masked().String()
	w.add("router port router:%s of %s: %s", at, namespace, netip.PrefixFrom(gateway, ip.Bits()))
	w.add("port switch:%s on %s: router router:%s", at, elan, at)
	w.add("dhcp %s", ip.Masked())
	w.add("route of transit:100:1: %s by router:%s:from-transit", ip.Masked(), namespace)
}

// namespace adds the router of a namespace, and the rows that connect it with the others.
func (w *wantedRows) namespace(name string) {
	w.add("router %s", name)
	w.add("router port router:%s:to-transit of %s", name, name)
	w.add("router port router:%s:from-transit of transit:100:1", name)
	w.add("route of %s: 0.0.0.0/0 by router:%s:to-transit", name, name)
	w.add("route of %s: ::/0 by router:%s:to-transit", name, name)
}

// service adds a load balancer for each protocol.
func (w *wantedRows) service(s *corev1.Service, all []discoveryv1.EndpointSlice) {
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	vips := map[corev1.Protocol][]string{}
	for _, address := range slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs) {
		for _, port := range s.Spec.Ports {
			vip := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port.Port))
			vips[port.Protocol] = append(vips[port.Protocol],
				fmt.Sprintf("%s=%s", vip, strings.Join(backends(s, port, vip.Addr(), all), ",")))
		}
	}
	affinity := ""
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		affinity = strconv.Itoa(int(*s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds))
	}
	for protocol, of := range vips {
		slices.Sort(of)
		lower := strings.ToLower(string(protocol))
		w.add("balancer %s:%s:%s %s, affinity %q: %s", s.Namespace, s.Name, lower, lower, affinity, strings.Join(of, " "))
	}
}

// backends returns the endpoints of one port of a service, of the same family as a VIP. These are the
// ready endpoints. If there are none, these are the endpoints that terminate and still serve.
func backends(s *corev1.Service, port corev1.ServicePort, vip netip.Addr, all []discoveryv1.EndpointSlice) []string {
	var ready, serving []string
	for i := range all {
		slice := &all[i]
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, number := range numbers(slice, port) {
			for _, e := range slice.Endpoints {
				address := netip.MustParseAddr(e.Addresses[0])
				if address.Is4() != vip.Is4() {
					continue
				}
				text, c := netip.AddrPortFrom(address, number).String(), e.Conditions
				switch {
				case c.Ready == nil || *c.Ready:
					ready = append(ready, text)
				case c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating:
					serving = append(serving, text)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

// numbers returns the ports of a slice for a port of its service.
func numbers(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) []uint16 {
	var out []uint16
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if p.Port != nil && name == port.Name && protocol == port.Protocol {
			out = append(out, uint16(*p.Port))
		}
	}
	return out
}

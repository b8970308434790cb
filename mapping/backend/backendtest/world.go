package backendtest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// World is a small cluster that changes at random, and the model that it has.
// The model is legal at every step, and so is every way between two of them.
type World struct {
	rng      *rand.Rand
	isolated bool
	pods     []*pod
	services []*service
	born     int // pods and services so far
	// managed are the nodes that have a management port, while nothing is isolated.
	managed [nodes]bool
}

// pod is a pod with one interface.
type pod struct {
	ns, name, uid string
	node          int
	chassis       bool
	mac           string
	// slots are its places in its elan-instance's subnets, by family: address
	// and subnet follow from them. At least one is set.
	slots [families]int
}

// Families of addresses. A slot of family host is an address outside its
// subnet, which is its gateway alone.
const (
	ipv4 = iota
	ipv6
	host
	families
)

const (
	nodes     = 3
	slots     = 12 // per elan-instance and family, from 1
	blockSize = 5  // slots per block
	maxPods   = 20
)

// keepsOlderName is a long namespace whose vpn-instance an older release named.
const keepsOlderName = "old-namespace-of-more-than-forty-characters-0123"

var namespaces = []string{"default", keepsOlderName, "a-namespace-of-more-than-forty-characters-0123"}

type service struct {
	uid, ns, name string
	affinity      uint32
	addresses     []netip.Addr
	protocols     []netvirt.Protocol
	port          uint16
	pods          []*pod
	outside       bool // it leads to an address that is no pod's as well
}

// NewWorld returns an empty world. What becomes of it follows from the seed.
func NewWorld(seed uint64) *World {
	return &World{rng: rand.New(rand.NewPCG(seed, 0))}
}

// Step changes one thing, or a few at once.
func (w *World) Step() {
	for range 1 + w.rng.IntN(3) {
		w.change()
	}
}

func (w *World) change() {
	if len(w.pods) < 3 {
		w.addPod()
		return
	}
	changes := []func(){
		w.addPod, w.addPod, w.addPod, w.removePod, w.removePod, w.movePod, w.renewPod, w.swapAddresses, w.nameChassis,
		w.addService, w.addService, w.removeService, w.changeService, w.changeService, w.removeNamespace, w.isolate, w.manage,
	}
	changes[w.rng.IntN(len(changes))]()
}

// Clear removes all.
func (w *World) Clear() { w.pods, w.services, w.managed = nil, nil, [nodes]bool{} }

// AddPods adds pods, as many as the world has room for.
func (w *World) AddPods(n int) {
	for range n {
		w.addPod()
	}
}

func (w *World) addPod() {
	if len(w.pods) >= maxPods {
		return
	}
	w.born++
	p := &pod{
		ns: namespaces[w.rng.IntN(len(namespaces))], name: fmt.Sprintf("pod-%d", w.born), uid: w.uid(), node: w.rng.IntN(nodes),
		mac: fmt.Sprintf("0a:58:00:00:%02x:%02x", w.born/256, w.born%256),
	}
	if w.place(p) {
		w.pods = append(w.pods, p)
	}
}

func (w *World) uid() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", w.rng.Uint32(), w.born)
}

// place gives a pod slots that are free on its node; false when none is.
func (w *World) place(p *pod) bool {
	p.slots = [families]int{}
	switch w.rng.IntN(5) {
	case 0:
		p.slots[host] = w.freeSlot(p, host)
	case 1:
		p.slots[ipv4], p.slots[ipv6] = w.freeSlot(p, ipv4), w.freeSlot(p, ipv6)
	case 2:
		p.slots[ipv6] = w.freeSlot(p, ipv6)
	default:
		p.slots[ipv4] = w.freeSlot(p, ipv4)
	}
	return p.slots != [families]int{}
}

func (w *World) freeSlot(p *pod, family int) int {
	var taken [slots + 1]bool
	for _, other := range w.pods {
		if other != p && other.ns == p.ns && other.node == p.node {
			taken[other.slots[family]] = true
		}
	}
	for _, s := range w.rng.Perm(slots) {
		if !taken[s+1] {
			return s + 1
		}
	}
	return 0
}

func (w *World) anyPod() *pod { return w.pods[w.rng.IntN(len(w.pods))] }

func (w *World) removePod() {
	p := w.anyPod()
	w.pods = slices.DeleteFunc(w.pods, func(o *pod) bool { return o == p })
	for _, s := range w.services {
		s.pods = slices.DeleteFunc(s.pods, func(o *pod) bool { return o == p })
	}
}

func (w *World) movePod() {
	p := w.anyPod()
	was := *p
	p.node = (p.node + 1) % nodes
	if !w.place(p) {
		*p = was
	}
}

// renewPod has a pod of the same name come back as another.
func (w *World) renewPod() {
	w.born++
	w.anyPod().uid = w.uid()
}

// swapAddresses gives the addresses of two pods of one elan-instance to each other.
func (w *World) swapAddresses() {
	a, b := w.anyPod(), w.anyPod()
	if a.ns == b.ns && a.node == b.node {
		a.slots, b.slots = b.slots, a.slots
	}
}

func (w *World) nameChassis() {
	p := w.anyPod()
	p.chassis = !p.chassis
}

// Join gives every node a management port.
func (w *World) Join() {
	w.isolated = false
	for n := range w.managed {
		w.managed[n] = true
	}
}

// manage gives a node a management port, or takes it away.
func (w *World) manage() {
	n := w.rng.IntN(nodes)
	w.managed[n] = !w.managed[n]
}

func (w *World) isolate() { w.isolated = !w.isolated }

func (w *World) removeNamespace() {
	ns := w.anyPod().ns
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.ns == ns })
	for _, s := range w.services {
		s.pods = slices.DeleteFunc(s.pods, func(p *pod) bool { return p.ns == ns })
	}
	if w.rng.IntN(2) == 0 {
		w.services = slices.DeleteFunc(w.services, func(s *service) bool { return s.ns == ns })
	}
}

func (w *World) addService() {
	w.born++
	s := &service{
		uid: w.uid(), ns: namespaces[w.rng.IntN(len(namespaces))], name: fmt.Sprintf("service-%d", w.born),
		addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(w.born >> 8), byte(w.born)})},
	}
	if w.rng.IntN(3) == 0 {
		s.addresses = append(s.addresses, netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", w.born)))
	}
	w.services = append(w.services, s)
	w.vary(s)
}

func (w *World) removeService() {
	if len(w.services) > 0 {
		i := w.rng.IntN(len(w.services))
		w.services = slices.Delete(w.services, i, i+1)
	}
}

func (w *World) changeService() {
	if len(w.services) > 0 {
		w.vary(w.services[w.rng.IntN(len(w.services))])
	}
}

// vary chooses anew what may change of a service.
func (w *World) vary(s *service) {
	s.protocols = nil
	for _, p := range []netvirt.Protocol{netvirt.TCP, netvirt.UDP, netvirt.SCTP} {
		if w.rng.IntN(3) > 0 {
			s.protocols = append(s.protocols, p)
		}
	}
	s.affinity = uint32(w.rng.IntN(2)) * 10800
	s.outside = w.rng.IntN(4) == 0
	s.port = uint16(w.rng.IntN(3)) * 80
	s.pods = nil
	for _, p := range w.pods {
		if p.ns == s.ns && w.rng.IntN(2) == 0 {
			s.pods = append(s.pods, p)
		}
	}
}

// Model is the world's model, of all kinds.
func (w *World) Model() netvirt.Model {
	m := netvirt.Model{}
	if !w.isolated {
		m.Add(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})
		w.nodesModel(m)
	}
	for _, p := range w.pods {
		w.podModel(m, p)
	}
	sorted := slices.SortedFunc(slices.Values(w.services), func(a, b *service) int { return strings.Compare(a.uid, b.uid) })
	for _, s := range sorted {
		w.serviceModel(m, s)
	}
	return m
}

func (w *World) vpn(ns string) netvirt.VPNInstance {
	name := netvirt.VPNName(ns)
	if ns == keepsOlderName {
		name = netvirt.VPNNames(ns)[1]
	}
	v := netvirt.VPNInstance{
		Name: name, Namespace: ns, RouteDistinguisher: fmt.Sprintf("100:%d", 2+slices.Index(namespaces, ns)),
	}
	if !w.isolated {
		v.Transit = netvirt.CommonRouteTarget
	}
	return v
}

// nodesModel adds the nodes that have a management port.
func (w *World) nodesModel(m netvirt.Model) {
	network := netip.MustParsePrefix("100.96.0.0/16")
	for n, managed := range w.managed {
		if !managed {
			continue
		}
		m.Add(
			netvirt.Node{Address: nodeAddress(n)},
			netvirt.NodeNetwork{Prefix: network, Gateway: network.Addr().Next(), Transit: netvirt.CommonRouteTarget},
			netvirt.ManagementPort{
				Node: nodeAddress(n), Network: network, MAC: fmt.Sprintf("0a:58:64:60:00:%02x", 2+2*n), Chassis: fmt.Sprintf("node-%d", n),
				Address:        netip.AddrFrom4([4]byte{100, 96, 0, byte(2 + 2*n)}),
				ServiceAddress: netip.AddrFrom4([4]byte{100, 96, 0, byte(3 + 2*n)}),
			})
	}
}

func nodeAddress(n int) netip.Addr {
	if n == 2 {
		return netip.MustParseAddr("fd00:33::12")
	}
	return netip.AddrFrom4([4]byte{192, 168, 33, byte(10 + n)})
}

func (w *World) podModel(m netvirt.Model, p *pod) {
	node := nodeAddress(p.node)
	elan := netvirt.ELANName(node, p.ns)
	name := netvirt.InterfaceName(p.ns, p.name, "", true)
	chassis := ""
	if p.chassis {
		chassis = fmt.Sprintf("node-%d", p.node)
	}
	m.Add(
		netvirt.Node{Address: node},
		netvirt.ELANInstance{
			Name: elan, SegmentType: netvirt.SegmentVXLAN,
			SegmentationID: uint32(70000 + 10*slices.Index(namespaces, p.ns) + p.node),
		},
		w.vpn(p.ns),
		netvirt.Interface{
			Name: name, Namespace: p.ns, Pod: p.name, PodUID: p.uid, UID: p.uid, ParentInterface: netvirt.PortName(name, p.uid),
		},
		netvirt.ELANInterface{Name: name, Namespace: p.ns, ELAN: elan, Chassis: chassis},
		netvirt.VPNInterface{Name: name, Namespace: p.ns, VPN: w.vpn(p.ns).Name},
	)
	for family, slot := range p.slots {
		if slot == 0 {
			continue
		}
		address, subnet := w.address(p, family, slot)
		subnet.ELAN, subnet.VPN = elan, w.vpn(p.ns).Name
		m.Add(
			subnet,
			netvirt.MACEntry{Interface: name, Namespace: p.ns, MAC: p.mac, Address: address},
			netvirt.Adjacency{
				Interface: name, Namespace: p.ns, Address: address, MAC: p.mac,
				ELAN: elan, Network: subnet.Prefix, Gateway: subnet.Gateway,
			},
		)
	}
}

// address is a pod's address, and the subnet that it is of. Isolated namespaces
// have the same addresses.
func (w *World) address(p *pod, family, slot int) (netip.Addr, netvirt.Subnet) {
	ns := byte(1 + slices.Index(namespaces, p.ns))
	if w.isolated {
		ns = 0
	}
	block, at := byte((slot-1)/blockSize), byte(2+(slot-1)%blockSize)
	node := byte(p.node)
	dns := netvirt.NewAddrList(netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a"))
	switch family {
	case ipv4:
		return netip.AddrFrom4([4]byte{10, ns, node, 8*block + at}), netvirt.Subnet{
			Prefix:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, ns, node, 8 * block}), 29),
			Gateway: netip.AddrFrom4([4]byte{10, ns, node, 8*block + 1}), DNS: dns, LeaseTime: 7200,
		}
	case ipv6:
		at16 := func(last byte) netip.Addr {
			return netip.AddrFrom16([16]byte{0: 0xfd, 3: ns, 5: node, 7: block, 15: last})
		}
		return at16(at), netvirt.Subnet{Prefix: netip.PrefixFrom(at16(0), 120), Gateway: at16(1), DNS: dns}
	default:
		gateway := netip.AddrFrom4([4]byte{169, 254, 1, 1})
		return netip.AddrFrom4([4]byte{172, 16 + ns, node, byte(slot)}), netvirt.Subnet{
			Prefix: netip.PrefixFrom(gateway, 32), Gateway: gateway,
		}
	}
}

// serviceModel adds a service, its VIPs, and the floating IPs of its pods.
func (w *World) serviceModel(m netvirt.Model, s *service) {
	m.Add(netvirt.Service{UID: s.uid, Namespace: s.ns, Name: s.name, Affinity: s.affinity})
	for _, vip := range s.addresses {
		var endpoints []netip.AddrPort
		for _, p := range s.pods {
			for _, a := range w.addresses(p) {
				if a.Is4() == vip.Is4() {
					endpoints = append(endpoints, netip.AddrPortFrom(a, s.port))
					w.float(m, s, p, a, vip)
				}
			}
		}
		if s.outside && vip.Is4() {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 33, 10}), s.port))
		}
		for _, protocol := range s.protocols {
			m.Add(netvirt.ServiceVIP{
				Service: s.uid, Namespace: s.ns, Protocol: protocol, VIP: netip.AddrPortFrom(vip, s.port),
				Endpoints: netvirt.NewEndpointList(endpoints...),
			})
		}
	}
}

func (w *World) addresses(p *pod) []netip.Addr {
	var all []netip.Addr
	for family, slot := range p.slots {
		if slot != 0 {
			a, _ := w.address(p, family, slot)
			all = append(all, a)
		}
	}
	return all
}

// float adds a floating IP, unless a service of a lower uid has one for the pod.
func (w *World) float(m netvirt.Model, s *service, p *pod, internal, external netip.Addr) {
	f := netvirt.FloatingIP{
		Router: w.vpn(p.ns).Name, Port: netvirt.InterfaceName(p.ns, p.name, "", true), Namespace: p.ns,
		Internal: internal, External: external, ExternalID: s.uid,
	}
	if _, found := m[f.Key()]; !found {
		m.Add(f)
	}
}

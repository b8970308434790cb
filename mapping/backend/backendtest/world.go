package backendtest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// World is a small cluster that changes at random, and its model. The model is valid
// after every step.
type World struct {
	rng      *rand.Rand
	places   *rand.Rand // for the places of services
	routers  *rand.Rand // for the gateways
	isolated bool
	pods     []*pod
	services []*service
	born     int // number of pods and services so far
	// managed marks the nodes that have a management port or, while isolated is set, a port in
	// each of their elan-instances.
	managed  [nodes]bool
	gateways [nodes]byte // the version of the gateway of a managed node; 0 for none
	// attached is set if namespaces have physical networks, where the backend attaches them.
	attached bool
	policies policies
}

// pod is a pod with one interface.
type pod struct {
	ns, name, uid string
	node          int
	chassis       bool
	mac           string
	// slots holds the pod's slot in its elan-instance, by family. The slot determines
	// address and subnet. At least one is not 0.
	slots [families]int
}

// Families of addresses. A slot of family host has an address outside its subnet, which
// holds only the gateway.
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

// keepsOlderName is a long namespace whose vpn-instance has the name of an older release.
const keepsOlderName = "old-namespace-of-more-than-forty-characters-0123"

var namespaces = []string{"default", keepsOlderName, "a-namespace-of-more-than-forty-characters-0123"}

type service struct {
	uid, ns, name string
	affinity      uint32
	addresses     []netip.Addr
	protocols     []netvirt.Protocol
	port          uint16
	pods          []*pod
	outside       bool // it also has an endpoint that is not a pod
	// places is the number of nodes whose pods have endpoints of their own: those on the node, and on
	// the last of all nodes the same as elsewhere.
	places int
}

// NewWorld returns an empty world. The seed determines all its steps.
func NewWorld(seed uint64) *World {
	return &World{
		rng: rand.New(rand.NewPCG(seed, 0)), places: rand.New(rand.NewPCG(seed, 2)), routers: rand.New(rand.NewPCG(seed, 3)),
		attached: seed%2 == 1, policies: newPolicies(seed),
	}
}

// Step changes one thing, or a few at once.
func (w *World) Step() {
	for range 1 + w.rng.IntN(3) {
		w.change()
	}
	w.policies.step(w)
	if w.routers.IntN(4) == 0 {
		w.changeGateway()
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

// Clear removes all pods, services, management ports, gateways and policies.
func (w *World) Clear() {
	w.pods, w.services, w.managed, w.gateways = nil, nil, [nodes]bool{}, [nodes]byte{}
	w.policies.acls, w.policies.remotes = nil, nil
}

// AddPods adds up to n pods; a world has a maximum.
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

// place gives a pod free slots of its node. It reports whether there was one.
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

// renewPod replaces a pod by another pod of the same name.
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

// manage gives a node a management port, or removes it.
func (w *World) manage() {
	n := w.rng.IntN(nodes)
	w.managed[n] = !w.managed[n]
}

// changeGateway adds, changes or removes the gateway of a node.
func (w *World) changeGateway() {
	w.gateways[w.routers.IntN(nodes)] = byte(w.routers.IntN(4))
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

// vary chooses the variable properties of a service at random.
func (w *World) vary(s *service) {
	s.protocols = nil
	for _, p := range []netvirt.Protocol{netvirt.TCP, netvirt.UDP, netvirt.SCTP} {
		if w.rng.IntN(3) > 0 {
			s.protocols = append(s.protocols, p)
		}
	}
	s.affinity = uint32(w.rng.IntN(2)) * 10800
	s.outside = w.rng.IntN(4) == 0
	s.places = max(0, w.places.IntN(2*nodes)-nodes+1)
	s.port = uint16(w.rng.IntN(3)) * 80
	s.pods = nil
	for _, p := range w.pods {
		if p.ns == s.ns && w.rng.IntN(2) == 0 {
			s.pods = append(s.pods, p)
		}
	}
}

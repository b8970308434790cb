package odldiff

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
)

// namespacePrefix is what the namespaces of stories begin with.
const namespacePrefix = "story-"

const (
	nodesPerStory = 2
	podsPerStory  = 3 // at a time
)

// story makes up what happens to the pods, nodes and services of two namespaces that no other
// story has, one step after the other. It knows what has become of them: what the model has to
// be, and what Oxygen's renderer does of its own.
type story struct {
	number     int
	seed       uint64
	random     *rand.Rand
	namespaces []string
	nodes      []*node
	pods       []*pod // those that are told, or have a port
	services   []*service
	elans      map[string]segment // those that Oxygen has, each as its first pod said
	vpns       map[string]bool    // those that Oxygen has
	// left are the ports that outlived their pod, by interface.
	left   map[string][]string
	before []step
	// Numbers that were given out.
	uids, hosts, orders int
}

// step is one thing that happens: a request to both, or the arguments of ovs-vsctl for a port.
type step struct {
	what, method, path, body string
	port                     []string
}

func (s step) String() string {
	if s.port != nil {
		return fmt.Sprintf("%s: ovs-vsctl %q", s.what, s.port)
	}
	return fmt.Sprintf("%s: %s %s %s", s.what, s.method, s.path, s.body)
}

// newStory begins the story of a number from 0 to 249. One seed makes one story.
func newStory(number int, seed uint64) *story {
	s := &story{
		number: number, seed: seed, random: rand.New(rand.NewPCG(seed, uint64(number))),
		namespaces: []string{fmt.Sprintf("%s%03da", namespacePrefix, number), fmt.Sprintf("%s%03db", namespacePrefix, number)},
		elans:      map[string]segment{}, vpns: map[string]bool{}, left: map[string][]string{}, hosts: 1,
	}
	for n := range nodesPerStory {
		s.nodes = append(s.nodes, &node{
			uid: s.uid(), name: fmt.Sprintf("node-%d-%d", number, n),
			address: netip.AddrFrom4([4]byte{192, 168, byte(number), byte(n + 11)}),
		})
	}
	for _, namespace := range s.namespaces {
		s.services = append(s.services, &service{uid: s.uid(), name: "web", namespace: namespace, address: s.clusterIP()})
	}
	return s
}

func (s *story) uid() string {
	s.uids++
	return fmt.Sprintf("8f2a6d5e-0000-4000-8%03d-%012d", s.number, s.uids)
}

func (s *story) clusterIP() netip.Addr {
	s.hosts++
	return netip.AddrFrom4([4]byte{172, 20, byte(s.number), byte(s.hosts)})
}

// podAddress is one that no pod had before, for a pod on a node.
func (s *story) podAddress(p *pod, n *node) netip.Addr {
	s.hosts++
	if p.ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:10:%x:%x::%x", s.number, n.address.As4()[3], s.hosts))
	}
	return netip.AddrFrom4([4]byte{10, byte(s.number), n.address.As4()[3], byte(s.hosts)})
}

// act is a step that may come next, as likely as its weight.
type act struct {
	weight int
	take   func() step
}

// next is what happens next.
func (s *story) next() step {
	acts := s.arrivals()
	for _, p := range s.pods {
		acts = append(acts, s.podActs(p)...)
	}
	for _, n := range s.nodes {
		acts = append(acts, s.nodeActs(n)...)
	}
	for _, v := range s.services {
		acts = append(acts, s.serviceActs(v)...)
	}
	return s.told(s.choose(acts))
}

func (s *story) choose(acts []act) step {
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	at := s.random.IntN(sum)
	for _, a := range acts {
		if at -= a.weight; at < 0 {
			return a.take()
		}
	}
	panic("choose: no act has a weight")
}

func (s *story) told(st step) step {
	s.before = append(s.before, st)
	return st
}

// end is what is left to do until nothing is left; false when that is so.
func (s *story) end() (step, bool) {
	if len(s.pods) > 0 {
		p := s.pods[0]
		if p.plugged {
			return s.told(s.unplug(p)), true
		}
		return s.told(s.remove(p)), true
	}
	for _, v := range s.services {
		switch {
		case v.told:
			return s.told(s.removeService(v)), true
		case v.endpointsTold:
			return s.told(s.removeEndpoints(v)), true
		}
	}
	for _, n := range s.nodes {
		if n.told {
			return s.told(s.removeNode(n)), true
		}
	}
	return step{}, false
}

// arrivals are the ways in which a pod comes.
func (s *story) arrivals() []act {
	if len(s.pods) >= podsPerStory {
		return nil
	}
	arrive := func(scheduled, addressed bool, method, what string) func() step {
		return func() step {
			p := s.newPod()
			if scheduled {
				p.node = s.someNode()
			}
			if addressed {
				p.address = s.podAddress(p, s.someNode())
			}
			if scheduled && addressed {
				p.address = s.podAddress(p, p.node)
			}
			return s.put(p, method, what)
		}
	}
	return []act{
		{3, arrive(true, true, http.MethodPut, "a pod is put")},
		{2, arrive(true, true, http.MethodPost, "a pod is posted")},
		{2, arrive(false, false, http.MethodPut, "a pod that waits for a node is put")},
		{1, arrive(false, true, http.MethodPut, "a pod without a node is put")},
		{1, arrive(true, false, http.MethodPost, "a pod without an address is posted")},
		{2, func() step {
			p := s.newPod()
			p.node = s.someNode()
			p.address = s.podAddress(p, p.node)
			return s.plug(p)
		}},
	}
}

func (s *story) someNode() *node { return s.nodes[s.random.IntN(len(s.nodes))] }

// newPod is one whose name another had before now and then, whose port may still be there.
func (s *story) newPod() *pod {
	p := &pod{uid: s.uid(), namespace: s.namespaces[s.random.IntN(3)/2], segment: s.someSegment(), ipv6: s.random.IntN(6) == 0}
	for _, o := range s.pods {
		if o.gone && s.random.IntN(2) == 0 {
			p.namespace, p.name = o.namespace, o.name
		}
	}
	for p.name == "" || s.taken(p) {
		p.name = fmt.Sprintf("p%d", s.random.IntN(podsPerStory+1))
	}
	if p.ipv6 || s.random.IntN(3) == 0 {
		p.wantsMAC = fmt.Sprintf("0a:70:00:00:%02x:%02x", s.number, s.uids)
	}
	s.pods = append(s.pods, p)
	return p
}

// taken tells whether another pod has the name of p.
func (s *story) taken(p *pod) bool {
	return slices.ContainsFunc(s.pods, func(o *pod) bool { return !o.gone && o.interfaceName() == p.interfaceName() })
}

// someSegment is one of few, so that pods of a namespace have now the same and now another.
func (s *story) someSegment() segment {
	all := []segment{{"VXLAN", 7}, {"VXLAN", 7}, {"VXLAN", 8}, {"VXLAN", 0}, {"GRE", 7}, {"VLAN", 7}, {"VLAN", 9}, {"FLAT", 0}, {"FLAT", 5}}
	return all[s.random.IntN(len(all))]
}

// podActs are what may happen to a pod.
func (s *story) podActs(p *pod) []act {
	if p.gone {
		return []act{{2, func() step { return s.unplug(p) }}}
	}
	if !p.told {
		return []act{{6, func() step { return s.put(p, http.MethodPut, "a pod is put whose port is there") }}}
	}
	acts := []act{
		{1, func() step { return s.put(p, http.MethodPut, "a pod is put again") }},
		{1, func() step { return s.refused(p) }},
		{2, func() step { return s.remove(p) }},
	}
	if !p.mapped() {
		return append(acts, act{5, func() step { return s.schedule(p) }})
	}
	acts = append(acts,
		act{1, func() step { return s.readdress(p) }},
		act{1, func() step { return s.move(p) }},
		act{1, func() step { return s.resegment(p) }})
	if p.plugged {
		return append(acts, act{1, func() step { return s.unplug(p) }})
	}
	return append(acts, act{5, func() step { return s.plug(p) }})
}

func (s *story) schedule(p *pod) step {
	p.node = s.someNode()
	p.address = s.podAddress(p, p.node)
	p.made = false
	return s.put(p, http.MethodPut, "a pod is scheduled")
}

func (s *story) readdress(p *pod) step {
	p.address = s.podAddress(p, p.node)
	p.made = false
	return s.put(p, http.MethodPut, "a pod gets another address")
}

func (s *story) move(p *pod) step {
	p.node = s.nodes[(slices.Index(s.nodes, p.node)+1)%len(s.nodes)]
	p.address = s.podAddress(p, p.node)
	p.made = false
	return s.put(p, http.MethodPut, "a pod moves to another node")
}

func (s *story) resegment(p *pod) step {
	p.segment = s.someSegment()
	return s.put(p, http.MethodPut, "a pod's segment changes")
}

// put tells of a pod as it is now. Who has another place or address is not made.
func (s *story) put(p *pod, method, what string) step {
	st := step{what: what, method: method, path: p.path(), body: p.body()}
	if method == http.MethodPost {
		st.path = "pod:coe"
	}
	p.told = true
	s.render(p)
	if p.mapped() && !p.made {
		p.gateway = p.node.gateway(p.address)
	}
	if p.mapped() && p.order == 0 {
		s.orders++
		p.order = s.orders
	}
	p.made = p.node != nil
	return st
}

// render does with a pod what Oxygen's renderer does: it makes interfaces of who has another
// place or address as if the pod were new, and what comes of a port once it comes.
func (s *story) render(p *pod) {
	if p.node == nil || p.made {
		return
	}
	p.attached = false
	if _, found := s.elans[p.elanName()]; !found {
		s.elans[p.elanName()] = p.segment
	}
	s.vpns[p.namespace] = true
	if p.waiting && p.address.IsValid() {
		p.attach()
	}
}

func (p *pod) attach() {
	p.waiting, p.attached = false, true
	p.member = &adjacency{p.address, p.node.address, p.mac()}
}

func (s *story) plug(p *pod) step {
	p.plugged = true
	if p.mapped() {
		p.attach()
	} else {
		p.waiting = true
	}
	id := func(key, value string) string { return fmt.Sprintf("external_ids:%s=%q", key, value) }
	return step{what: "a port is plugged in", port: []string{
		"add-port", "br-int", p.portName(), "--", "set", "Interface", p.portName(),
		id("iface-id", p.interfaceName()), id("iface-id-ver", p.uid), id("attached-mac", p.mac()),
	}}
}

func (s *story) unplug(p *pod) step {
	p.plugged = false
	s.forget(p)
	return step{what: "a port is taken out", port: []string{"del-port", "br-int", p.portName()}}
}

// refused posts a pod that is there.
func (s *story) refused(p *pod) step {
	return step{what: "a pod is posted that is there", method: http.MethodPost, path: "pod:coe", body: p.body()}
}

func (s *story) remove(p *pod) step {
	p.told, p.gone, p.renderer = false, true, renderer{}
	if p.plugged {
		s.left[p.interfaceName()] = append(s.left[p.interfaceName()], p.portName())
	}
	s.forget(p)
	return step{what: "a pod is deleted", method: http.MethodDelete, path: p.path()}
}

func (s *story) forget(p *pod) {
	if !p.told && !p.plugged {
		s.pods = slices.DeleteFunc(s.pods, func(o *pod) bool { return o == p })
	}
}

func (s *story) nodeActs(n *node) []act {
	tell := act{1, func() step {
		n.told = true
		n.podCIDR = s.someCIDR(n)
		return step{what: "a node is put", method: http.MethodPut, path: n.path(), body: n.body()}
	}}
	if !n.told {
		tell.weight = 3
	}
	return []act{tell, {1, func() step { return s.removeNode(n) }}}
}

// removeNode deletes a node, be it there or not.
func (s *story) removeNode(n *node) step {
	n.told = false
	return step{what: "a node is deleted", method: http.MethodDelete, path: n.path()}
}

// someCIDR holds the node's pods, with their gateway where Oxygen guesses it, or not.
func (s *story) someCIDR(n *node) netip.Prefix {
	last := n.address.As4()[3]
	net := netip.AddrFrom4([4]byte{10, byte(s.number), last, 0})
	switch s.random.IntN(6) {
	case 0:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(s.number), 0, 0}), 16)
	case 1:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(s.number), last, 128}), 25)
	case 2:
		return netip.Prefix{}
	}
	return netip.PrefixFrom(net, 24)
}

func (s *story) serviceActs(v *service) []act {
	return []act{
		{1, func() step {
			if v.told && s.random.IntN(2) == 0 {
				v.address = s.clusterIP()
			}
			v.told = true
			return step{what: "a service is put", method: http.MethodPut, path: v.path(), body: v.body()}
		}},
		{1, func() step {
			v.endpoints, v.endpointsTold = s.someAddresses(v.namespace), true
			return step{what: "endpoints are put", method: http.MethodPut, path: v.endpointsPath(), body: v.endpointsBody()}
		}},
		{1, func() step {
			if s.random.IntN(2) == 0 {
				return s.removeService(v)
			}
			return s.removeEndpoints(v)
		}},
	}
}

func (s *story) removeService(v *service) step {
	v.told = false
	return step{what: "a service is deleted", method: http.MethodDelete, path: v.path()}
}

func (s *story) removeEndpoints(v *service) step {
	v.endpoints, v.endpointsTold = nil, false
	return step{what: "endpoints are deleted", method: http.MethodDelete, path: v.endpointsPath()}
}

// someAddresses are those of some pods of a namespace, and of nobody.
func (s *story) someAddresses(namespace string) []netip.Addr {
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{10, byte(s.number), 99, 99})}
	for _, p := range s.pods {
		if p.namespace == namespace && p.address.IsValid() && s.random.IntN(3) > 0 {
			addresses = append(addresses, p.address)
		}
	}
	return addresses
}

// mapped are the pods that have a network, those first that had it first.
func (s *story) mapped() []*pod {
	pods := slices.DeleteFunc(slices.Clone(s.pods), func(p *pod) bool { return !p.mapped() })
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.order, b.order) })
	return pods
}

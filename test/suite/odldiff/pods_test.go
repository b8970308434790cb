package odldiff

import (
	"fmt"
	"net/http"
	"slices"
)

// arrivals returns the ways in which a pod can be created.
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

// newPod returns a new pod. It sometimes has the name of an earlier pod, whose port may still exist.
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

// taken reports whether another pod has the name of p.
func (s *story) taken(p *pod) bool {
	return slices.ContainsFunc(s.pods, func(o *pod) bool { return !o.gone && o.interfaceName() == p.interfaceName() })
}

// someSegment returns one of a few segments, so that pods of a namespace sometimes have the same one.
func (s *story) someSegment() segment {
	all := []segment{{"VXLAN", 7}, {"VXLAN", 7}, {"VXLAN", 8}, {"VXLAN", 0}, {"GRE", 7}, {"VLAN", 7}, {"VLAN", 9}, {"FLAT", 0}, {"FLAT", 5}}
	return all[s.random.IntN(len(all))]
}

// podActs returns the possible steps of a pod.
func (s *story) podActs(p *pod) []act {
	if p.gone {
		return []act{{2, func() step { return s.unplug(p) }}}
	}
	if !p.told {
		return []act{{6, func() step { return s.put(p, http.MethodPut, "a pod is put whose port exists") }}}
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

// put writes the present state of the pod.
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

// render updates the state of a pod in Oxygen's renderer. The renderer creates the interfaces again if
// the pod has another node or address, as if it were new. It creates the rest when the port is plugged
// in.
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
	return step{what: "a port is unplugged", port: []string{"del-port", "br-int", p.portName()}}
}

// refused posts a pod that already exists.
func (s *story) refused(p *pod) step {
	return step{what: "a pod is posted that already exists", method: http.MethodPost, path: "pod:coe", body: p.body()}
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

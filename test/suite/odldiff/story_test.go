package odldiff

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// namespacePrefix is the prefix of the names of the stories' namespaces.
const namespacePrefix = "story-"

const (
	nodesPerStory = 2
	podsPerStory  = 3 // at the same time
)

// story invents the steps of the pods, nodes and services of two namespaces, which belong to no other
// story. It keeps the expected model, and the state of Oxygen's renderer.
type story struct {
	number     int
	seed       uint64
	random     *rand.Rand
	namespaces []string
	nodes      []*node
	pods       []*pod // the pods that are written or have a port
	services   []*service
	elans      map[string]segment // the elan-instances in Oxygen, with the segments of their first pods
	vpns       map[string]bool    // the vpn-instances in Oxygen
	// left has the ports of deleted pods, by interface.
	left   map[string][]string
	before []step
	// The last used numbers.
	uids, hosts, orders int
}

// step is a step of a story: a request to both, or the arguments of ovs-vsctl for a port.
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

// newStory begins the story with a number from 0 to 249. The number and the seed determine the story.
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

// podAddress returns an unused address for a pod on a node.
func (s *story) podAddress(p *pod, n *node) netip.Addr {
	s.hosts++
	if p.ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:10:%x:%x::%x", s.number, n.address.As4()[3], s.hosts))
	}
	return netip.AddrFrom4([4]byte{10, byte(s.number), n.address.As4()[3], byte(s.hosts)})
}

// act is a possible next step, with a weight for its probability.
type act struct {
	weight int
	take   func() step
}

// next returns the next step.
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
	at, n := s.random.IntN(sum), 0
	for ; at >= acts[n].weight; n++ {
		at -= acts[n].weight
	}
	return acts[n].take()
}

func (s *story) told(st step) step {
	s.before = append(s.before, st)
	return st
}

// end returns the next step of the cleanup, or false if nothing is left.
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

// mapped returns the pods with a network, oldest first.
func (s *story) mapped() []*pod {
	pods := slices.DeleteFunc(slices.Clone(s.pods), func(p *pod) bool { return !p.mapped() })
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.order, b.order) })
	return pods
}

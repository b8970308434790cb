package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Cluster is a World that is prepared for many questions. Its methods may be called concurrently.
type Cluster struct {
	pods      []*pod // sorted by namespace and name
	byName    map[podName]*pod
	byAddress map[netip.Addr][]*pod   // pods that have the address for themselves
	nodes     map[string][]netip.Addr // sorted addresses by name
	nodeOf    map[netip.Addr]string
}

type podName struct{ namespace, name string }

// pod is a pod, and the policies that apply to it.
type pod struct {
	Pod
	index           int
	ingress, egress []*side // of the policies that isolate the pod, sorted by name
}

func (p *pod) sides(d coe.Direction) *[]*side {
	if d == coe.Ingress {
		return &p.ingress
	}
	return &p.egress
}

// side is one direction of a policy that isolates its pods.
type side struct {
	policy *coe.PolicySpec
	rules  []rule
}

// rule is a rule with its peers that are pods as sets.
type rule struct {
	*coe.PolicyRule
	pods []set // by peer; nil for a block of addresses
}

// set is a set of pods by their index.
type set []uint64

func (s set) has(index int) bool { return s[index/64]&(1<<(index%64)) != 0 }
func (s set) add(index int)      { s[index/64] |= 1 << (index % 64) }

// Compile prepares a World. It keeps the World's values, which must not change afterwards.
func Compile(w World) *Cluster {
	c := &Cluster{
		byName: map[podName]*pod{}, byAddress: map[netip.Addr][]*pod{},
		nodes: map[string][]netip.Addr{}, nodeOf: map[netip.Addr]string{},
	}
	for _, n := range w.Nodes {
		c.nodes[n.Name] = nil
		for _, a := range n.Addresses {
			c.addNodeAddress(n.Name, a)
		}
	}
	labels := map[string]coe.Labels{}
	for _, n := range w.Namespaces {
		labels[n.Name] = n.Labels
	}
	for _, p := range w.Pods {
		p.Labels = coe.PodLabels(labels[p.Namespace], p.Labels)
		c.pods = append(c.pods, &pod{Pod: p})
	}
	slices.SortFunc(c.pods, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i, p := range c.pods {
		p.index = i
		c.byName[podName{p.Namespace, p.Name}] = p
		c.addAddresses(p)
	}
	for _, addresses := range c.nodes {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	c.addPolicies(coe.LimitPolicies(c.withUnknown(w.Policies), c.numbers()), labels)
	return c
}

func (c *Cluster) addNodeAddress(node string, a netip.Addr) {
	if slices.Contains(c.nodes[node], a) {
		return
	}
	c.nodes[node] = append(c.nodes[node], a)
	if before, found := c.nodeOf[a]; !found || node < before {
		c.nodeOf[a] = node
	}
}

func (c *Cluster) addAddresses(p *pod) {
	for _, a := range p.Addresses {
		switch {
		case p.Finished:
		case p.HostNetwork && p.Node == "": // it has no node yet
		case p.HostNetwork:
			c.addNodeAddress(p.Node, a)
		default:
			c.byAddress[a] = append(c.byAddress[a], p)
		}
	}
}

// withUnknown returns policies, and what stands for the security profiles that pods name and that
// are not among the policies.
func (c *Cluster) withUnknown(policies []*coe.PolicySpec) []*coe.PolicySpec {
	known := map[string]bool{}
	for _, p := range policies {
		known[p.Pods.Profile()] = true
	}
	all := slices.Clone(policies)
	for _, p := range c.pods {
		for name := range p.Labels.Profiles() {
			if !known[name] {
				known[name] = true
				all = append(all, coe.UnknownProfile(name))
			}
		}
	}
	return all
}

// numbers returns how many numbers the pods of a namespace, or of all, have for a named port.
func (c *Cluster) numbers() func(coe.NamedPort) int {
	known := map[coe.NamedPort]map[uint16]bool{}
	for _, p := range c.pods {
		if p.HostNetwork || p.Finished {
			continue
		}
		for _, port := range p.Ports {
			for _, namespace := range []string{p.Namespace, ""} {
				name := coe.NamedPort{Name: port.Name, Protocol: port.Protocol, Namespace: namespace}
				if known[name] == nil {
					known[name] = map[uint16]bool{}
				}
				known[name][port.Port] = true
			}
		}
	}
	return func(name coe.NamedPort) int { return len(known[name]) }
}

// addPolicies compiles the policies, which are sorted by name, so that the order of the World does
// not decide which rule an answer names. labels are of namespaces.
func (c *Cluster) addPolicies(policies []*coe.PolicySpec, labels map[string]coe.Labels) {
	s := selection{cluster: c, labels: labels, known: map[string]set{}}
	for _, p := range policies {
		selected := s.pods(p.Namespace, nil, &p.Pods)
		for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
			if !p.Side(d).Isolates {
				continue
			}
			compiled := s.side(p, d)
			for _, pod := range c.pods {
				if selected.has(pod.index) {
					sides := pod.sides(d)
					*sides = append(*sides, compiled)
				}
			}
		}
	}
}

// selection finds the pods that selectors select. It keeps the sets by selector, because
// policies repeat selectors.
type selection struct {
	cluster *Cluster
	labels  map[string]coe.Labels // of namespaces
	known   map[string]set
}

func (s *selection) side(p *coe.PolicySpec, d coe.Direction) *side {
	out := &side{policy: p}
	for i := range p.Side(d).Rules {
		r := rule{PolicyRule: &p.Side(d).Rules[i]}
		for j := range r.Peers {
			peer := &r.Peers[j]
			var pods set
			if peer.Block == nil {
				pods = s.pods(p.Namespace, peer.Namespaces, &peer.Pods)
			}
			r.pods = append(r.pods, pods)
		}
		out.rules = append(out.rules, r)
	}
	return out
}

// pods returns the pods that a selector selects in namespaces, or in own if namespaces is nil; in all
// namespaces if own is empty too.
// Pods on the host network are never selected. Nothing asks about finished pods.
func (s *selection) pods(own string, namespaces, pods *coe.Selector) set {
	key := own + "\n" + pods.String()
	if namespaces != nil {
		key = "\n" + namespaces.String() + "\n" + pods.String()
	}
	if found := s.known[key]; found != nil {
		return found
	}
	selected := make(set, len(s.cluster.pods)/64+1)
	for _, p := range s.cluster.pods {
		switch {
		case p.HostNetwork:
		case namespaces == nil && own != "" && p.Namespace != own:
		case namespaces != nil && !namespaces.Matches(s.labels[p.Namespace]):
		case pods.Matches(p.Labels):
			selected.add(p.index)
		}
	}
	s.known[key] = selected
	return selected
}

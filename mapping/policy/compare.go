package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Change lists ports between two groups of ends that are opened or closed when the World
// changes. It is about every pair of different ends of the same family, one of each group.
type Change struct {
	From, To Group
	// Family is 4 or 6 if the change is only about one family; 0: every family of the ends.
	Family         int
	Opened, Closed []PortRange // maximal ranges, sorted; not both are empty
}

// Group is ends that are treated alike: pods, nodes, and addresses outside of the cluster.
type Group struct {
	Namespaces []PodGroup // sorted by namespace
	AllPods    bool       // all pods of all namespaces
	// Nodes are the names of nodes, sorted. The own node of a pod is never meant: it always
	// reaches the pod.
	Nodes    []string
	AllNodes bool
	Blocks   []*coe.AddressBlock
}

// PodGroup is pods of one namespace, sorted by name.
type PodGroup struct {
	Namespace string
	Pods      []string
	All       bool // the pods are all pods of the namespace
}

// Compare returns the paths that a change of the World opens and closes, grouped. It is about the
// pods and nodes that are in both Worlds with the same addresses, and about blocks of addresses
// outside. Finished pods are left out, and pods on the host network count as their node.
func Compare(before, after *Cluster) []Change {
	m := newComparison(before, after)
	for d, pod := range m.subjects() {
		for _, peer := range m.pods {
			m.comparePods(d, pod, peer)
		}
		for _, node := range m.nodes {
			m.compareNodes(d, pod, node)
		}
		m.compareBlocks(d, pod)
	}
	return m.changes()
}

// both is an end before and after a change.
type both struct{ before, after End }

func (b both) node() string { return b.after.pod.Node }

// class is ends of one family that all policies treat alike. As far as the own nodes of its pods
// go, they differ.
type class struct {
	ends    []both
	name    string // unique; for the order
	changed map[coe.Direction]bool
	// peerChanged is set if rules that stay the same match the ends no longer, or newly, or if
	// the ends have other named ports, which count in both directions.
	peerChanged bool
	block       *coe.AddressBlock // if it is a block, there are no ends
}

// comparison has the state of a Compare.
type comparison struct {
	before, after *Cluster
	sides         map[*side]int // the same number for a policy that is the same in both
	rules         []*sideRules
	pods, nodes   []*class
	blocks        map[string]*class
	podCount      map[string]int // compared pods by namespace
	nodeCount     int
	facts         map[string]*fact // by ports and family
}

// sideRules are the rules of one side of a policy before and after the change.
type sideRules struct{ before, after []rule }

// fact is pairs of classes of one family with the same opened and closed ports.
type fact struct {
	opened, closed []PortRange
	family         int
	to             map[*class]map[*class]bool // from, by to
}

func newComparison(before, after *Cluster) *comparison {
	m := &comparison{
		before: before, after: after, sides: map[*side]int{},
		blocks: map[string]*class{}, podCount: map[string]int{}, facts: map[string]*fact{},
	}
	m.addSides()
	pods, nodes := map[string]*class{}, map[string]*class{}
	for _, p := range before.pods {
		q := after.byName[podName{p.Namespace, p.Name}]
		if q == nil || p.HostNetwork || q.HostNetwork {
			continue
		}
		if m.add(pods, before.endsOf(p), after.endsOf(q)) {
			m.podCount[p.Namespace]++
		}
	}
	for name := range before.nodes {
		if _, found := after.nodes[name]; found && m.add(nodes, before.nodeEnds(name), after.nodeEnds(name)) {
			m.nodeCount++
		}
	}
	m.pods, m.nodes = sortedClasses(pods), sortedClasses(nodes)
	return m
}

func sortedClasses(all map[string]*class) []*class {
	return slices.SortedFunc(maps.Values(all), func(a, b *class) int { return cmp.Compare(a.name, b.name) })
}

// addSides numbers the sides of all policies that isolate a pod.
func (m *comparison) addSides() {
	type name struct {
		namespace, name string
		direction       coe.Direction
	}
	known := map[name]*side{}
	each(m.before, func(d coe.Direction, s *side) {
		if _, found := m.sides[s]; !found {
			known[name{s.policy.Namespace, s.policy.Name, d}] = s
			m.sides[s] = len(m.rules)
			m.rules = append(m.rules, &sideRules{before: s.rules})
		}
	})
	each(m.after, func(d coe.Direction, s *side) {
		if _, found := m.sides[s]; found {
			return
		}
		if old := known[name{s.policy.Namespace, s.policy.Name, d}]; old != nil && reflect.DeepEqual(old.policy.Side(d), s.policy.Side(d)) {
			m.sides[s] = m.sides[old]
			m.rules[m.sides[s]].after = s.rules
			return
		}
		m.sides[s] = len(m.rules)
		m.rules = append(m.rules, &sideRules{after: s.rules})
	})
}

func each(c *Cluster, do func(coe.Direction, *side)) {
	for _, p := range c.pods {
		for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
			for _, s := range *p.sides(d) {
				do(d, s)
			}
		}
	}
}

// add adds the ends of a pod or a node that are in both Clusters to their classes, and reports
// whether there are any.
func (m *comparison) add(classes map[string]*class, before, after []End) (found bool) {
	for _, b := range before {
		for _, a := range after {
			if a.addr != b.addr {
				continue
			}
			one := m.classOf(both{b, a})
			if classes[one.name] == nil {
				classes[one.name] = one
			}
			classes[one.name].ends = append(classes[one.name].ends, both{b, a})
			found = true
		}
	}
	return found
}

// classOf returns the class of an end, without ends. Its name is all that decides about them.
func (m *comparison) classOf(e both) *class {
	c := &class{changed: map[coe.Direction]bool{}}
	var name strings.Builder
	fmt.Fprint(&name, familyOf(e.after.addr))
	for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
		before, after := m.numbers(e.before, d), m.numbers(e.after, d)
		c.changed[d] = !slices.Equal(before, after)
		fmt.Fprint(&name, d, before, after)
	}
	for i, r := range m.rules {
		before, after := matching(r.before, e.before), matching(r.after, e.after)
		if r.before != nil && r.after != nil && !slices.Equal(before, after) {
			c.peerChanged = true
		}
		if len(before)+len(after) > 0 {
			fmt.Fprint(&name, " ", i, before, after)
		}
	}
	if e.after.isPoliced() {
		before, after := m.namedPorts(e.before), m.namedPorts(e.after)
		c.peerChanged = c.peerChanged || !slices.Equal(before, after)
		fmt.Fprint(&name, before, after)
	}
	c.name = name.String()
	return c
}

func familyOf(a netip.Addr) int {
	switch {
	case !a.IsValid():
		return 0
	case a.Is4():
		return 4
	}
	return 6
}

// numbers returns the numbers of the sides that isolate an end in a direction.
func (m *comparison) numbers(e End, d coe.Direction) (numbers []int) {
	if !e.isPoliced() {
		return nil
	}
	for _, s := range *e.pod.sides(d) {
		numbers = append(numbers, m.sides[s])
	}
	slices.Sort(numbers)
	return numbers
}

// matching returns the indexes of the rules that match a peer.
func matching(rules []rule, peer End) (indexes []int) {
	for i := range rules {
		if len(rules[i].Peers) > 0 && rules[i].matchesPeer(peer) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// namedPorts returns the ports of an end that a rule names, sorted.
func (m *comparison) namedPorts(e End) []coe.ContainerPort {
	ports := slices.DeleteFunc(slices.Clone(e.pod.Ports), func(p coe.ContainerPort) bool {
		return !slices.ContainsFunc(m.rules, func(r *sideRules) bool { return names(r.before, p) || names(r.after, p) })
	})
	slices.SortFunc(ports, func(a, b coe.ContainerPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return ports
}

func names(rules []rule, port coe.ContainerPort) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return slices.ContainsFunc(r.Ports, func(p coe.PolicyPort) bool { return p.Name != "" && p.Name == port.Name })
	})
}

// subjects yields each class of pods with each direction.
func (m *comparison) subjects() func(yield func(coe.Direction, *class) bool) {
	return func(yield func(coe.Direction, *class) bool) {
		for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
			for _, pod := range m.pods {
				if !yield(d, pod) {
					return
				}
			}
		}
	}
}

// comparePods compares the connections between two classes of pods if something has changed for
// them. The first is the one whose policies decide in a direction.
func (m *comparison) comparePods(d coe.Direction, self, peer *class) {
	if !self.changed[d] && !self.peerChanged && !peer.peerChanged {
		return
	}
	from, to := ordered(d, self, peer)
	for _, a := range self.ends[:min(2, len(self.ends))] { // the second if the first is the same pod
		for _, b := range peer.ends[:min(2, len(peer.ends))] {
			if a.after.pod != b.after.pod && SameFamily(a.after, b.after) {
				x, y := ordered(d, a, b)
				m.compare(from, to, x, y)
				return
			}
		}
	}
}

// ordered returns what decides in a direction, and its peer, in the order of the connection.
func ordered[T any](d coe.Direction, self, peer T) (from, to T) {
	if d == coe.Egress {
		return self, peer
	}
	return peer, self
}

// compareNodes compares the connections between a class of pods and a class of nodes. They are
// about another node than the pod's own.
func (m *comparison) compareNodes(d coe.Direction, self, node *class) {
	if !self.changed[d] && !self.peerChanged && !node.peerChanged {
		return
	}
	from, to := ordered(d, self, node)
	for _, n := range node.ends[:min(2, len(node.ends))] { // the second for pods that are all on the first
		for _, p := range self.ends {
			if p.node() != n.after.node && SameFamily(p.after, n.after) {
				x, y := ordered(d, p, n)
				m.compare(from, to, x, y)
				return
			}
		}
	}
}

// compareBlocks compares the connections between a class of pods and addresses outside.
func (m *comparison) compareBlocks(d coe.Direction, self *class) {
	if !self.changed[d] && !self.peerChanged {
		return
	}
	pod := self.ends[0]
	for _, block := range blocks(d, pod.before, pod.after) {
		if a := anyOf(block); a.IsValid() {
			name := block.String()
			if m.blocks[name] == nil {
				m.blocks[name] = &class{block: block, name: name}
			}
			from, to := ordered(d, self, m.blocks[name])
			x, y := ordered(d, pod, both{Outside(a), Outside(a)})
			m.compare(from, to, x, y)
		}
	}
}

// compare compares the connections of one end to another. The ends represent their classes.
func (m *comparison) compare(from, to *class, x, y both) {
	before, after := m.before.OpenPorts(x.before, y.before), m.after.OpenPorts(x.after, y.after)
	opened, closed := without(after, before), without(before, after)
	if len(opened)+len(closed) == 0 {
		return
	}
	family := max(familyOf(x.after.addr), familyOf(y.after.addr))
	key := fmt.Sprint(opened, closed, family)
	f := m.facts[key]
	if f == nil {
		f = &fact{opened: opened, closed: closed, family: family, to: map[*class]map[*class]bool{}}
		m.facts[key] = f
	}
	if f.to[to] == nil {
		f.to[to] = map[*class]bool{}
	}
	f.to[to][from] = true
}

// without returns the ports that are in the first and not in the second list of sorted ranges.
func without(ports, not []PortRange) (left []PortRange) {
	for _, p := range ports {
		first := int(p.First)
		for _, n := range not {
			if n.Protocol != p.Protocol || int(n.Last) < first || n.First > p.Last {
				continue
			}
			if int(n.First) > first {
				left = append(left, PortRange{p.Protocol, uint16(first), n.First - 1})
			}
			first = int(n.Last) + 1
		}
		if first <= int(p.Last) {
			left = append(left, PortRange{p.Protocol, uint16(first), p.Last})
		}
	}
	return left
}

package policy

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// End is one end of a connection: a pod with one of its addresses, a node with one of its
// addresses, or an address outside of the cluster. The zero value is an end outside whose address
// is not known.
type End struct {
	pod  *pod   // nil if the end is not a pod
	node string // of a pod on the host network, and of a node's address; else empty
	addr netip.Addr
}

// Pod returns the end's pod; nil if it is not a pod.
func (e End) Pod() *Pod {
	if e.pod == nil {
		return nil
	}
	return &e.pod.Pod
}

// Node returns the name of the node if the end is a node, or a pod on the host network.
func (e End) Node() string { return e.node }

// Addr returns the address; the zero value if a pod's address is not known.
func (e End) Addr() netip.Addr { return e.addr }

// From returns the end with another address, which a node can have in the network of the pods.
func (e End) From(a netip.Addr) End {
	e.addr = a
	return e
}

// isPoliced reports whether policies can select the end.
func (e End) isPoliced() bool { return e.pod != nil && !e.pod.HostNetwork }

// Policies returns the policies that isolate the end in a direction, sorted by namespace and name.
func (e End) Policies(d coe.Direction) []*coe.PolicySpec {
	if !e.isPoliced() {
		return nil
	}
	var policies []*coe.PolicySpec
	for _, s := range *e.pod.sides(d) {
		policies = append(policies, s.policy)
	}
	return policies
}

// Pods returns the ends of all pods, sorted by namespace and name.
func (c *Cluster) Pods() []End {
	var all []End
	for _, p := range c.pods {
		all = append(all, c.endsOf(p)...)
	}
	return all
}

// Pod returns the ends of a pod, one for each address; without an address if none is known. A
// finished pod has no end. found reports whether the pod exists.
func (c *Cluster) Pod(namespace, name string) (ends []End, found bool) {
	p, found := c.byName[podName{namespace, name}]
	if !found {
		return nil, false
	}
	return c.endsOf(p), true
}

func (c *Cluster) endsOf(p *pod) []End {
	if p.Finished {
		return nil
	}
	end, addresses := End{pod: p}, p.Addresses
	if p.HostNetwork {
		end.node = p.Node
		if of := c.nodes[p.Node]; len(of) > 0 {
			addresses = of
		}
	}
	if len(addresses) == 0 {
		return []End{end}
	}
	ends := make([]End, len(addresses))
	for i, a := range addresses {
		end.addr = a
		ends[i] = end
	}
	return ends
}

// At returns the ends that have an address: the pods that have it for themselves, or the node,
// or else an end outside.
func (c *Cluster) At(a netip.Addr) []End {
	var ends []End
	for _, p := range c.byAddress[a] {
		ends = append(ends, End{pod: p, addr: a})
	}
	if len(ends) == 0 {
		ends = append(ends, End{node: c.nodeOf[a], addr: a})
	}
	return ends
}

// Outside returns an end with an address that neither a pod nor a node has.
func Outside(a netip.Addr) End { return End{addr: a} }

// Reason is why a side of a connection allows or denies it.
type Reason string

// The reasons. All but Denied allow.
const (
	Itself      Reason = "itself"       // both ends are the same pod
	OwnNode     Reason = "own-node"     // the other end is the pod's own node
	NotPoliced  Reason = "not-policed"  // the end is not a pod, or it is a pod on the host network
	NotIsolated Reason = "not-isolated" // no policy selects the pod in this direction
	ByRule      Reason = "rule"         // a rule allows it
	Denied      Reason = "denied"       // policies select the pod, and none of their rules allows it
)

// Side is what the policies of one end say about a connection.
type Side struct {
	Reason Reason
	// Policy and Rule are the first rule that allows it, if the reason is ByRule: the first by
	// namespace and name of the policy. Rule is the index in the policy.
	Policy *coe.PolicySpec
	Rule   int
	// Isolating are the policies that select the pod in this direction, sorted by name. It is set
	// if the reason is ByRule or Denied.
	Isolating []*coe.PolicySpec
}

// Verdict is the answer to a question.
type Verdict struct {
	Allowed bool
	// Egress is the side of the end that connects, Ingress the side of the other end.
	Egress, Ingress Side
}

// Allowed reports whether an end may connect to a port of another. If both have an address,
// the addresses must be of the same family.
func (c *Cluster) Allowed(from, to End, port Port) bool {
	for _, d := range []coe.Direction{coe.Egress, coe.Ingress} {
		if reason, _, _ := judge(d, from, to, port); reason == Denied {
			return false
		}
	}
	return true
}

// Judge is Allowed with reasons.
func (c *Cluster) Judge(from, to End, port Port) Verdict {
	v := Verdict{Egress: explain(coe.Egress, from, to, port), Ingress: explain(coe.Ingress, from, to, port)}
	v.Allowed = v.Egress.Reason != Denied && v.Ingress.Reason != Denied
	return v
}

func explain(d coe.Direction, from, to End, port Port) Side {
	reason, by, index := judge(d, from, to, port)
	side := Side{Reason: reason}
	if reason == ByRule {
		side.Policy, side.Rule = by.policy, index
	}
	if reason == ByRule || reason == Denied {
		side.Isolating = subject(d, from, to).Policies(d)
	}
	return side
}

// subject returns the end whose policies decide in a direction.
func subject(d coe.Direction, from, to End) End {
	if d == coe.Egress {
		return from
	}
	return to
}

// other returns the end whose policies do not decide in a direction.
func other(d coe.Direction, from, to End) End {
	if d == coe.Egress {
		return to
	}
	return from
}

// judge judges one side of a connection. If a rule allows it, it returns the rule.
func judge(d coe.Direction, from, to End, port Port) (Reason, *side, int) {
	self, peer := subject(d, from, to), other(d, from, to)
	if reason := exempt(d, self, peer); reason != "" {
		return reason, nil, 0
	}
	for _, s := range *self.pod.sides(d) {
		for i := range s.rules {
			if s.rules[i].matchesPeer(peer) && s.rules[i].matchesPort(to, port) {
				return ByRule, s, i
			}
		}
	}
	return Denied, nil, 0
}

// exempt returns why an end allows all connections with a peer in a direction; empty if its
// policies decide.
func exempt(d coe.Direction, self, peer End) Reason {
	switch {
	case !self.isPoliced():
		return NotPoliced
	case self.pod == peer.pod:
		return Itself
	case peer.node != "" && peer.node == self.pod.Node:
		return OwnNode
	case len(*self.pod.sides(d)) == 0:
		return NotIsolated
	}
	return ""
}

func (r *rule) matchesPeer(peer End) bool {
	if !r.Family.Has(peer.addr) {
		return false
	}
	if len(r.Peers) == 0 {
		return true
	}
	for i, pods := range r.pods {
		if pods == nil {
			if r.Peers[i].Block.Contains(peer.addr) {
				return true
			}
		} else if peer.pod != nil && pods.has(peer.pod.index) {
			return true
		}
	}
	return false
}

// matchesPort reports whether a rule has a port. In both directions a name stands for the numbers
// that the destination has for it.
func (r *rule) matchesPort(to End, port Port) bool {
	if len(r.Ports) == 0 {
		return true
	}
	for i := range r.Ports {
		p := &r.Ports[i]
		switch {
		case p.Protocol != port.Protocol:
		case p.Name != "":
			if slices.Contains(named(to, p), PortRange{port.Protocol, port.Number, port.Number}) {
				return true
			}
		case p.Last == 0 || p.First <= port.Number && port.Number <= p.Last:
			return true
		}
	}
	return false
}

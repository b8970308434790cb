package coe

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Limits for all network policies of a namespace. In the order of a PolicySet, a policy that exceeds
// one together with the policies before it fails closed: it allows nothing. Above MaxOtherNumbers only
// the named ports of its egress rules fail closed for pods of other namespaces, because tenants of these
// namespaces choose the numbers.
const (
	// MaxNamespaceRules is the maximum number of rules, and of numbers for their named ports. A named
	// port of a rule counts once for each number that pods of the namespace have for it, and at
	// least once. Numbers of other pods do not count: other tenants must not close a policy.
	MaxNamespaceRules = 25_000
	// MaxNamespaceGroups is the maximum number of different lists of peers with a namespaceSelector.
	// A pod of any namespace can be in all these lists, and is a row in each.
	MaxNamespaceGroups = 256
	// MaxOtherNumbers is the maximum number of numbers that pods of all namespaces have for the named
	// ports of egress rules that can lead to other namespaces. Each rule counts apart.
	MaxOtherNumbers = 2_500
)

// PolicyUse is how much of the limits for a namespace a policy needs.
type PolicyUse struct {
	rules  int               // without the numbers of named ports
	named  map[NamedPort]int // uses of named ports
	others map[NamedPort]int // uses of named ports of all namespaces
	groups map[[sha256.Size]byte]bool
}

// NewPolicyUse returns what a policy needs.
func NewPolicyUse(p *PolicySpec) *PolicyUse {
	u := &PolicyUse{named: map[NamedPort]int{}, others: map[NamedPort]int{}, groups: map[[sha256.Size]byte]bool{}}
	for i := range p.Egress.Rules {
		rule := &p.Egress.Rules[i]
		for _, port := range rule.Ports {
			if port.Name != "" && rule.LeavesNamespace() {
				u.others[NamedPort{Name: port.Name, Protocol: port.Protocol}]++
			}
		}
	}
	for rule := range p.Rules() {
		u.rules++
		for _, port := range rule.Ports {
			if port.Name != "" {
				u.rules++
				u.named[NamedPort{Name: port.Name, Protocol: port.Protocol, Namespace: p.Namespace}]++
			}
		}
		if slices.ContainsFunc(rule.Peers, func(p PolicyPeer) bool { return p.Namespaces != nil }) {
			u.groups[peersKey(rule.Peers)] = true
		}
	}
	return u
}

// peersKey returns a key that is equal for equal lists of peers.
func peersKey(peers []PolicyPeer) [sha256.Size]byte {
	texts := make([]string, len(peers))
	for i := range peers {
		p := &peers[i]
		switch {
		case p.Block != nil:
			texts[i] = p.Block.String()
		case p.Namespaces != nil:
			texts[i] = fmt.Sprintf("%q %q", p.Namespaces.String(), p.Pods.String())
		default:
			texts[i] = fmt.Sprintf("%q", p.Pods.String())
		}
	}
	slices.Sort(texts)
	return sha256.Sum256([]byte(strings.Join(slices.Compact(texts), "\n")))
}

// namespaceUse is how much of the limits the policies of a namespace need so far.
type namespaceUse struct {
	rules, others int
	groups        map[[sha256.Size]byte]bool
}

// add adds the use of a policy. If that exceeds a limit, it changes nothing and names the limit.
func (n *namespaceUse) add(u *PolicyUse, numbers func(NamedPort) int) (excess string) {
	rules := n.rules + u.rules
	if rules <= MaxNamespaceRules { // else the numbers need not be counted
		for port, uses := range u.named {
			rules += uses * max(numbers(port)-1, 0)
		}
	}
	if rules > MaxNamespaceRules {
		return fmt.Sprintf("it and the policies of the namespace before it have more than %d rules and numbers of named ports", MaxNamespaceRules)
	}
	more := len(n.groups)
	for key := range u.groups {
		if !n.groups[key] {
			more++
		}
		if more > MaxNamespaceGroups {
			return fmt.Sprintf("it and the policies of the namespace before it have more than %d different lists of peers with a namespaceSelector", MaxNamespaceGroups)
		}
	}
	n.rules = rules
	for key := range u.groups {
		n.groups[key] = true
	}
	return ""
}

// addOthers adds the numbers of named ports of all namespaces. If they exceed the limit, it changes
// nothing and names the limit.
func (n *namespaceUse) addOthers(u *PolicyUse, numbers func(NamedPort) int) (excess string) {
	others := n.others
	for port, uses := range u.others {
		others += uses * numbers(port)
	}
	if others > MaxOtherNumbers {
		return fmt.Sprintf("pods of all namespaces have more than %d numbers for the named ports of egress rules to other namespaces, in it and the policies of the namespace before it",
			MaxOtherNumbers)
	}
	n.others = others
	return ""
}

// LimitedPolicy is what stands for a policy that exceeds a limit for its namespace.
type LimitedPolicy struct {
	*PolicySpec
	Limit string // that it exceeds, and what follows from it
}

// LimitedPolicies returns what stands for the policies of a namespace that exceed a limit for all its
// policies. use returns the NewPolicyUse of a policy, and numbers how many numbers the pods of a namespace have
// for a named port; of all namespaces if the port has none.
func LimitedPolicies(policies []*PolicySpec, use func(*PolicySpec) *PolicyUse, numbers func(NamedPort) int) map[*PolicySpec]LimitedPolicy {
	slices.SortFunc(policies, (*PolicySpec).Compare)
	total := namespaceUse{groups: map[[sha256.Size]byte]bool{}}
	limited := map[*PolicySpec]LimitedPolicy{}
	for _, p := range policies {
		if excess := total.add(use(p), numbers); excess != "" {
			limited[p] = LimitedPolicy{p.closed(excess),
				excess + "; it isolates the pods that it selects, and allows nothing: use another namespace, or remove policies or rules"}
		} else if excess := total.addOthers(use(p), numbers); excess != "" {
			limited[p] = LimitedPolicy{p.narrowed(),
				excess + "; a named port of its egress rules means only pods of its own namespace: use numbers instead of names"}
		}
	}
	return limited
}

// Compare compares two policies by namespace, name and UID, like the order of a PolicySet.
func (p *PolicySpec) Compare(other *PolicySpec) int {
	return cmp.Or(cmp.Compare(p.Namespace, other.Namespace), cmp.Compare(p.Name, other.Name), cmp.Compare(p.UID, other.UID))
}

// Close makes a policy fail closed: it isolates its pods in both directions, and has no rules. A
// selector above a limit selects all pods. invalid says what is wrong, if something is.
func (p *PolicySpec) Close(invalid string) {
	p.Invalid, p.Ingress = invalid, PolicySide{Isolates: true}
	p.Egress = p.Ingress
	if p.Pods.Excess() != "" {
		p.Pods = Selector{}
	}
}

// closed returns a copy of a policy that fails closed.
func (p *PolicySpec) closed(invalid string) *PolicySpec {
	out := *p
	out.Close(invalid)
	return &out
}

// narrowed returns what stands for a policy if named ports of its egress rules must not mean pods of
// other namespaces.
func (p *PolicySpec) narrowed() *PolicySpec {
	out := *p
	out.Egress.Rules = slices.Clone(p.Egress.Rules)
	for i := range out.Egress.Rules {
		rule := &out.Egress.Rules[i]
		rule.Ports = slices.Clone(rule.Ports)
		for j := range rule.Ports {
			if port := &rule.Ports[j]; port.Name != "" {
				port.Namespace = p.Namespace
			}
		}
	}
	return &out
}

// LimitPolicies returns policies in the order of a PolicySet. A policy that exceeds a limit for its
// namespace is replaced by what stands for it. numbers returns how many numbers the pods of a
// namespace have for a named port; of all namespaces if the port has none.
func LimitPolicies(policies []*PolicySpec, numbers func(NamedPort) int) []*PolicySpec {
	all := slices.SortedFunc(slices.Values(policies), (*PolicySpec).Compare)
	for first := 0; first < len(all); {
		end := first + 1
		for end < len(all) && all[end].Namespace == all[first].Namespace {
			end++
		}
		if all[first].Namespace != "" { // access lists have no limits for a namespace
			limited := LimitedPolicies(all[first:end], NewPolicyUse, numbers)
			for i, p := range all[first:end] {
				all[first+i] = cmp.Or(limited[p].PolicySpec, p)
			}
		}
		first = end
	}
	return all
}

package backendtest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// policies are the ACLs and remote groups of a world. They have their own random numbers, so a
// world has the same pods and services with them and without them.
type policies struct {
	rng     *rand.Rand
	born    int // number of ACLs and remote groups so far
	acls    []*acl
	remotes []*remote
}

// acl is an ACL with its rules.
type acl struct {
	netvirt.ACL
	rules []netvirt.ACE
	pods  map[*pod]bool // the members
	late  bool          // it does not exist yet, although interfaces name it; only the ACL of a node
}

// remote is a remote group. While namespaces are isolated it has members of its namespace only.
type remote struct {
	netvirt.RemoteGroup
	pods map[*pod]bool
	late bool // it does not exist yet
}

const maxPolicies = 6 // ACLs, and remote groups

func newPolicies(seed uint64) policies { return policies{rng: rand.New(rand.NewPCG(seed, 1))} }

// step changes an ACL or a remote group, or nothing.
func (p *policies) step(w *World) {
	changes := []func(*World){p.addACL, p.addRemote, p.changeACL, p.changeRemote, p.changeRemote, p.remove, func(*World) {}}
	changes[p.rng.IntN(len(changes))](w)
}

func (p *policies) addACL(w *World) {
	if len(p.acls) >= maxPolicies {
		return
	}
	p.born++
	ns := namespaces[p.rng.IntN(len(namespaces))]
	one := netvirt.ACL{Name: fmt.Sprintf("%s:acl-%d", ns, p.born), Namespace: ns}
	if p.rng.IntN(3) == 0 {
		one = netvirt.ACL{Name: netvirt.NodeACLName(nodeAddress(p.born))}
	}
	p.acls = append(p.acls, &acl{ACL: one})
	p.varyACL(w, p.acls[len(p.acls)-1])
}

func (p *policies) addRemote(w *World) {
	if len(p.remotes) >= maxPolicies {
		return
	}
	p.born++
	ns := namespaces[p.rng.IntN(len(namespaces))]
	p.remotes = append(p.remotes, &remote{RemoteGroup: netvirt.RemoteGroup{Name: fmt.Sprintf("peers_%d", p.born), Namespace: ns}})
	p.varyRemote(w, p.remotes[len(p.remotes)-1])
}

func (p *policies) changeACL(w *World) {
	if len(p.acls) > 0 {
		p.varyACL(w, p.acls[p.rng.IntN(len(p.acls))])
	}
}

func (p *policies) changeRemote(w *World) {
	if len(p.remotes) > 0 {
		p.varyRemote(w, p.remotes[p.rng.IntN(len(p.remotes))])
	}
}

// remove removes an ACL or a remote group. Rules can still name the remote group.
func (p *policies) remove(*World) {
	if len(p.acls) > 0 && p.rng.IntN(2) == 0 {
		i := p.rng.IntN(len(p.acls))
		p.acls = slices.Delete(p.acls, i, i+1)
	} else if len(p.remotes) > 0 {
		i := p.rng.IntN(len(p.remotes))
		p.remotes = slices.Delete(p.remotes, i, i+1)
	}
}

// varyACL chooses the direction, the rules and the members of an ACL at random. An ACL that isolates
// or has several rules logs.
func (p *policies) varyACL(w *World, a *acl) {
	ports := []netvirt.PortList{"", "tcp", "tcp:80", "sctp:7,tcp:80,tcp:443", "tcp:8000-9000,udp:53"}
	a.Isolates = []netvirt.Direction{"", netvirt.Ingress, netvirt.Egress}[p.rng.IntN(3)]
	a.rules = nil
	for n := range p.rng.IntN(4) {
		rule := netvirt.ACE{
			ACL: a.Name, Namespace: a.Namespace, Name: fmt.Sprintf("ingress-policy-%d", n), Direction: netvirt.Ingress, Family: netvirt.IPv4,
			Ports: ports[p.rng.IntN(len(ports))],
		}
		if p.rng.IntN(2) == 0 {
			rule.Direction, rule.Family = netvirt.Egress, netvirt.IPv6
		}
		if len(p.remotes) > 0 && p.rng.IntN(4) > 0 {
			rule.Remote = p.remotes[p.rng.IntN(len(p.remotes))].Name
		}
		a.rules = append(a.rules, rule)
	}
	a.Logs = a.Isolates != "" || len(a.rules) > 1
	if a.Withholds, a.Yields = "", len(a.rules)%2 == 1; a.Isolates != "" {
		a.Withholds = ports[len(a.rules)]
	}
	a.pods = p.somePods(w)
	a.late = a.Namespace == "" && p.rng.IntN(3) == 0
}

// varyRemote chooses the prefixes and the members of a remote group at random.
func (p *policies) varyRemote(w *World, r *remote) {
	var prefixes []netip.Prefix
	for _, text := range []string{"10.0.0.0/8", "0.0.0.0/0", "10.1.0.2/32", "fd00::/16", "fd00::2/128"} {
		if p.rng.IntN(2) == 0 {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
	}
	r.Prefixes = netvirt.NewPrefixList(prefixes...)
	r.late = p.rng.IntN(4) == 0
	r.pods = p.somePods(w)
}

func (p *policies) somePods(w *World) map[*pod]bool {
	chosen := map[*pod]bool{}
	for _, one := range w.pods {
		chosen[one] = p.rng.IntN(2) == 0
	}
	return chosen
}

// model adds the ACLs, the remote groups and their members.
func (p *policies) model(m netvirt.Model, w *World) {
	for _, a := range p.acls {
		if a.late {
			continue
		}
		m.Add(a.ACL)
		for _, rule := range a.rules {
			m.Add(rule)
		}
	}
	for _, r := range p.remotes {
		group := r.RemoteGroup
		if !w.isolated {
			group.Namespace = ""
		}
		if !r.late {
			m.Add(group)
			r.egress(m)
		}
	}
	for _, one := range w.pods {
		o := netvirt.InterfaceACL{
			Interface: netvirt.InterfaceName(one.ns, one.name, "", true), Namespace: one.ns,
			SecurityGroups: p.groupsOf(one), RemoteGroups: p.remotesOf(one, w.isolated),
		}
		if o.SecurityGroups != "" || o.RemoteGroups != "" {
			m.Add(o)
		}
	}
}

// egress lets every other remote group leave the network by egress ports, if there is a node network.
func (r *remote) egress(m netvirt.Model) {
	var number uint16
	_, _ = fmt.Sscanf(r.Name, "peers_%d", &number)
	for _, o := range m {
		network, ok := o.(netvirt.NodeNetwork)
		if !ok || number%2 == 0 {
			continue
		}
		out := netvirt.EgressIP{Name: r.Name, Group: r.Name, Network: network.Prefix, Transit: network.Transit, Number: number}
		for i := range len(r.pods) % 3 {
			out.Hosts[i] = netvirt.EgressHost{Node: nodeAddress(i), Chassis: fmt.Sprintf("node-%d", i)}
			out.Active = uint8(i + 1)
		}
		m.Add(out)
		return
	}
}

func (p *policies) groupsOf(one *pod) netvirt.NameList {
	var names []string
	for _, a := range p.acls {
		if a.pods[one] && (a.Namespace == one.ns || a.Namespace == "") {
			names = append(names, a.Name)
		}
	}
	return netvirt.NewNameList(names...)
}

func (p *policies) remotesOf(one *pod, isolated bool) netvirt.NameList {
	var names []string
	for _, r := range p.remotes {
		if r.pods[one] && (!isolated || r.Namespace == one.ns) {
			names = append(names, r.Name)
		}
	}
	return netvirt.NewNameList(names...)
}

package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// deadAfter is how long a node must be silent until it counts as dead. interval is how often nodes are asked, and
// pace how often while a step waits for one.
const (
	deadAfter = 1500 * time.Millisecond
	interval  = 250 * time.Millisecond
	pace      = 50 * time.Millisecond
	// unfitFor is how long a node gets no address again for which it is unfit. prepareFor is how long it may prepare one.
	unfitFor   = time.Minute
	prepareFor = 10 * time.Second
	// Open vSwitch uses cached flows for a time after all hosts follow. Until then some packets leave by the former node, and only
	// there answers find their connection. settle is how long no packet must have come in there, and settleBy how long the
	// bridge waits for that. linger is how long the port of the former node stays, from the beginning of settle.
	settle   = time.Second
	settleBy = 10 * time.Second
	linger   = 2 * time.Second
	// agentGone is how long the agent of a holder may be silent until that is a problem. It may restart meanwhile.
	agentGone = time.Minute
)

// facts are what a decision depends on.
type facts struct {
	now   time.Time
	specs []*coe.EgressSpec // the oldest first
	// listed is false while there may be more specs: then those before stay.
	listed bool
	nodes  map[netip.Addr]*coe.Node
	// numbered reports whether a node has a management port.
	numbered func(netip.Addr) bool
	peers    map[netip.Addr]*peer
	// refuse returns why an address cannot be an egress address; nil if it can.
	refuse func(netip.Addr) *coe.Refusal
	// since is the time at which each temporary state began, as the decision before has returned it. noteSlow notes that a node has
	// not prepared an address in time.
	since    map[string]time.Time
	noteSlow func(node, addr netip.Addr)
	// inForce reports whether the network has an EgressIP as it is, on every host.
	inForce func(*coe.EgressIP) bool
}

// decision is a Set that follows another one.
type decision struct {
	Set
	problems []coe.Problem
	waits    bool                 // for an answer of a node or the network
	lasting  map[string]time.Time // facts.since of the next decision
	*facts
	before Set
	places map[netip.Addr]*Place // of before, as far as they were computed
}

// decide returns the Set that follows from another one, the problems, and whether a step waits. A call makes at most
// one step of each EgressIP.
func decide(before Set, f *facts) *decision {
	d := &decision{facts: f, before: before, lasting: map[string]time.Time{}, places: map[netip.Addr]*Place{}}
	if f.listed {
		d.accept()
	} else {
		for _, e := range before.EgressIPs {
			same := *e
			d.EgressIPs = append(d.EgressIPs, &same)
		}
	}
	for _, e := range d.EgressIPs {
		d.place(e)
	}
	slices.SortFunc(d.EgressIPs, func(a, b *coe.EgressIP) int { return strings.Compare(a.Name, b.Name) })
	return d
}

func (d *decision) problem(uid, name string, reason coe.Reason, format string, args ...any) {
	d.problems = append(d.problems, coe.Problem{Kind: coe.EgressKind, UID: uid, Name: name, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// accept follows what the source requests, as far as it is valid. Otherwise the former state stays: selected pods never
// leave with the address of a node.
func (d *decision) accept() {
	accepted, owners := map[string]*coe.EgressIP{}, map[netip.Addr]string{}
	for _, e := range d.before.EgressIPs {
		accepted[e.Name] = e
	}
	for _, s := range d.specs {
		if e := accepted[s.Name]; e != nil && e.Address.IsValid() {
			owners[e.Address] = s.Name
		}
	}
	for _, s := range d.specs {
		next := &coe.EgressIP{Name: s.Name}
		if e := accepted[s.Name]; e != nil {
			*next = *e
		}
		if s.Invalid != "" {
			if next.Number != 0 {
				d.EgressIPs = append(d.EgressIPs, next)
			}
			d.problem(s.UID, s.Name, coe.PolicyInvalid, "%s; what was accepted before stays in force", s.Invalid)
			continue
		}
		if next.Number == 0 {
			if next.Number = d.number(); next.Number == 0 {
				d.problem(s.UID, s.Name, coe.IDsExhausted, "there are %d EgressIPs already; its pods leave with the addresses of nodes", netvirt.MaxEgressIPs)
				continue
			}
		}
		next.UID, next.Namespaces, next.Pods = s.UID, s.Namespaces, s.Pods
		d.address(s, next, owners)
		d.EgressIPs = append(d.EgressIPs, next)
	}
}

// number returns a number that no EgressIP has: above all others if possible, because the lower one takes precedence.
// It is 0 if there is none.
func (d *decision) number() uint16 {
	taken := map[uint16]bool{}
	last := uint16(0)
	for _, e := range slices.Concat(d.before.EgressIPs, d.EgressIPs) {
		taken[e.Number] = true
		last = max(last, e.Number)
	}
	if last < netvirt.MaxEgressIPs {
		return last + 1
	}
	for n := uint16(1); n <= netvirt.MaxEgressIPs; n++ {
		if !taken[n] {
			return n
		}
	}
	return 0
}

// address follows the requested address, unless it is refused or belongs to another EgressIP.
func (d *decision) address(s *coe.EgressSpec, e *coe.EgressIP, owners map[netip.Addr]string) {
	then := "its pods leave with the former address " + e.Address.String()
	if !e.Address.IsValid() {
		then = "its pods do not leave the cluster"
	}
	var refused *coe.Refusal
	if s.InvalidAddress != "" {
		refused = &coe.Refusal{Reason: coe.AddressInvalid, Message: s.InvalidAddress}
	} else {
		refused = d.refuse(s.Address)
	}
	switch owner := owners[s.Address]; {
	case refused != nil && (s.InvalidAddress != "" || s.Address != e.Address):
		d.problem(s.UID, s.Name, refused.Reason, "%s; %s", refused.Message, then)
	case refused != nil:
		d.problem(s.UID, s.Name, refused.Reason, "%s; its pods leave with it until it is edited", refused.Message)
	case owner != "" && owner != s.Name:
		d.problem(s.UID, s.Name, coe.AddressTaken, "address %s belongs to egressip %s; %s", s.Address, owner, then)
	default:
		e.Address, owners[s.Address] = s.Address, s.Name
	}
}

// place makes the next step of an EgressIP towards a node that lives and may hold it.
func (d *decision) place(e *coe.EgressIP) {
	if host := e.Host(); host.IsValid() && d.peers[host].agentIsGone(d.now) {
		d.problem(e.UID, e.Name, coe.AgentSilent, "node %s holds address %s and answers, but its agent has not answered for a minute or more: "+
			"the node goes on translating, and the address cannot move. Restart its agent, or stop the node", host, e.Address)
	}
	if e.Active > 0 && d.unconfirmed(e) {
		d.problem(e.UID, e.Name, coe.AgentSilent, "node %s holds address %s, and its agent has not confirmed for %s that it is in force: see the log of the agent",
			e.Host(), e.Address, prepareFor)
	}
	switch {
	case !e.Address.IsValid():
		e.Hosts, e.Active, e.Owner = [2]netip.Addr{}, 0, 0
	case e.Active == 0:
		d.begin(e)
	case e.Owner != e.Active && e.Owner > 0 && d.fails(e):
		e.Active = e.Owner // back; move removes the other port
	case e.Owner != e.Active && !d.peers[e.Host()].dead(d.now):
		d.takeOver(e)
	case d.peers[e.Host()].dead(d.now):
		d.replace(e)
	case e.Hosts[2-e.Active].IsValid():
		d.move(e)
	case d.leaves(e):
		d.prepare(e)
	}
}

// unconfirmed reports whether the agent of the holder answers, and has not confirmed its part for long.
func (d *decision) unconfirmed(e *coe.EgressIP) bool {
	host := e.Host()
	return e.Owner == e.Active && d.peers[host].answers(d.now) && !d.acknowledged(e, host) && d.lasts("holds", e, host, prepareFor)
}

// fails reports whether a move must end, although the former node lives, because the next one is gone, or because one of their
// agents is silent: both must change their NIC. The next node can be as good as gone while nobody has asked it yet.
func (d *decision) fails(e *coe.EgressIP) bool {
	former, next := e.Hosts[e.Owner-1], e.Host()
	switch {
	case d.peers[former].dead(d.now), d.nodes[former] == nil:
		return false
	case !d.eligible(next) || d.peers[next].dead(d.now):
		return true
	case d.peers[former].unknown(d.now) || d.peers[next].unknown(d.now):
		return false
	}
	return !d.peers[former].answers(d.now) || !d.peers[next].answers(d.now)
}

// begin lets a node prepare the port of an EgressIP whose pods do not leave yet, and then lets them leave by it.
func (d *decision) begin(e *coe.EgressIP) {
	e.Owner = 0
	for i, host := range e.Hosts {
		switch {
		case !host.IsValid():
		case !d.fits(host, e.Address):
			e.Hosts[i] = netip.Addr{}
		case d.tooSlow(e, host):
			e.Hosts[i] = netip.Addr{}
		case d.acknowledged(e, host):
			e.Hosts[1-i], e.Active, e.Owner = netip.Addr{}, uint8(i+1), uint8(i+1)
			return
		default:
			d.waits = true
			return
		}
	}
	best := d.best(e, true, d.prepares)
	if !best.IsValid() {
		d.homeless(e, "its pods do not leave the cluster")
		return
	}
	e.Hosts, d.waits = [2]netip.Addr{best}, true
}

// takeOver gives the address to the node by which the pods leave, once no packet leaves by the former one.
func (d *decision) takeOver(e *coe.EgressIP) {
	if e.Owner > 0 && !d.peers[e.Hosts[e.Owner-1]].dead(d.now) && (!d.peers[e.Host()].answers(d.now) || !d.gives(e.Hosts[e.Owner-1]) || !d.settled(e)) {
		d.waits = true
		return
	}
	e.Owner = e.Active // move removes the former port
}

// settled reports whether no packet of an EgressIP comes in at its former node any more. It must be asked for in each decision.
func (d *decision) settled(e *coe.EgressIP) bool {
	if !d.followed(e, settle) {
		return false
	}
	return d.followed(e, settleBy) || d.peers[e.Hosts[e.Owner-1]].quiet(d.now, ownerPort(e), settle)
}

// replace moves an address away from a node that is dead, at once.
func (d *decision) replace(e *coe.EgressIP) {
	host, to := e.Host(), 2-e.Active // index of the other port
	best := e.Hosts[to]
	if !d.prepares(best, e.Address) {
		best = d.best(e, true, d.prepares)
	}
	if !best.IsValid() {
		best = d.best(e, true, d.fits)
	}
	if !best.IsValid() {
		d.homeless(e, fmt.Sprintf("node %s, which holds it, does not answer", host))
		return
	}
	e.Hosts[1-to], e.Hosts[to] = netip.Addr{}, best
	e.Active, e.Owner = to+1, to+1
}

// move lets the pods leave by the node that has prepared its port, if the holder can give the address to it. It removes a port
// that is not needed, or no more.
func (d *decision) move(e *coe.EgressIP) {
	to := 2 - e.Active // index of the other port
	switch {
	case d.eligible(e.Hosts[to]) && d.peers[e.Hosts[to]].unknown(d.now):
		d.waits = true
	case !d.fits(e.Hosts[to], e.Address) || !d.leaves(e) || d.tooSlow(e, e.Hosts[to]):
		// Packets can still come in by its port, if it has been the active one.
		followed, unused := d.followed(e, linger), d.lasts("unused", e, e.Hosts[to], linger-settle)
		if d.waits = !followed || !unused; !d.waits {
			e.Hosts[to] = netip.Addr{}
		}
	case !d.acknowledged(e, e.Hosts[to]):
		d.waits = true
	case d.gives(e.Host()):
		e.Active = to + 1
		d.waits = true
	}
}

// gives reports whether a holder can give its addresses to another node: it takes them off its NIC only while its agent
// runs. From a node that was deleted pods do not leave at all.
func (d *decision) gives(node netip.Addr) bool {
	return d.nodes[node] == nil || d.peers[node].answers(d.now)
}

// prepare lets another node prepare its port. If there is none for a time, a node that may hold addresses no more loses it.
// A cordoned one keeps it, and so does one that cannot take it off its NIC.
func (d *decision) prepare(e *coe.EgressIP) {
	host := e.Host()
	best := d.best(e, !d.eligible(host), d.prepares)
	switch {
	case !d.gives(host): // later
	case best.IsValid():
		e.Hosts[2-e.Active], d.waits = best, true
	case !d.eligible(host) && d.lasts("leaves", e, host, prepareFor):
		e.Hosts, e.Active, e.Owner = [2]netip.Addr{}, 0, 0
		d.homeless(e, "its pods do not leave the cluster")
	case !d.eligible(host):
		d.homeless(e, fmt.Sprintf("node %s, which may hold it no more, loses it in some seconds", host))
	case d.peers[host].isUnfit(d.now, e.Address):
		d.homeless(e, fmt.Sprintf("node %s, which holds it, has no NIC in its network", host))
	}
}

func (d *decision) homeless(e *coe.EgressIP, then string) {
	d.problem(e.UID, e.Name, coe.Waiting, "no other node with the label for egress addresses has an agent that answers, and a NIC in the network of address %s: %s", e.Address, then)
}

// lasts reports whether a state of an EgressIP and a node has lasted for a time. The state must be asked for in each decision.
func (d *decision) lasts(state string, e *coe.EgressIP, node netip.Addr, long time.Duration) bool {
	of := key(state, e, node)
	began, found := d.since[of]
	if !found {
		began = d.now
	}
	d.lasting[of] = began
	return d.now.Sub(began) >= long
}

// followed reports whether all hosts have led the packets of an EgressIP to its node for a time. It must be asked for in
// each decision. The network is not asked again once they do.
func (d *decision) followed(e *coe.EgressIP, long time.Duration) bool {
	const state = "follows"
	if _, known := d.since[key(state, e, e.Host())]; !known && !d.inForce(e) {
		return false
	}
	return d.lasts(state, e, e.Host(), long)
}

// key identifies a state of an EgressIP and a node.
func key(state string, e *coe.EgressIP, node netip.Addr) string {
	return state + " " + e.Name + " " + node.String()
}

// tooSlow reports whether a node has prepared an address for too long.
func (d *decision) tooSlow(e *coe.EgressIP, node netip.Addr) bool {
	if d.acknowledged(e, node) || !d.lasts("prepares", e, node, prepareFor) {
		return false
	}
	d.noteSlow(node, e.Address)
	return true
}

// eligible reports whether a node may hold addresses.
func (d *decision) eligible(node netip.Addr) bool {
	n := d.nodes[node]
	return n != nil && n.Egress && d.numbered(node)
}

// fits reports whether a node can hold an address now.
func (d *decision) fits(node, addr netip.Addr) bool {
	return d.eligible(node) && d.peers[node].ready(d.now, addr)
}

// prepares reports whether a node can hold an address now, and was not too slow lately.
func (d *decision) prepares(node, addr netip.Addr) bool {
	return d.fits(node, addr) && !d.peers[node].isSlow(d.now, addr)
}

// leaves reports whether an address should leave its node although the node lives.
func (d *decision) leaves(e *coe.EgressIP) bool {
	p := d.peers[e.Host()]
	return !d.eligible(e.Host()) || d.nodes[e.Host()].Cordoned || p != nil && p.isUnfit(d.now, e.Address) || d.unconfirmed(e)
}

// acknowledged reports whether what the records say of an EgressIP is in force on a node. Another port of the node that is
// not in force makes no difference.
func (d *decision) acknowledged(e *coe.EgressIP, node netip.Addr) bool {
	place, p := d.partOf(node), d.peers[node]
	switch {
	case place == nil || p == nil:
		return false
	case p.applied == "": // an agent of an earlier version
		return p.version == place.Version
	}
	return p.applied == place.Version && !slices.ContainsFunc(place.Addresses, func(a Address) bool {
		return a.Number == e.Number && slices.Contains(p.missing, a.Name)
	})
}

// partOf returns the part of a node in the Set before; nil if it has none.
func (d *decision) partOf(node netip.Addr) *Place {
	part, known := d.places[node]
	if !known {
		part = d.before.Place(node)
		d.places[node] = part
	}
	return part
}

// best returns the node that can hold an address and holds the fewest, other than its hosts; a cordoned one only if all
// are cordoned. It is zero if there is none.
func (d *decision) best(e *coe.EgressIP, cordoned bool, can func(node, addr netip.Addr) bool) (best netip.Addr) {
	held := map[netip.Addr]int{}
	for _, other := range d.EgressIPs {
		for _, host := range other.Hosts {
			held[host]++
		}
	}
	order := func(a, b netip.Addr) int {
		return cmp.Or(number(d.nodes[a].Cordoned)-number(d.nodes[b].Cordoned), held[a]-held[b], a.Compare(b))
	}
	for node, n := range d.nodes {
		if can(node, e.Address) && !slices.Contains(e.Hosts[:], node) && (cordoned || !n.Cordoned) && (!best.IsValid() || order(node, best) < 0) {
			best = node
		}
	}
	return best
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

package coe

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Store keeps what every origin says and what was chosen, by namespace. It
// hands out snapshots (View) and tells which namespaces a change concerns;
// the change itself is not handed on. Values put in are owned by the Store and
// never changed after; a View's values must not be changed by its reader.
//
// All methods are safe for use by many goroutines.
type Store struct {
	changed func(Changed)

	mu         sync.RWMutex
	incomplete map[Origin]bool
	layers     []*layer // ascending precedence
	namespaces map[string]*namespace
	// nodePods counts, by node address and namespace, the pods that name the node.
	nodePods map[netip.Addr]map[string]int
	use      map[netip.Addr]NodeUse // see NodeUse
	formers  map[Former]netip.Addr  // the nodes of Formers
	nodes    map[netip.Addr]*Node   // by address; replaced as a whole, never changed
	bringing map[string]bool        // see Bringing
	leases   map[string][]*Lease    // by uid of the pod; see LeasesOf
	// numbers and networks were chosen for the cluster; replaced, never changed.
	numbers  map[netip.Addr]*NodeFact
	networks *Networks
	policies map[string]*Policy // of the cluster, by uid
	// damaged and unreadable are replaced, never changed.
	damaged, unreadable []Problem
	// contested are the nodes whose address is another node's, and misaddressed those
	// whose address has another use; replaced, never changed.
	contested, misaddressed []Problem
	revision                int64
}

// Changed says what an Update changed. What is chosen (leases, blocks and the
// like) makes no namespace one of which something else is said.
type Changed struct {
	Namespaces []string // of which something else is said; sorted
	Cluster    bool     // the set of nodes, or completeness
	// Leased are the uids of pods of which a lease was put or deleted, sorted.
	Leased []string
}

// layer is what one origin says.
type layer struct {
	origin    Origin
	pods      map[string]*Pod
	services  map[string]*Service
	endpoints map[string]*Endpoints
	nodes     map[string]*Node
	policies  map[string]*Policy
	// namespaces are by name: whoever names one names it so.
	namespaces map[string]*Namespace
}

// namespace is what all origins together say of one namespace, and what was
// chosen for it.
type namespace struct {
	pods      map[string]*Pod
	services  map[string]*Service
	endpoints map[string]*Endpoints
	policies  map[string]*Policy
	// ignored is the Namespace, where it has settings that are not enforced.
	ignored *Namespace

	leases          map[LeaseKey]*Lease
	blocks          map[blockKey]*Block
	elans           map[string]*ELANFact
	vpn             *VPNFact
	serviceFacts    map[string]*ServiceFact
	vips            map[VIP]bool
	refusals        map[LeaseKey]Refusal
	serviceRefusals map[string]Refusal

	// shown holds the parts of the last View; those that a change has made stale
	// are nil. Its pods and leases are of these lists.
	shown       View
	shownPods   list[string, Pod]
	shownLeases list[LeaseKey, Lease]
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// NewStore returns an empty store that is complete when each of the origins has
// said all it knows. changed is called after every Update that changed what is
// said or a lease, by the goroutine that made it and not under a lock of the
// Store; nil is allowed.
func NewStore(changed func(Changed), origins ...Origin) *Store {
	s := &Store{
		changed:    changed,
		incomplete: map[Origin]bool{},
		namespaces: map[string]*namespace{},
		nodePods:   map[netip.Addr]map[string]int{},
		use:        map[netip.Addr]NodeUse{},
		formers:    map[Former]netip.Addr{},
		nodes:      map[netip.Addr]*Node{},
		bringing:   map[string]bool{},
		leases:     map[string][]*Lease{},
		policies:   map[string]*Policy{},
	}
	for _, o := range []Origin{RESTCONF, Kubernetes} {
		if slices.Contains(origins, o) {
			s.incomplete[o] = true
			s.layers = append(s.layers, &layer{
				origin:    o,
				pods:      map[string]*Pod{},
				services:  map[string]*Service{},
				endpoints: map[string]*Endpoints{},
				nodes:     map[string]*Node{},
				policies:  map[string]*Policy{},

				namespaces: map[string]*Namespace{},
			})
		}
	}
	return s
}

// Complete reports whether every origin has said all it knows, so that what
// is absent is gone (architecture, decision 5).
func (s *Store) Complete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.incomplete) == 0
}

// Heard reports whether one origin has said all it knows.
func (s *Store) Heard(origin Origin) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.incomplete[origin]
}

// Update makes changes in one step: no View shows a part of them. What is said
// anew counts as a change even where it equals what was said before.
func (s *Store) Update(change func(*Tx)) {
	s.mu.Lock()
	tx := &Tx{store: s, dirty: map[string]bool{}, touched: map[string]bool{}, leased: map[string]bool{}}
	change(tx)
	if tx.cluster || tx.claimed {
		tx.changedNodes(s.rebuildNodes())
	}
	for name := range tx.touched {
		if ns := s.namespaces[name]; ns != nil && ns.empty() {
			delete(s.namespaces, name)
			delete(s.bringing, name)
		}
	}
	s.mu.Unlock()

	if s.changed != nil && (len(tx.dirty) > 0 || tx.cluster || len(tx.leased) > 0) {
		s.changed(Changed{
			Namespaces: slices.Sorted(maps.Keys(tx.dirty)),
			Cluster:    tx.cluster,
			Leased:     slices.Sorted(maps.Keys(tx.leased)),
		})
	}
	if tx.revision > 0 {
		s.mu.Lock()
		s.revision = tx.revision
		s.mu.Unlock()
	}
}

// Revision is the datastore's revision that the store reflects. Whoever waits for
// news of changes has been told of all up to it.
func (s *Store) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// Namespaces lists the namespaces of which something is said or chosen, sorted.
func (s *Store) Namespaces() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.namespaces))
}

// Bringing returns, each once, the namespaces in which a pod was said to have an
// address that its lease does not have. Whoever hands out addresses claims these
// before anybody is given one; there is one who asks.
func (s *Store) Bringing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.bringing))
	clear(s.bringing)
	return names
}

// Nodes returns the nodes by address. The map must not be changed.
func (s *Store) Nodes() map[netip.Addr]*Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes
}

// ClusterView is all that mapping may look at of what belongs to no namespace. It
// must not be changed.
type ClusterView struct {
	Nodes    map[netip.Addr]*Node     // by address
	Numbers  map[netip.Addr]*NodeFact // by address of the node
	Networks *Networks                // nil while none are chosen
	Damaged  []Problem                // records and entries of the datastore that are set aside
	Policies []*Policy                // sorted by uid
	// Misaddressed are the problems of nodes whose address is another's, or in use for
	// something else.
	Misaddressed []Problem
}

// Cluster returns a snapshot of what belongs to no namespace.
func (s *Store) Cluster() ClusterView {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return ClusterView{
		Nodes: s.nodes, Numbers: s.numbers, Networks: s.networks, Damaged: slices.Concat(s.damaged, s.unreadable),
		Policies:     sortedBy(s.policies, func(p *Policy) string { return p.UID }),
		Misaddressed: slices.Concat(s.contested, s.misaddressed),
	}
}

// Namespace is what is said of the namespace of a name; nil when no source
// speaks of it, as RESTCONF never does.
func (s *Store) Namespace(name string) *Namespace {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range slices.Backward(s.layers) {
		if ns := l.namespaces[name]; ns != nil {
			return ns
		}
	}
	return nil
}

// Origin tells who is believed for the pod, service, endpoints, node or policy of
// this uid; empty when nobody speaks of it.
func (s *Store) Origin(uid string) Origin {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range slices.Backward(s.layers) {
		_, pod := l.pods[uid]
		_, service := l.services[uid]
		_, endpoints := l.endpoints[uid]
		_, node := l.nodes[uid]
		_, policy := l.policies[uid]
		if pod || service || endpoints || node || policy {
			return l.origin
		}
	}
	return ""
}

// View returns a snapshot of one namespace. Views share what did not change
// between them.
func (s *Store) View(name string) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := View{}
	if ns := s.namespaces[name]; ns != nil {
		ns.refresh()
		v = ns.shown
		v.VPN, v.Ignored = ns.vpn, ns.ignored
		// SetRefusals replaces both maps as a whole.
		v.Refusals, v.ServiceRefusals = ns.refusals, ns.serviceRefusals
	}
	v.Namespace, v.Nodes = name, s.nodes
	return v
}

// refresh makes the parts of the View that are stale.
func (ns *namespace) refresh() {
	v := &ns.shown
	v.Pods = ns.shownPods.refresh(ns.pods, func(p *Pod) string { return p.UID }, strings.Compare)
	v.Leases = ns.shownLeases.refresh(ns.leases, (*Lease).Key, LeaseKey.Compare)
	if v.Services == nil {
		v.Services = sortedBy(ns.services, func(p *Service) string { return p.UID })
	}
	if v.Endpoints == nil {
		v.Endpoints = sortedBy(ns.endpoints, func(p *Endpoints) string { return p.UID })
	}
	if v.Policies == nil {
		v.Policies = sortedBy(ns.policies, func(p *Policy) string { return p.UID })
	}
	if v.Blocks == nil {
		v.Blocks = slices.SortedFunc(maps.Values(ns.blocks), func(a, b *Block) int {
			return cmp.Or(strings.Compare(a.ELAN, b.ELAN), a.Prefix.Compare(b.Prefix))
		})
	}
	if v.ELANs == nil {
		v.ELANs = maps.Clone(ns.elans)
	}
	if v.ServiceFacts == nil {
		v.ServiceFacts = maps.Clone(ns.serviceFacts)
	}
	if v.VIPs == nil {
		v.VIPs = maps.Clone(ns.vips)
	}
}

func sortedBy[T any](m map[string]*T, key func(*T) string) []*T {
	return slices.SortedFunc(maps.Values(m), func(a, b *T) int { return strings.Compare(key(a), key(b)) })
}

// View is a snapshot of one namespace: all that mapping may look at.
type View struct {
	Namespace string
	Pods      []*Pod       // sorted by uid
	Services  []*Service   // sorted by uid
	Endpoints []*Endpoints // sorted by uid
	Policies  []*Policy    // sorted by uid
	// Ignored is the Namespace, where it has settings that are not enforced, or nil.
	Ignored *Namespace

	Leases       Leases
	Blocks       []*Block // sorted by elan and prefix
	ELANs        map[string]*ELANFact
	VPN          *VPNFact                // nil while none is chosen
	ServiceFacts map[string]*ServiceFact // by uid
	// VIPs are those on which services of this namespace may answer, beside the
	// addresses of ServiceFacts.
	VIPs map[VIP]bool
	// Refusals say why a lease, or a service's address, could not be given.
	Refusals        map[LeaseKey]Refusal
	ServiceRefusals map[string]Refusal

	Nodes map[netip.Addr]*Node // of the whole cluster, by address
}

// Misplaced reports whether the pod is on a node whose address is another node's: a
// pod of a node that reports a false address is not plugged into that other node.
func (v View) Misplaced(p *Pod) bool {
	holder := v.Nodes[p.HostIP]
	return p.NodeName != "" && holder != nil && holder.HostName != "" && holder.HostName != p.NodeName
}

func (s *Store) namespace(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{
			pods:         map[string]*Pod{},
			services:     map[string]*Service{},
			endpoints:    map[string]*Endpoints{},
			policies:     map[string]*Policy{},
			leases:       map[LeaseKey]*Lease{},
			blocks:       map[blockKey]*Block{},
			elans:        map[string]*ELANFact{},
			serviceFacts: map[string]*ServiceFact{},
			vips:         map[VIP]bool{},
		}
		s.namespaces[name] = ns
	}
	return ns
}

// lacks tells whether the pod brings an address that its lease does not have.
func (ns *namespace) lacks(p *Pod) bool {
	if p.NoNetwork {
		return false
	}
	for _, i := range p.Interfaces {
		if l := ns.leases[LeaseKey{p.UID, i.UID}]; len(i.Addresses) > 0 && (l == nil || !l.Has(i.Addresses)) {
			return true
		}
	}
	return false
}

func (ns *namespace) empty() bool {
	return len(ns.pods)+len(ns.services)+len(ns.endpoints)+len(ns.policies)+len(ns.leases)+len(ns.blocks)+
		len(ns.elans)+len(ns.serviceFacts)+len(ns.vips)+len(ns.refusals)+len(ns.serviceRefusals) == 0 &&
		ns.vpn == nil && ns.ignored == nil
}

func (s *Store) countNode(addr netip.Addr, ns string, by int) {
	if !addr.IsValid() {
		return
	}
	pods := s.nodePods[addr]
	if pods == nil {
		pods = map[string]int{}
		s.nodePods[addr] = pods
	}
	pods[ns] += by
	if pods[ns] == 0 {
		delete(pods, ns)
	}
	if len(pods) == 0 {
		delete(s.nodePods, addr)
	}
}

// rebuildNodes replaces the node table, and returns the one before. Of two nodes with
// one address the one that had it first keeps it (NodeFact.Owner). Where that is not
// recorded, the one of the higher layer, then of the lower uid, has it.
func (s *Store) rebuildNodes() (before map[netip.Addr]*Node) {
	all := s.allNodes()
	nodes := make(map[netip.Addr]*Node, len(all))
	for _, n := range all {
		addr := n.Address()
		if holder := nodes[addr]; holder == nil && s.mayHold(addr, n) || holder != nil && s.owns(addr, n) && !s.owns(addr, holder) {
			nodes[addr] = n
		}
	}
	s.contested = nil
	for _, n := range all {
		if holder := nodes[n.Address()]; holder != nil && holder.Identity() != n.Identity() {
			s.contested = append(s.contested, Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: AddressTaken, Message: fmt.Sprintf(
					"its address %s is the address of node %s, which had it first: pods on it get no network; correct the address of one of the two",
					n.Address(), holder.Identity()),
			})
		}
	}
	before, s.nodes = s.nodes, nodes
	return before
}

// allNodes lists the nodes that have an address: those of the higher layer first, in
// the order of their uids.
func (s *Store) allNodes() (all []*Node) {
	for _, l := range slices.Backward(s.layers) {
		for _, n := range sortedBy(l.nodes, func(n *Node) string { return n.UID }) {
			if n.Address().IsValid() {
				all = append(all, n)
			}
		}
	}
	return all
}

// owns reports whether a node is recorded as the first that had the address.
func (s *Store) owns(addr netip.Addr, n *Node) bool {
	fact := s.numbers[addr]
	return fact != nil && fact.Owner == n.Identity()
}

// mayHold reports whether a node may have an address that nobody has yet. Until every
// origin has reported all it knows, a recorded owner may still come.
func (s *Store) mayHold(addr netip.Addr, n *Node) bool {
	fact := s.numbers[addr]
	return fact == nil || fact.Owner == "" || fact.Owner == n.Identity() || len(s.incomplete) == 0
}

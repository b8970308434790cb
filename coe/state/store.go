// Package state keeps the entities that sources report and the values that were chosen for them, by namespace, in the memory of the
// bridge. If several origins report an entity, it decides which report applies. It builds the PolicySet, and says which namespaces a
// change can concern.
//
// It knows no protocol and no record: its callers read sources and the datastore, and put values of package coe. It chooses nothing,
// maps nothing, and writes nothing.
package state

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Store keeps, by namespace, what every origin reports and what was chosen. It returns
// snapshots (View), and notifies which namespaces have changed, without the changes.
// Values that are put into the Store must not be changed afterwards, nor must values of a
// View.
//
// All methods may be called concurrently.
type Store struct {
	changed func(Changed)

	mu         sync.RWMutex
	incomplete map[coe.Origin]bool
	layers     []*layer // ascending precedence
	namespaces map[string]*namespace
	// nodePods counts the pods by node address and namespace.
	nodePods   map[netip.Addr]map[string]int
	use        map[netip.Addr]NodeUse    // see NodeUse
	formers    map[coe.Former]netip.Addr // the nodes of Formers
	nodes      map[netip.Addr]*coe.Node  // by address; replaced as a whole, never changed
	requesting map[string]bool           // see Requesting
	leases     map[string][]*coe.Lease   // by uid of the pod; see LeasesOf
	// placed counts, by namespace, the services and Endpoints that depend on where clients are.
	placed map[string]int
	// hosting counts, by namespace, the pods with host ports.
	hosting map[string]int
	// numbers and networks are chosen for the cluster; replaced, never changed.
	numbers  map[netip.Addr]*coe.NodeFact
	networks *coe.Networks
	gateways []*coe.Gateway        // sorted by node; replaced, never changed
	chassis  map[netip.Addr]string // see Chassis; replaced, never changed
	// inOVN and followsOVN: see ChassisOfOVN. inOVN is replaced, never changed.
	inOVN      map[string]string
	followsOVN bool
	policies   map[string]*coe.PolicySpec // of the cluster, by uid
	policy     policyState
	egress     egressState
	// blocks are by node. Their slices are replaced, never changed. shownBlocks is a copy for ClusterViews; nil while stale.
	blocks, shownBlocks map[netip.Addr][]*coe.Block

	serviceCIDRs serviceCIDRs
	// damaged and unreadable are replaced, never changed.
	damaged, unreadable []coe.Problem
	// contested has the nodes whose address belongs to another node. Both are replaced, never changed.
	contested, addressProblems []coe.Problem
	revision                   int64
	notifying                  int // Updates that a View shows and that are being notified
	// advanced is closed when the revision changes; nil while WaitRevision has no caller.
	advanced chan struct{}
}

// Changed describes an Update. Chosen values (leases, blocks and so on) do not mark a
// namespace as changed.
type Changed struct {
	// Namespaces have changed entities, or pods that a changed policy may concern; sorted.
	Namespaces []string
	Cluster    bool // the set of nodes, completeness, the PolicySet, EgressIPs, or ServiceCIDRs
	Egress     bool // what sources request of egress addresses
	// Leased are the UIDs of pods with a changed lease, sorted.
	Leased []string
	Blocks bool // there are other blocks
}

// layer is what one origin reports.
type layer struct {
	origin    coe.Origin
	pods      map[string]*coe.Pod
	services  map[string]*coe.Service
	endpoints map[string]*coe.Endpoints
	nodes     map[string]*coe.Node
	policies  map[string]*coe.PolicySpec
	// namespaces are by name, because other objects refer to them by name.
	namespaces map[string]*coe.Namespace
}

// namespace is the state of one namespace: the entities of all origins, and the chosen values.
type namespace struct {
	pods      map[string]*coe.Pod
	services  map[string]*coe.Service
	endpoints map[string]*coe.Endpoints
	policies  map[string]*coe.PolicySpec
	// configured is the Namespace if it has settings.
	configured *coe.Namespace

	leases          map[coe.LeaseKey]*coe.Lease
	blocks          map[blockKey]*coe.Block
	elans           map[string]*coe.ELANFact
	vpn             *coe.VPNFact
	serviceFacts    map[string]*coe.ServiceFact
	vips            map[coe.VIP]bool
	refusals        map[coe.LeaseKey]coe.Refusal
	serviceRefusals map[string]coe.Refusal

	// shown has the parts of the last View; stale parts are nil. Its pods and leases come from
	// the lists below.
	shown       coe.View
	shownPods   list[string, coe.Pod]
	shownLeases list[coe.LeaseKey, coe.Lease]
	shownBlocks list[blockKey, coe.Block]
}

// NewStore returns an empty Store. It is complete once each of the origins is complete.
// changed is called after every Update that changed reported entities, leases or blocks, in the
// goroutine of the Update and without a lock of the Store. It may be nil.
func NewStore(changed func(Changed), origins ...coe.Origin) *Store {
	s := &Store{
		changed:    changed,
		incomplete: map[coe.Origin]bool{},
		namespaces: map[string]*namespace{},
		nodePods:   map[netip.Addr]map[string]int{},
		use:        map[netip.Addr]NodeUse{},
		formers:    map[coe.Former]netip.Addr{},
		nodes:      map[netip.Addr]*coe.Node{},
		requesting: map[string]bool{},
		leases:     map[string][]*coe.Lease{},
		placed:     map[string]int{},
		hosting:    map[string]int{},
		blocks:     map[netip.Addr][]*coe.Block{},
		policies:   map[string]*coe.PolicySpec{},
		policy: policyState{
			labels:   map[string]coe.Labels{},
			ports:    map[coe.ContainerPort]map[string]int{},
			users:    map[coe.NamedPort]map[string]int{},
			named:    map[string]map[string]int{},
			unlisted: map[coe.Origin]bool{},
			numbers:  map[coe.NamedPort]int{},
			uses:     map[*coe.PolicySpec]*coe.PolicyUse{},
			limited:  map[string]map[*coe.PolicySpec]coe.LimitedPolicy{},
		},
		egress: egressState{specs: map[string]*coe.EgressSpec{}},

		serviceCIDRs: serviceCIDRs{byUID: map[string]*coe.ServiceCIDR{}},
	}
	for _, o := range []coe.Origin{coe.RESTCONF, coe.Kubernetes} {
		if slices.Contains(origins, o) {
			s.incomplete[o] = true
			s.layers = append(s.layers, &layer{
				origin:    o,
				pods:      map[string]*coe.Pod{},
				services:  map[string]*coe.Service{},
				endpoints: map[string]*coe.Endpoints{},
				nodes:     map[string]*coe.Node{},
				policies:  map[string]*coe.PolicySpec{},

				namespaces: map[string]*coe.Namespace{},
			})
		}
	}
	return s
}

// Complete reports whether every origin is complete, so that absent entities are deleted
// (docs/architecture.md, rule 5).
func (s *Store) Complete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.incomplete) == 0
}

// CompleteFor reports whether one origin is complete.
func (s *Store) CompleteFor(origin coe.Origin) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.incomplete[origin]
}

// Update makes changes atomically: a View shows all of them or none. Putting an equal entity
// again counts as a change.
func (s *Store) Update(change func(*Tx)) {
	s.mu.Lock()
	tx := &Tx{store: s, dirty: map[string]bool{}, touched: map[string]bool{}, leased: map[string]bool{}, limited: map[string]bool{}}
	change(tx)
	tx.limitPolicies()
	if tx.cluster || tx.claimed {
		tx.changedNodes(s.rebuildNodes())
	}
	for name := range tx.touched {
		if ns := s.namespaces[name]; ns != nil && ns.empty() {
			delete(s.namespaces, name)
			delete(s.requesting, name)
		}
	}
	s.notifying++
	s.mu.Unlock()

	if cluster := tx.cluster || tx.policies; s.changed != nil && (len(tx.dirty) > 0 || cluster || tx.egress || tx.blocked || len(tx.leased) > 0) {
		s.changed(Changed{
			Namespaces: slices.Sorted(maps.Keys(tx.dirty)),
			Cluster:    cluster,
			Egress:     tx.egress,
			Leased:     slices.Sorted(maps.Keys(tx.leased)),
			Blocks:     tx.blocked,
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifying--
	if tx.revision > 0 {
		s.revision = tx.revision
		if s.advanced != nil {
			close(s.advanced)
			s.advanced = nil
		}
	}
}

// Notified reports whether all changes that a View shows have been notified. Complete can be true before that, because the
// last entities of a source come with the change.
func (s *Store) Notified() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.notifying == 0
}

// Revision returns the datastore revision that the Store reflects. The changes up to it have
// been notified.
func (s *Store) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// WaitRevision waits until the Store reflects a revision of the datastore. It fails only
// if ctx ends first.
func (s *Store) WaitRevision(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		reached := s.revision >= revision
		if !reached && s.advanced == nil {
			s.advanced = make(chan struct{})
		}
		advanced := s.advanced
		s.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-advanced:
		}
	}
}

// Namespaces returns the names of all namespaces with entities or chosen values, sorted.
func (s *Store) Namespaces() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.namespaces))
}

// HasServices reports whether a namespace has services.
func (s *Store) HasServices(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ns := s.namespaces[name]
	return ns != nil && len(ns.services) > 0
}

// Requesting returns the namespaces with a pod that requests an address that its lease does
// not have. Each is returned once, to a single caller, which must claim the requested
// addresses before it gives any address.
func (s *Store) Requesting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.requesting))
	clear(s.requesting)
	return names
}

// Nodes returns the nodes by address. The map must not be changed.
func (s *Store) Nodes() map[netip.Addr]*coe.Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes
}

// Cluster returns a snapshot of the state that belongs to no namespace.
func (s *Store) Cluster() coe.ClusterView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return coe.ClusterView{
		Nodes: s.nodes, Numbers: s.numbers, Networks: s.networks, Damaged: slices.Concat(s.damaged, s.unreadable),
		Policies:        names(s.policies),
		Gateways:        s.gateways,
		PolicySet:       s.policySet(),
		AddressProblems: slices.Concat(s.contested, s.addressProblems),
		EgressIPs:       s.egress.ips, EgressProblems: s.egress.problems,
		Blocks: s.allBlocks(),
	}
}

// Namespace returns the namespace with a name; nil if no source reports it. RESTCONF reports
// no namespaces.
func (s *Store) Namespace(name string) *coe.Namespace {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range slices.Backward(s.layers) {
		if ns := l.namespaces[name]; ns != nil {
			return ns
		}
	}
	return nil
}

// Origin returns the origin that applies to the pod, service, endpoints, node or policy with a
// UID; empty if no origin reports it.
func (s *Store) Origin(uid string) coe.Origin {
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

func (s *Store) namespace(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{
			pods:         map[string]*coe.Pod{},
			services:     map[string]*coe.Service{},
			endpoints:    map[string]*coe.Endpoints{},
			policies:     map[string]*coe.PolicySpec{},
			leases:       map[coe.LeaseKey]*coe.Lease{},
			blocks:       map[blockKey]*coe.Block{},
			elans:        map[string]*coe.ELANFact{},
			serviceFacts: map[string]*coe.ServiceFact{},
			vips:         map[coe.VIP]bool{},
		}
		s.namespaces[name] = ns
	}
	return ns
}

// lacks reports whether the pod requests an address that its lease does not have.
func (ns *namespace) lacks(p *coe.Pod) bool {
	return !p.NoNetwork && slices.ContainsFunc(p.Interfaces, func(i coe.PodInterface) bool {
		l := ns.leases[coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}]
		return len(i.Addresses) > 0 && (l == nil || !l.Has(i.Addresses))
	})
}

func (ns *namespace) empty() bool {
	return len(ns.pods)+len(ns.services)+len(ns.endpoints)+len(ns.policies)+len(ns.leases)+len(ns.blocks)+
		len(ns.elans)+len(ns.serviceFacts)+len(ns.vips)+len(ns.refusals)+len(ns.serviceRefusals) == 0 &&
		ns.vpn == nil && ns.configured == nil
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

// countPlaced changes the count of a namespace's services and Endpoints that depend on where clients
// are, if one of them depends on it.
func (s *Store) countPlaced(ns string, depends bool, by int) {
	if depends {
		countOne(s.placed, ns, by)
	}
}

// countHosting changes the count of a namespace's pods with host ports, if a pod has some.
func (s *Store) countHosting(p *coe.Pod, by int) {
	if p != nil && len(p.HostPorts) > 0 {
		countOne(s.hosting, p.Namespace, by)
	}
}

// exhausted reports whether a node can lack an address of which host ports need one.
func (s *Store) exhausted() bool {
	if s.networks == nil || len(s.networks.HostPorts) == 0 || len(s.hosting) == 0 {
		return false
	}
	taken, most := uint32(0), s.networks.Nodes.Numbers()
	for _, fact := range s.numbers {
		if fact.Number != 0 {
			taken++
		}
		if fact.Number > most {
			return true
		}
	}
	return taken >= most
}

func countOne(counts map[string]int, of string, by int) {
	counts[of] += by
	if counts[of] == 0 {
		delete(counts, of)
	}
}

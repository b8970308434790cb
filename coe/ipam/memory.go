package ipam

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// memory has indexes of the records in the journal and of those that the round writes next. The
// Store has the same values. A value is never changed, only replaced.
type memory struct {
	alloc *dhcppool.Allocator
	vnis  *dhcppool.IDs
	rds   *dhcppool.IDs
	// nodeIDs has the numbers of nodes.
	nodeIDs *dhcppool.IDs

	leases      map[coe.LeaseKey]*coe.Lease
	blocks      map[blockKey]blockFact
	elans       map[string]elanFact     // by name
	vpns        map[string]*coe.VPNFact // by namespace
	vpnOwners   map[string]string       // the namespace of each vpn-instance, by its name
	ports       map[string]*coe.Lease   // living leases by the names of their ports
	adoptedVPNs map[string]string       // names that the backend has, by namespace without a record of its vpn-instance
	services    map[string]*coe.ServiceFact
	numbers     map[netip.Addr]*coe.NodeFact // by node
	held        map[netip.Addr]string        // the owners of the addresses that are held for nodes
	misplaced   []coe.Problem                // of nodes whose address has another use
	// sharedChassis has the nodes whose chassis belongs to another node, and nearlyFull pools. The store has the problems of these two
	// and of misplaced.
	sharedChassis, nearlyFull []coe.Problem
	unheld                    map[netip.Addr]*coe.Node // addresses of nodes that have another use
	seen                      *nodesSeen               // nil if nodes must be read again
	networks                  *coe.Networks            // nil until they are recorded
	namespaces                map[string]*namespace
	elansOn                   map[netip.Addr]map[*elan]bool
	// gateways counts the records of blocks with the same gateway, with Config.NodeBlocks.
	gateways map[nodeGateway]int
	// unused are blocks whose elan has lost an address of them, and may have none left.
	unused map[blockKey]*elan
	// idle are elans that have lost a user, and may have none left.
	idle map[*elan]bool
	// orphans are unused records, which are not in the store.
	orphans []string
	seq     uint64 // Seq of the last lease

	damaged      journal.Damage
	contested    map[coe.LeaseKey]*coe.Lease // living leases with an address that another record has
	withoutBlock []addressWithoutBlock
	// missingInstances is set while an instance that is in use has no record.
	missingInstances bool
	// clusterChanged is set when the problems of the cluster may have changed. It is cleared
	// when a Sync has returned the cluster as affected.
	clusterChanged bool
}

// namespace has the indexes of one namespace.
type namespace struct {
	name     string
	domain   string
	pods     map[string]*pod   // that have a lease, by uid
	names    map[string]string // uid of the pod with a living lease, by pod name
	elans    map[netip.Addr]*elan
	released map[coe.LeaseKey]*coe.Lease
	formers  map[coe.LeaseKey][]*journal.Former
	services map[string]*coe.ServiceFact
	// looked has the pods of the last view, sorted by UID. unsettled has the UIDs of pods that
	// have changed since their leases were last found to fit.
	looked    []*coe.Pod
	unsettled map[string]bool
}

// pod has the leases of a pod.
type pod struct{ leases []*coe.Lease }

// elan has the users of an elan-instance.
type elan struct {
	dhcppool.ELAN
	namespace *namespace
	node      netip.Addr
	users     int                  // leases, including released ones, and former addresses
	uses      map[netip.Prefix]int // the number of their addresses, by network
	macs      macs
}

// blockFact is a block with the namespace of its elan.
type blockFact struct {
	*coe.Block
	namespace string
}

// elanFact is the choice for an elan, with its namespace.
type elanFact struct {
	*coe.ELANFact
	namespace string
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// nodeGateway is a gateway of a node.
type nodeGateway struct{ node, gateway netip.Addr }

func newMemory(cfg Config) *memory {
	return &memory{
		alloc:       dhcppool.NewAllocator(),
		vnis:        dhcppool.NewIDs(cfg.VNIFrom, cfg.VNITo),
		rds:         dhcppool.NewIDs(cfg.RDFrom, cfg.RDTo),
		nodeIDs:     dhcppool.NewIDs(1, cfg.Nodes.Network.Numbers()),
		leases:      map[coe.LeaseKey]*coe.Lease{},
		blocks:      map[blockKey]blockFact{},
		elans:       map[string]elanFact{},
		vpns:        map[string]*coe.VPNFact{},
		vpnOwners:   map[string]string{},
		adoptedVPNs: map[string]string{},
		ports:       map[string]*coe.Lease{},
		services:    map[string]*coe.ServiceFact{},
		numbers:     map[netip.Addr]*coe.NodeFact{},
		held:        map[netip.Addr]string{},
		namespaces:  map[string]*namespace{},
		elansOn:     map[netip.Addr]map[*elan]bool{},
		gateways:    map[nodeGateway]int{},
		unused:      map[blockKey]*elan{},
		idle:        map[*elan]bool{},
		damaged:     journal.Damage{},
		contested:   map[coe.LeaseKey]*coe.Lease{},
	}
}

func (a *Assigner) namespace(name string) *namespace {
	ns := a.namespaces[name]
	if ns == nil {
		ns = &namespace{
			name: name, domain: a.cfg.domain(name),
			pods:     map[string]*pod{},
			names:    map[string]string{},
			elans:    map[netip.Addr]*elan{},
			released: map[coe.LeaseKey]*coe.Lease{},
			formers:  map[coe.LeaseKey][]*journal.Former{},
			services: map[string]*coe.ServiceFact{},

			unsettled: map[string]bool{},
		}
		a.namespaces[name] = ns
	}
	return ns
}

func (ns *namespace) empty() bool {
	return len(ns.pods)+len(ns.elans)+len(ns.formers)+len(ns.services) == 0
}

// look unsettles the pods that were changed, created or deleted since the last look.
func (ns *namespace) look(pods []*coe.Pod) {
	for p := range coe.Differences(ns.looked, pods, (*coe.Pod).Compare) {
		ns.unsettled[p.UID] = true
	}
	ns.looked = pods
}

// elanOf returns the namespace's elan on a node.
func (a *Assigner) elanOf(ns *namespace, node netip.Addr) *elan {
	e := ns.elans[node]
	if e == nil {
		e = &elan{
			ELAN:      dhcppool.ELAN{Name: netvirt.ELANName(node, ns.name), Domain: ns.domain},
			namespace: ns, node: node, uses: map[netip.Prefix]int{}, macs: a.newMACs(node),
		}
		ns.elans[node] = e
		if a.elansOn[node] == nil {
			a.elansOn[node] = map[*elan]bool{}
		}
		a.elansOn[node][e] = true
		a.idle[e] = true
	}
	return e
}

// use adds a lease or a former with some addresses to an elan.
func (a *Assigner) use(e *elan, addresses ...coe.LeasedAddress) {
	e.users++
	delete(a.idle, e)
	for _, x := range addresses {
		e.uses[x.Network]++
	}
}

// leave removes what use has added.
func (a *Assigner) leave(e *elan, addresses ...coe.LeasedAddress) {
	if e.users--; e.users == 0 {
		a.idle[e] = true
	}
	for _, x := range addresses {
		if e.uses[x.Network]--; e.uses[x.Network] == 0 {
			delete(e.uses, x.Network)
			a.unused[blockKey{e.Name, x.Network}] = e
		}
	}
}

// add indexes a lease.
func (a *Assigner) add(l *coe.Lease) {
	ns := a.namespace(l.Namespace)
	a.leases[l.Key()] = l
	a.seq = max(a.seq, l.Seq)
	p := ns.pods[l.PodUID]
	if p == nil {
		p = &pod{}
		ns.pods[l.PodUID] = p
	}
	p.leases = append(p.leases, l)
	ns.unsettled[l.PodUID] = true
	e := a.elanOf(ns, l.Node)
	a.use(e, l.Addresses...)
	a.takeMAC(e, l)
	if port := a.port(l); port != "" && a.ports[port] == nil {
		a.ports[port] = l
	}
	switch {
	case l.Released != 0:
		ns.released[l.Key()] = l
	case ns.names[l.Pod] == "":
		ns.names[l.Pod] = l.PodUID
	}
}

// drop removes a lease from the indexes.
func (a *Assigner) drop(l *coe.Lease) {
	ns := a.namespace(l.Namespace)
	delete(a.leases, l.Key())
	delete(ns.released, l.Key())
	p := ns.pods[l.PodUID]
	ns.unsettled[l.PodUID] = true
	p.leases = without(p.leases, l)
	if len(p.leases) == 0 {
		delete(ns.pods, l.PodUID)
	}
	if ns.names[l.Pod] == l.PodUID && !p.living(l.Pod) {
		delete(ns.names, l.Pod)
	}
	if port := a.port(l); port != "" && a.ports[port] == l {
		delete(a.ports, port)
	}
	e := a.elanOf(ns, l.Node)
	if e.macs[l.MAC] == journal.LeaseRecord(l.Key()) {
		delete(e.macs, l.MAC)
	}
	a.leave(e, l.Addresses...)
}

// without returns a copy of a list without one of its members.
func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(other T) bool { return other == one })
}

// living reports whether the pod has a lease of this pod name that is not released.
func (p *pod) living(name string) bool {
	return slices.ContainsFunc(p.leases, func(l *coe.Lease) bool { return l.Released == 0 && l.Pod == name })
}

// primary reports whether the pod has a primary interface other than the given one.
func (p *pod) primary(except string) bool {
	return p != nil && slices.ContainsFunc(p.leases, func(l *coe.Lease) bool {
		return l.Released == 0 && l.Primary && l.InterfaceUID != except
	})
}

func (a *Assigner) addFormer(f *journal.Former) {
	ns := a.namespace(f.Namespace)
	ns.formers[f.Key()] = append(ns.formers[f.Key()], f)
	a.use(a.elanOf(ns, f.Node), f.Address)
}

func (a *Assigner) dropFormer(f *journal.Former) {
	a.rests.note(journal.FormerRecord(f), 0)
	ns := a.namespace(f.Namespace)
	if ns.formers[f.Key()] = without(ns.formers[f.Key()], f); len(ns.formers[f.Key()]) == 0 {
		delete(ns.formers, f.Key())
	}
	a.leave(a.elanOf(ns, f.Node), f.Address)
}

// addBlock adds or replaces the record of a block.
func (a *Assigner) addBlock(b blockFact) {
	key := blockKey{b.ELAN, b.Prefix}
	if a.blocks[key].Block == nil {
		a.countGateway(b.Block, 1)
	}
	a.blocks[key] = b
}

func (a *Assigner) dropBlock(b blockFact) {
	delete(a.blocks, blockKey{b.ELAN, b.Prefix})
	a.countGateway(b.Block, -1)
}

func (a *Assigner) addService(s *coe.ServiceFact) {
	a.services[s.UID] = s
	a.namespace(s.Namespace).services[s.UID] = s
}

func (a *Assigner) dropService(s *coe.ServiceFact) {
	delete(a.services, s.UID)
	delete(a.namespace(s.Namespace).services, s.UID)
}

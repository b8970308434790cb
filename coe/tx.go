package coe

import (
	"fmt"
	"maps"
	"net/netip"
)

// Tx is the change that Store.Update makes. It is valid only during the call.
type Tx struct {
	store    *Store
	dirty    map[string]bool // namespaces of which something else is said
	touched  map[string]bool // namespaces in which anything changed
	leased   map[string]bool // uids of pods whose leases changed
	cluster  bool
	claimed  bool // who had a node's address first changed
	revision int64
}

// SetIncomplete says that the origin may know of more than it has said: nothing that
// is absent is known to be gone until it is complete again.
func (tx *Tx) SetIncomplete(origin Origin) { tx.store.incomplete[origin] = true }

// SetComplete says that the origin has said all it knows, once; every namespace
// is looked at again, since what is absent is now known to be gone.
func (tx *Tx) SetComplete(origin Origin) {
	if !tx.store.incomplete[origin] {
		return
	}
	delete(tx.store.incomplete, origin)
	tx.cluster = true
	for name := range tx.store.namespaces {
		tx.dirty[name] = true
	}
}

// SetRevision notes the datastore's revision that the store reflects.
func (tx *Tx) SetRevision(r int64) { tx.revision = r }

// PutPod says that there is a pod, or what it is now.
func (tx *Tx) PutPod(origin Origin, p *Pod) {
	tx.changePod(p.UID, func(l map[string]*Pod) { l[p.UID] = p }, origin)
}

// DeletePod says that the origin knows no such pod any more.
func (tx *Tx) DeletePod(origin Origin, uid string) {
	tx.changePod(uid, func(l map[string]*Pod) { delete(l, uid) }, origin)
}

func (tx *Tx) changePod(uid string, change func(map[string]*Pod), origin Origin) {
	pods := func(l *layer) map[string]*Pod { return l.pods }
	old, now := replace(tx, origin, uid, pods, change)
	if old != nil {
		tx.store.countNode(old.HostIP, old.Namespace, -1)
		tx.store.countUse(old.HostIP, -old.interfaces(), 0)
		ns := tx.touch(old.Namespace)
		delete(ns.pods, uid)
		ns.shownPods.changed(uid)
	}
	if now != nil {
		tx.store.countNode(now.HostIP, now.Namespace, +1)
		tx.store.countUse(now.HostIP, +now.interfaces(), 0)
		ns := tx.touch(now.Namespace)
		ns.pods[uid] = now
		ns.shownPods.changed(uid)
		if ns.lacks(now) {
			tx.store.bringing[now.Namespace] = true
		}
	}
}

// PutService says that there is a service, or what it is now.
func (tx *Tx) PutService(origin Origin, s *Service) {
	tx.changeService(s.UID, func(l map[string]*Service) { l[s.UID] = s }, origin)
}

// DeleteService says that the origin knows no such service any more.
func (tx *Tx) DeleteService(origin Origin, uid string) {
	tx.changeService(uid, func(l map[string]*Service) { delete(l, uid) }, origin)
}

func (tx *Tx) changeService(uid string, change func(map[string]*Service), origin Origin) {
	services := func(l *layer) map[string]*Service { return l.services }
	old, now := replace(tx, origin, uid, services, change)
	if old != nil {
		ns := tx.touch(old.Namespace)
		delete(ns.services, uid)
		ns.shown.Services = nil
	}
	if now != nil {
		ns := tx.touch(now.Namespace)
		ns.services[uid] = now
		ns.shown.Services = nil
	}
}

// PutEndpoints says who serves a service.
func (tx *Tx) PutEndpoints(origin Origin, e *Endpoints) {
	tx.changeEndpoints(e.UID, func(l map[string]*Endpoints) { l[e.UID] = e }, origin)
}

// DeleteEndpoints says that the origin knows no such endpoints any more.
func (tx *Tx) DeleteEndpoints(origin Origin, uid string) {
	tx.changeEndpoints(uid, func(l map[string]*Endpoints) { delete(l, uid) }, origin)
}

func (tx *Tx) changeEndpoints(uid string, change func(map[string]*Endpoints), origin Origin) {
	endpoints := func(l *layer) map[string]*Endpoints { return l.endpoints }
	old, now := replace(tx, origin, uid, endpoints, change)
	if old != nil {
		ns := tx.touch(old.Namespace)
		delete(ns.endpoints, uid)
		ns.shown.Endpoints = nil
	}
	if now != nil {
		ns := tx.touch(now.Namespace)
		ns.endpoints[uid] = now
		ns.shown.Endpoints = nil
	}
}

// PutPolicy records that a policy exists, or what it is now.
func (tx *Tx) PutPolicy(origin Origin, p *Policy) {
	tx.changePolicy(p.UID, func(l map[string]*Policy) { l[p.UID] = p }, origin)
}

// DeletePolicy records that the origin has no such policy any more.
func (tx *Tx) DeletePolicy(origin Origin, uid string) {
	tx.changePolicy(uid, func(l map[string]*Policy) { delete(l, uid) }, origin)
}

func (tx *Tx) changePolicy(uid string, change func(map[string]*Policy), origin Origin) {
	policies := func(l *layer) map[string]*Policy { return l.policies }
	old, now := replace(tx, origin, uid, policies, change)
	if old != nil {
		delete(tx.policies(old.Namespace), uid)
	}
	if now != nil {
		tx.policies(now.Namespace)[uid] = now
	}
}

// policies returns the policies of a namespace, or of the cluster, for a change.
func (tx *Tx) policies(namespace string) map[string]*Policy {
	if namespace == "" {
		tx.cluster = true
		return tx.store.policies
	}
	ns := tx.touch(namespace)
	ns.shown.Policies = nil
	return ns.policies
}

// PutNode says that there is a node, or what it is now.
func (tx *Tx) PutNode(origin Origin, n *Node) {
	tx.changeNode(n.UID, func(l map[string]*Node) { l[n.UID] = n }, origin)
}

// DeleteNode says that the origin knows no such node any more.
func (tx *Tx) DeleteNode(origin Origin, uid string) {
	tx.changeNode(uid, func(l map[string]*Node) { delete(l, uid) }, origin)
}

func (tx *Tx) changeNode(uid string, change func(map[string]*Node), origin Origin) {
	nodes := func(l *layer) map[string]*Node { return l.nodes }
	old, now := replace(tx, origin, uid, nodes, change)
	tx.cluster = true
	for _, n := range []*Node{old, now} {
		if n == nil {
			continue
		}
		for ns := range tx.store.nodePods[n.Address()] {
			tx.dirty[ns] = true
		}
	}
}

// PutNamespace says that there is a namespace, or what it is now. Only a change of
// what is Ignored is reported as a change: nothing else is mapped from it.
func (tx *Tx) PutNamespace(origin Origin, n *Namespace) {
	tx.store.layer(origin).namespaces[n.Name] = n
	tx.ignoreNamespace(n.Name, n)
}

// DeleteNamespace says that the origin knows no such namespace any more.
func (tx *Tx) DeleteNamespace(origin Origin, name string) {
	delete(tx.store.layer(origin).namespaces, name)
	tx.ignoreNamespace(name, nil)
}

func (tx *Tx) ignoreNamespace(name string, now *Namespace) {
	if now != nil && now.Ignored == 0 {
		now = nil
	}
	before := tx.store.namespaces[name]
	if now == nil && (before == nil || before.ignored == nil) {
		return
	}
	tx.touch(name).ignored = now
}

// replace changes the layer of one origin and returns who was believed before
// and who is after.
func replace[T any](tx *Tx, origin Origin, uid string, table func(*layer) map[string]*T, change func(map[string]*T)) (old, now *T) {
	for _, l := range tx.store.layers {
		if v := table(l)[uid]; v != nil {
			old = v
		}
	}
	change(table(tx.store.layer(origin)))
	for _, l := range tx.store.layers {
		if v := table(l)[uid]; v != nil {
			now = v
		}
	}
	return old, now
}

func (s *Store) layer(origin Origin) *layer {
	for _, l := range s.layers {
		if l.origin == origin {
			return l
		}
	}
	panic(fmt.Sprintf("coe: origin %q was not given to NewStore", origin))
}

// touch returns a namespace of which something else is said.
func (tx *Tx) touch(name string) *namespace {
	tx.dirty[name] = true
	return tx.chosen(name)
}

// chosen returns a namespace for which something is chosen. That is no news to
// those who wait for news of what is said: whoever chooses was told before, and
// says himself what is to be looked at next.
func (tx *Tx) chosen(name string) *namespace {
	tx.touched[name] = true
	return tx.store.namespace(name)
}

// PutLease records what was chosen for an interface.
func (tx *Tx) PutLease(l *Lease) {
	leases := tx.leases(l.Namespace, l.Key())
	tx.store.countRest(leases[l.Key()], -1)
	tx.store.countRest(l, +1)
	leases[l.Key()] = l
	tx.store.replaceLease(l.Namespace, l.Key(), l)
}

// DeleteLease forgets a lease.
func (tx *Tx) DeleteLease(namespace string, key LeaseKey) {
	leases := tx.leases(namespace, key)
	tx.store.countRest(leases[key], -1)
	delete(leases, key)
	tx.store.replaceLease(namespace, key)
}

// leases are the leases of a namespace, of which the one of the key is to change.
func (tx *Tx) leases(namespace string, key LeaseKey) map[LeaseKey]*Lease {
	ns := tx.chosen(namespace)
	tx.leased[key.PodUID] = true
	ns.shownLeases.changed(key)
	return ns.leases
}

// PutBlock records a block of an elan-instance of the namespace.
func (tx *Tx) PutBlock(namespace string, b *Block) {
	tx.blocks(namespace)[blockKey{b.ELAN, b.Prefix}] = b
}

// DeleteBlock forgets a block.
func (tx *Tx) DeleteBlock(namespace, elan string, prefix netip.Prefix) {
	delete(tx.blocks(namespace), blockKey{elan, prefix})
}

func (tx *Tx) blocks(namespace string) map[blockKey]*Block {
	ns := tx.chosen(namespace)
	ns.shown.Blocks = nil
	return ns.blocks
}

// PutELAN records what was chosen for an elan-instance of the namespace.
func (tx *Tx) PutELAN(namespace string, e *ELANFact) { tx.elans(namespace)[e.Name] = e }

// DeleteELAN forgets an elan-instance.
func (tx *Tx) DeleteELAN(namespace, name string) { delete(tx.elans(namespace), name) }

func (tx *Tx) elans(namespace string) map[string]*ELANFact {
	ns := tx.chosen(namespace)
	ns.shown.ELANs = nil
	return ns.elans
}

// PutVPN records what was chosen for the namespace's vpn-instance.
func (tx *Tx) PutVPN(v *VPNFact) { tx.chosen(v.Namespace).vpn = v }

// DeleteVPN forgets the namespace's vpn-instance.
func (tx *Tx) DeleteVPN(namespace string) { tx.chosen(namespace).vpn = nil }

// PutServiceFact records a service's address.
func (tx *Tx) PutServiceFact(f *ServiceFact) { tx.serviceFacts(f.Namespace)[f.UID] = f }

// DeleteServiceFact forgets a service's address.
func (tx *Tx) DeleteServiceFact(namespace, uid string) {
	delete(tx.serviceFacts(namespace), uid)
}

func (tx *Tx) serviceFacts(namespace string) map[string]*ServiceFact {
	ns := tx.chosen(namespace)
	ns.shown.ServiceFacts = nil
	return ns.serviceFacts
}

// PutVIP records a VIP of the namespace's services.
func (tx *Tx) PutVIP(namespace string, v VIP) { tx.vips(namespace)[v] = true }

// DeleteVIP forgets a VIP of the namespace's services.
func (tx *Tx) DeleteVIP(namespace string, v VIP) { delete(tx.vips(namespace), v) }

func (tx *Tx) vips(namespace string) map[VIP]bool {
	ns := tx.chosen(namespace)
	ns.shown.VIPs = nil
	return ns.vips
}

// PutNodeFact records what was chosen for a node.
func (tx *Tx) PutNodeFact(f *NodeFact) {
	tx.claimed = true
	tx.numbers(func(m map[netip.Addr]*NodeFact) { m[f.Node] = f })
}

// DeleteNodeFact forgets what was chosen for the node of an address.
func (tx *Tx) DeleteNodeFact(node netip.Addr) {
	tx.claimed = true
	tx.numbers(func(m map[netip.Addr]*NodeFact) { delete(m, node) })
}

// ForgetNodeFacts forgets what was chosen for all nodes.
func (tx *Tx) ForgetNodeFacts() { tx.store.numbers, tx.claimed = nil, true }

// numbers changes a copy: views have the map.
func (tx *Tx) numbers(change func(map[netip.Addr]*NodeFact)) {
	numbers := maps.Clone(tx.store.numbers)
	if numbers == nil {
		numbers = map[netip.Addr]*NodeFact{}
	}
	change(numbers)
	tx.store.numbers = numbers
}

// SetNetworks records what was chosen for the cluster; nil forgets it.
func (tx *Tx) SetNetworks(n *Networks) { tx.store.networks = n }

// SetMisaddressed replaces the problems of nodes whose address has another use.
func (tx *Tx) SetMisaddressed(problems []Problem) { tx.store.misaddressed = problems }

// changedNodes notes which addresses have another node than before.
func (tx *Tx) changedNodes(before map[netip.Addr]*Node) {
	now := tx.store.nodes
	note := func(addr netip.Addr) {
		if before[addr] == now[addr] {
			return
		}
		tx.cluster = true
		for ns := range tx.store.nodePods[addr] {
			tx.dirty[ns] = true
		}
	}
	for addr := range before {
		note(addr)
	}
	for addr := range now {
		note(addr)
	}
}

// SetDamaged replaces the problems of the records of what was chosen.
func (tx *Tx) SetDamaged(problems []Problem) { tx.store.damaged = problems }

// SetUnreadable replaces the problems of entries of RESTCONF clients that can't be read.
func (tx *Tx) SetUnreadable(problems []Problem) {
	tx.store.unreadable = problems
	tx.cluster = true
}

// SetRefusals replaces what could not be given in a namespace, and why. The
// maps are the Store's from then on.
func (tx *Tx) SetRefusals(namespace string, leases map[LeaseKey]Refusal, services map[string]Refusal) {
	ns := tx.chosen(namespace)
	ns.refusals, ns.serviceRefusals = leases, services
}

package state

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Tx changes the Store in a call of Store.Update. It is valid only during the call.
type Tx struct {
	store    *Store
	dirty    map[string]bool // namespaces with changed entities
	touched  map[string]bool // namespaces with any change
	leased   map[string]bool // UIDs of pods with changed leases
	limited  map[string]bool // namespaces whose policies may need more or less of the limits for a namespace
	cluster  bool
	policies bool // the PolicySet is to be built again
	egress   bool // sources request other egress addresses
	blocked  bool // there are other blocks
	claimed  bool // the first owner of a node's address has changed
	revision int64
}

// SetIncomplete marks an origin as incomplete: entities may exist that it has not reported. It
// stays so until SetComplete.
func (tx *Tx) SetIncomplete(origin coe.Origin) {
	tx.store.incomplete[origin] = true
	tx.store.policy.set = nil
}

// SetComplete marks an origin as complete: it has reported all its entities. All namespaces
// count as changed, because absent entities are now known to be deleted.
func (tx *Tx) SetComplete(origin coe.Origin) {
	if !tx.store.incomplete[origin] {
		return
	}
	delete(tx.store.incomplete, origin)
	tx.cluster = true
	tx.markAll()
}

// SetPoliciesIncomplete marks the policies of an origin as incomplete, even if the origin is
// complete. They stay so until SetPoliciesComplete, even if the origin is complete before or later.
func (tx *Tx) SetPoliciesIncomplete(origin coe.Origin) {
	tx.store.policy.unlisted[origin] = true
	tx.store.policy.set = nil
}

// SetPoliciesComplete ends SetPoliciesIncomplete. All namespaces count as changed, because their
// pods may have waited for policies.
func (tx *Tx) SetPoliciesComplete(origin coe.Origin) {
	if tx.store.policy.unlisted[origin] {
		tx.store.policy.unlisted[origin] = false
		tx.markAll()
	}
}

// markAll marks all namespaces and the PolicySet as changed.
func (tx *Tx) markAll() {
	tx.stalePolicies()
	for name := range tx.store.namespaces {
		tx.dirty[name] = true
	}
}

// SetRevision sets the datastore revision that the Store reflects.
func (tx *Tx) SetRevision(r int64) { tx.revision = r }

// PutPod adds or replaces a pod.
func (tx *Tx) PutPod(origin coe.Origin, p *coe.Pod) {
	tx.changePod(p.UID, func(l map[string]*coe.Pod) { l[p.UID] = p }, origin)
}

// DeletePod deletes a pod of an origin.
func (tx *Tx) DeletePod(origin coe.Origin, uid string) {
	tx.changePod(uid, func(l map[string]*coe.Pod) { delete(l, uid) }, origin)
}

func (tx *Tx) changePod(uid string, change func(map[string]*coe.Pod), origin coe.Origin) {
	pods := func(l *layer) map[string]*coe.Pod { return l.pods }
	old, now := replace(tx, origin, uid, pods, change)
	tx.countPorts(old, now)
	tx.countProfiles(old, now)
	tx.store.countHosting(old, -1)
	tx.store.countHosting(now, +1)
	if old != nil {
		tx.store.countNode(old.HostIP, old.Namespace, -1)
		tx.store.countUse(old.HostIP, -interfaces(old), 0)
		ns := tx.touch(old.Namespace)
		delete(ns.pods, uid)
		ns.shownPods.changed(uid)
	}
	if now != nil {
		tx.store.countNode(now.HostIP, now.Namespace, +1)
		tx.store.countUse(now.HostIP, +interfaces(now), 0)
		ns := tx.touch(now.Namespace)
		ns.pods[uid] = now
		ns.shownPods.changed(uid)
		if ns.lacks(now) {
			tx.store.requesting[now.Namespace] = true
		}
	}
}

// PutService adds or replaces a service.
func (tx *Tx) PutService(origin coe.Origin, s *coe.Service) {
	tx.changeService(s.UID, func(l map[string]*coe.Service) { l[s.UID] = s }, origin)
}

// DeleteService deletes a service of an origin.
func (tx *Tx) DeleteService(origin coe.Origin, uid string) {
	tx.changeService(uid, func(l map[string]*coe.Service) { delete(l, uid) }, origin)
}

func (tx *Tx) changeService(uid string, change func(map[string]*coe.Service), origin coe.Origin) {
	services := func(l *layer) map[string]*coe.Service { return l.services }
	old, now := replace(tx, origin, uid, services, change)
	if old != nil {
		tx.store.countPlaced(old.Namespace, old.InternalLocal, -1)
		ns := tx.touch(old.Namespace)
		delete(ns.services, uid)
		ns.shown.Services = nil
	}
	if now != nil {
		tx.store.countPlaced(now.Namespace, now.InternalLocal, +1)
		ns := tx.touch(now.Namespace)
		ns.services[uid] = now
		ns.shown.Services = nil
	}
}

// PutEndpoints adds or replaces endpoints of a service.
func (tx *Tx) PutEndpoints(origin coe.Origin, e *coe.Endpoints) {
	tx.changeEndpoints(e.UID, func(l map[string]*coe.Endpoints) { l[e.UID] = e }, origin)
}

// DeleteEndpoints deletes endpoints of an origin.
func (tx *Tx) DeleteEndpoints(origin coe.Origin, uid string) {
	tx.changeEndpoints(uid, func(l map[string]*coe.Endpoints) { delete(l, uid) }, origin)
}

func (tx *Tx) changeEndpoints(uid string, change func(map[string]*coe.Endpoints), origin coe.Origin) {
	endpoints := func(l *layer) map[string]*coe.Endpoints { return l.endpoints }
	old, now := replace(tx, origin, uid, endpoints, change)
	if old != nil {
		tx.store.countPlaced(old.Namespace, old.Hinted(), -1)
		ns := tx.touch(old.Namespace)
		delete(ns.endpoints, uid)
		ns.shown.Endpoints = nil
	}
	if now != nil {
		tx.store.countPlaced(now.Namespace, now.Hinted(), +1)
		ns := tx.touch(now.Namespace)
		ns.endpoints[uid] = now
		ns.shown.Endpoints = nil
	}
}

// PutPolicy adds or replaces a policy.
func (tx *Tx) PutPolicy(origin coe.Origin, p *coe.PolicySpec) {
	tx.changePolicy(p.UID, func(l map[string]*coe.PolicySpec) { l[p.UID] = p }, origin)
}

// DeletePolicy deletes a policy of an origin.
func (tx *Tx) DeletePolicy(origin coe.Origin, uid string) {
	tx.changePolicy(uid, func(l map[string]*coe.PolicySpec) { delete(l, uid) }, origin)
}

func (tx *Tx) changePolicy(uid string, change func(map[string]*coe.PolicySpec), origin coe.Origin) {
	policies := func(l *layer) map[string]*coe.PolicySpec { return l.policies }
	old, now := replace(tx, origin, uid, policies, change)
	if old != nil {
		delete(tx.policiesOf(old.Namespace), uid)
		tx.usePolicy(old, -1)
	}
	if now != nil {
		tx.policiesOf(now.Namespace)[uid] = now
		tx.usePolicy(now, +1)
	}
}

// policiesOf returns the policies of a namespace, or of the cluster, for a change.
func (tx *Tx) policiesOf(namespace string) map[string]*coe.PolicySpec {
	if namespace == "" {
		tx.cluster = true
		return tx.store.policies
	}
	ns := tx.touch(namespace)
	ns.shown.Policies = nil
	return ns.policies
}

// PutNode adds or replaces a node.
func (tx *Tx) PutNode(origin coe.Origin, n *coe.Node) {
	tx.changeNode(n.UID, func(l map[string]*coe.Node) { l[n.UID] = n }, origin)
}

// DeleteNode deletes a node of an origin.
func (tx *Tx) DeleteNode(origin coe.Origin, uid string) {
	tx.changeNode(uid, func(l map[string]*coe.Node) { delete(l, uid) }, origin)
}

func (tx *Tx) changeNode(uid string, change func(map[string]*coe.Node), origin coe.Origin) {
	nodes := func(l *layer) map[string]*coe.Node { return l.nodes }
	old, now := replace(tx, origin, uid, nodes, change)
	tx.cluster = true
	for _, n := range []*coe.Node{old, now} {
		if n == nil {
			continue
		}
		for ns := range tx.store.nodePods[n.Address()] {
			tx.dirty[ns] = true
		}
	}
}

// PutNamespace adds or replaces a namespace. Only a change of its settings or Labels counts as a
// change, because nothing else of a namespace is mapped.
func (tx *Tx) PutNamespace(origin coe.Origin, n *coe.Namespace) {
	tx.store.layer(origin).namespaces[n.Name] = n
	tx.relabelNamespace(n.Name, n.Labels)
	tx.configureNamespace(n.Name, n)
}

// DeleteNamespace deletes a namespace of an origin.
func (tx *Tx) DeleteNamespace(origin coe.Origin, name string) {
	delete(tx.store.layer(origin).namespaces, name)
	tx.relabelNamespace(name, coe.Labels{})
	tx.configureNamespace(name, nil)
}

func (tx *Tx) configureNamespace(name string, now *coe.Namespace) {
	if now != nil && now.Ignored == 0 && now.PolicyLog == "" && !now.Labels.NamesProfiles() {
		now = nil
	}
	before := tx.store.namespaces[name]
	if now == nil && (before == nil || before.configured == nil) {
		return
	}
	tx.touch(name).configured = now
}

// replace changes the layer of one origin. It returns the applicable entity before and after.
func replace[T any](tx *Tx, origin coe.Origin, uid string, table func(*layer) map[string]*T, change func(map[string]*T)) (old, now *T) {
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

func (s *Store) layer(origin coe.Origin) *layer {
	for _, l := range s.layers {
		if l.origin == origin {
			return l
		}
	}
	panic(fmt.Sprintf("coe: origin %q was not given to NewStore", origin))
}

// touch returns a namespace, and marks its entities as changed.
func (tx *Tx) touch(name string) *namespace {
	tx.dirty[name] = true
	return tx.chosen(name)
}

// chosen returns a namespace for a change of chosen values. It does not mark the entities as
// changed: the caller chooses after a notification, and queues the next step itself.
func (tx *Tx) chosen(name string) *namespace {
	tx.touched[name] = true
	return tx.store.namespace(name)
}

// PutLease adds or replaces a lease.
func (tx *Tx) PutLease(l *coe.Lease) {
	leases := tx.leases(l.Namespace, l.Key())
	tx.store.countRest(leases[l.Key()], -1)
	tx.store.countRest(l, +1)
	leases[l.Key()] = l
	tx.store.replaceLease(l.Namespace, l.Key(), l)
}

// DeleteLease deletes a lease.
func (tx *Tx) DeleteLease(namespace string, key coe.LeaseKey) {
	leases := tx.leases(namespace, key)
	tx.store.countRest(leases[key], -1)
	delete(leases, key)
	tx.store.replaceLease(namespace, key)
}

// leases returns the leases of a namespace for a change of the lease with a key.
func (tx *Tx) leases(namespace string, key coe.LeaseKey) map[coe.LeaseKey]*coe.Lease {
	ns := tx.chosen(namespace)
	tx.leased[key.PodUID] = true
	ns.shownLeases.changed(key)
	return ns.leases
}

// PutELAN adds or replaces what was chosen for an elan-instance.
func (tx *Tx) PutELAN(namespace string, e *coe.ELANFact) { tx.elans(namespace)[e.Name] = e }

// DeleteELAN deletes what was chosen for an elan-instance.
func (tx *Tx) DeleteELAN(namespace, name string) { delete(tx.elans(namespace), name) }

func (tx *Tx) elans(namespace string) map[string]*coe.ELANFact {
	ns := tx.chosen(namespace)
	ns.shown.ELANs = nil
	return ns.elans
}

// PutVPN sets what was chosen for the namespace's vpn-instance.
func (tx *Tx) PutVPN(v *coe.VPNFact) { tx.chosen(v.Namespace).vpn = v }

// DeleteVPN deletes what was chosen for the namespace's vpn-instance.
func (tx *Tx) DeleteVPN(namespace string) { tx.chosen(namespace).vpn = nil }

// PutServiceFact adds or replaces the address of a service.
func (tx *Tx) PutServiceFact(f *coe.ServiceFact) { tx.serviceFacts(f.Namespace)[f.UID] = f }

// DeleteServiceFact deletes the address of a service.
func (tx *Tx) DeleteServiceFact(namespace, uid string) {
	delete(tx.serviceFacts(namespace), uid)
}

func (tx *Tx) serviceFacts(namespace string) map[string]*coe.ServiceFact {
	ns := tx.chosen(namespace)
	ns.shown.ServiceFacts = nil
	return ns.serviceFacts
}

// PutVIP adds a VIP of the namespace's services.
func (tx *Tx) PutVIP(namespace string, v coe.VIP) { tx.vips(namespace)[v] = true }

// DeleteVIP deletes a VIP of the namespace's services.
func (tx *Tx) DeleteVIP(namespace string, v coe.VIP) { delete(tx.vips(namespace), v) }

func (tx *Tx) vips(namespace string) map[coe.VIP]bool {
	ns := tx.chosen(namespace)
	ns.shown.VIPs = nil
	return ns.vips
}

// PutNodeFact adds or replaces what was chosen for a node.
func (tx *Tx) PutNodeFact(f *coe.NodeFact) {
	tx.claimed = true
	tx.numbers(f.Node, func(m map[netip.Addr]*coe.NodeFact) { m[f.Node] = f })
}

// DeleteNodeFact deletes what was chosen for the node with an address.
func (tx *Tx) DeleteNodeFact(node netip.Addr) {
	tx.claimed = true
	tx.numbers(node, func(m map[netip.Addr]*coe.NodeFact) { delete(m, node) })
}

// ForgetNodeFacts deletes what was chosen for all nodes.
func (tx *Tx) ForgetNodeFacts() { tx.store.numbers, tx.claimed = nil, true }

// numbers changes a copy, because views share the map. It marks the namespaces on the node if its ports there have another address.
func (tx *Tx) numbers(node netip.Addr, change func(map[netip.Addr]*coe.NodeFact)) {
	before := tx.store.isolatedEdge(node)
	numbers := maps.Clone(tx.store.numbers)
	if numbers == nil {
		numbers = map[netip.Addr]*coe.NodeFact{}
	}
	change(numbers)
	tx.withNumbers(func() { tx.store.numbers = numbers })
	if tx.store.isolatedEdge(node) != before {
		tx.markELANs(node.String() + ":")
	}
}

// withNumbers changes the numbers of nodes, or their range. It marks the namespaces of pods with host ports if the range
// is or was exhausted: their node can lack an address.
func (tx *Tx) withNumbers(change func()) {
	before := tx.store.exhausted()
	change()
	if before || tx.store.exhausted() {
		for ns := range tx.store.hosting {
			tx.dirty[ns] = true
		}
	}
}

// SetNetworks sets what was chosen for the cluster; nil deletes it.
func (tx *Tx) SetNetworks(n *coe.Networks) {
	had := tx.store.networks
	tx.withNumbers(func() { tx.store.networks = n })
	if had.IsolatedEdges() != n.IsolatedEdges() {
		tx.markELANs("")
	}
	if len(tx.store.gateways) == 0 || had != nil && n != nil && slices.Equal(had.Pods, n.Pods) {
		return
	}
	for name, ns := range tx.store.namespaces {
		if len(ns.services) > 0 { // gateways do not lead to endpoints outside the ranges of pods
			tx.dirty[name] = true
		}
	}
}

// SetAddressProblems replaces the problems of nodes whose address has another use, and of pools that are nearly full.
func (tx *Tx) SetAddressProblems(problems []coe.Problem) { tx.store.addressProblems = problems }

// changedNodes marks the namespaces of addresses that now belong to another node. If a node is new or
// gone, or has another name or zone, it marks the namespaces with services that depend on where
// clients are. If it has other further addresses, it marks the namespaces with endpoints at these.
func (tx *Tx) changedNodes(before map[netip.Addr]*coe.Node) {
	now := tx.store.nodes
	moved, further := false, map[netip.Addr]bool{}
	note := func(addr netip.Addr) {
		old, n := before[addr], now[addr]
		if old == n {
			return
		}
		tx.cluster = true
		moved = moved || old == nil || n == nil || old.HostName != n.HostName || old.Zone != n.Zone
		for ns := range tx.store.nodePods[addr] {
			tx.dirty[ns] = true
		}
		noteFurther(further, cmp.Or(old, &coe.Node{}), cmp.Or(n, &coe.Node{}))
	}
	for addr := range before {
		note(addr)
	}
	for addr := range now {
		note(addr)
	}
	if moved {
		for ns := range tx.store.placed {
			tx.dirty[ns] = true
		}
	}
	tx.markEndpoints(further)
}

// noteFurther notes the further addresses of a node before and after a change, if they differ.
func noteFurther(further map[netip.Addr]bool, old, n *coe.Node) {
	if old.SecondIP == n.SecondIP && old.ExternalIP == n.ExternalIP {
		return
	}
	for _, a := range append(old.FurtherIPs(), n.FurtherIPs()...) {
		further[a] = true
	}
}

// markEndpoints marks the namespaces with endpoints at some addresses.
func (tx *Tx) markEndpoints(addresses map[netip.Addr]bool) {
	if len(addresses) == 0 {
		return
	}
	is := func(a netip.Addr) bool { return addresses[a] }
	for name, ns := range tx.store.namespaces {
		for _, e := range ns.endpoints {
			if slices.ContainsFunc(e.Addresses, is) || slices.ContainsFunc(e.Terminating, is) {
				tx.dirty[name] = true
				break
			}
		}
	}
}

// SetDamaged replaces the problems of damaged records.
func (tx *Tx) SetDamaged(problems []coe.Problem) { tx.store.damaged = problems }

// SetUnreadable replaces the problems of unreadable entries of RESTCONF clients.
func (tx *Tx) SetUnreadable(problems []coe.Problem) {
	tx.store.unreadable = problems
	tx.cluster = true
}

// SetRefusals replaces the refusals in a namespace. The Store takes ownership of the maps.
func (tx *Tx) SetRefusals(namespace string, leases map[coe.LeaseKey]coe.Refusal, services map[string]coe.Refusal) {
	ns := tx.chosen(namespace)
	ns.refusals, ns.serviceRefusals = leases, services
}

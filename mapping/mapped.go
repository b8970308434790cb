package mapping

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// mapped is what a namespace was mapped to. The next mapping changes it: what the view and the policies do not change stays.
type mapped struct {
	view     coe.View           // those parts that belong to the namespace alone; zero before the first mapping
	enforced *namespacePolicies // the policies
	blocks   map[blockKey]*coe.Block
	elans    map[netip.Addr]*elan // by node
	// pods holds the interfaces by address, of which each has one interface. It is nil while there are no services.
	pods map[netip.Addr]*coe.Lease
	// waiting has the UIDs of the pods that are mapped again each time: an interface is missing, or is not on the pod's node.
	waiting map[string]bool
	// podProblems are the problems of single pods, by UID.
	podProblems map[string][]coe.Problem
	// hostPods are the pods on whose host ports nodes answer, by UID.
	hostPods map[string]*coe.Pod
	// segments are the interfaces that request a segment.
	segments map[*attached]bool
	parts    netvirt.Parts
}

func newMapped() *mapped {
	return &mapped{
		blocks: map[blockKey]*coe.Block{}, elans: map[netip.Addr]*elan{}, waiting: map[string]bool{}, podProblems: map[string][]coe.Problem{},
		hostPods: map[string]*coe.Pod{}, segments: map[*attached]bool{},
	}
}

// attached is an interface in the model, with the values that its objects are made from.
type attached struct {
	pod    *coe.Pod
	lease  *coe.Lease
	iface  *coe.PodInterface
	elan   *elan
	blocks [2]*coe.Block // of the lease's addresses, at most one of each family
	// membership is nil if no policy means anything for the namespace, or the backend has no ACLs.
	membership *membership
}

// elan is the namespace's elan-instance on a node.
type elan struct {
	name string
	at   netip.Addr    // the node
	fact *coe.ELANFact // nil until it is chosen
	node *coe.Node     // nil if unknown
	edge netip.Addr    // see netvirt.NodePort
	// interfaces are in the model, in no order.
	interfaces []*attached
	// first is the oldest lease, and iface its interface, which decides on the segment; nil
	// if no interface is mapped.
	first *coe.Lease
	iface *coe.PodInterface
	// kept is set if the elan-instance stays although no interface is mapped.
	kept bool
	// dhcp is set if an interface has DHCP.
	dhcp bool
	// blocks are the blocks whose subnet is in the model, sorted.
	blocks []*coe.Block
	// families has the address families of the interfaces that may be members of ACLs.
	families familySet
	// part has the objects of the elan-instance; nil if it is not in the model.
	part *netvirt.Part
	// touched and renewed are set during a mapping: see builder.touch and builder.renew.
	touched, renewed bool
}

// interfaces returns all interfaces of the namespace in the model, in no order.
func (m *mapped) interfaces() iter.Seq[*attached] {
	return func(yield func(*attached) bool) {
		for _, e := range m.elans {
			for _, a := range e.interfaces {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// interfacesOf returns the interfaces that a pod has in the model.
func (m *mapped) interfacesOf(uid string) (all []*attached) {
	leases := m.view.Leases
	from, _ := leases.Find(coe.LeaseKey{PodUID: uid})
	for _, l := range leases[from:] {
		if l.PodUID != uid {
			break
		}
		if e := m.elans[l.Node]; e != nil {
			if i := slices.IndexFunc(e.interfaces, func(a *attached) bool { return a.lease == l }); i >= 0 {
				all = append(all, e.interfaces[i])
			}
		}
	}
	return all
}

// follow maps again what has changed since the last mapping: pods, leases, elan-instances, and what all of them depend on.
func (b *builder) follow() {
	b.followServices()
	all := b.VPN != b.view.VPN || b.policies != b.enforced
	b.followELANs()
	stale := slices.Collect(maps.Keys(b.waiting))
	for _, e := range b.touched {
		if e.renewed {
			stale = appendPods(stale, e.interfaces)
		}
	}
	if all {
		stale = appendPods(stale, slices.Collect(b.interfaces()))
	}
	for p := range coe.Differences(b.view.Pods, b.Pods, (*coe.Pod).Compare) {
		stale = append(stale, p.UID)
	}
	for l := range coe.Differences(b.view.Leases, b.Leases, (*coe.Lease).Compare) {
		stale = append(stale, l.PodUID)
	}
	if !same(b.Refusals, b.view.Refusals) { // a pod that was refused something is waiting
		for key := range b.Refusals {
			stale = append(stale, key.PodUID)
		}
	}
	slices.Sort(stale)
	for _, uid := range slices.Compact(stale) {
		b.followPod(uid)
	}
	for _, e := range b.touched {
		b.settle(e)
	}
}

func appendPods(uids []string, interfaces []*attached) []string {
	for _, a := range interfaces {
		uids = append(uids, a.pod.UID)
	}
	return uids
}

// same reports whether two maps are one.
func same[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// followServices begins to keep the interfaces by address when services come, and ends when the last one goes.
func (b *builder) followServices() {
	switch {
	case len(b.Services) == 0:
		b.pods = nil
	case b.pods == nil:
		b.pods = map[netip.Addr]*coe.Lease{}
		for a := range b.interfaces() {
			b.notePod(a)
		}
	}
}

// notePod notes the addresses of an interface.
func (b *builder) notePod(a *attached) {
	if b.pods == nil {
		return
	}
	for _, addr := range a.lease.Addresses {
		b.pods[addr.Address] = a.lease
	}
}

// followPod maps a pod again, if one of the values that its interfaces were made from has changed.
func (b *builder) followPod(uid string) {
	before := b.interfacesOf(uid)
	var p *coe.Pod
	if at, found := slices.BinarySearchFunc(b.Pods, uid, func(p *coe.Pod, uid string) int { return strings.Compare(p.UID, uid) }); found {
		p = b.Pods[at]
	}
	if len(before) > 0 && !b.waiting[uid] && !slices.ContainsFunc(before, func(a *attached) bool { return a.pod != p || !b.unchanged(a) }) {
		return
	}
	for _, a := range before {
		b.detach(a)
	}
	delete(b.waiting, uid)
	delete(b.podProblems, uid)
	delete(b.hostPods, uid)
	if p != nil {
		b.pod(p)
	}
}

// unchanged reports whether the objects of an interface of the same pod are as they were. Its membership can be another
// value with the same meaning.
func (b *builder) unchanged(a *attached) bool {
	if a.elan.renewed || b.VPN != b.view.VPN || b.Leases.Get(a.lease.Key()) != a.lease || !b.sameMembership(a) {
		return false
	}
	_, refused := b.Refusals[a.lease.Key()]
	return !refused
}

// attach adds an interface to the model, and its objects.
func (b *builder) attach(a *attached) {
	a.elan.interfaces = append(a.elan.interfaces, a)
	b.touch(a.elan)
	b.notePod(a)
	if a.iface.NetworkType != "" || a.iface.SegmentationID != 0 {
		b.segments[a] = true
	}
	b.changed[a.lease.Name] = netvirt.NewPart(b.attachment(a)...)
}

// detach removes an interface from the model. Another pod can have its name or its addresses now.
func (b *builder) detach(a *attached) {
	a.elan.interfaces = slices.DeleteFunc(a.elan.interfaces, func(other *attached) bool { return other == a })
	b.touch(a.elan)
	for _, addr := range a.lease.Addresses {
		if b.pods[addr.Address] == a.lease {
			delete(b.pods, addr.Address)
		}
	}
	delete(b.segments, a)
	if _, again := b.changed[a.lease.Name]; !again {
		b.changed[a.lease.Name] = nil
	}
}

// forgetAll removes all interfaces and elan-instances from the model.
func (b *builder) forgetAll() {
	b.mapped = newMapped()
}

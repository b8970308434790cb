package ipam

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
)

// round is one Sync. It releases the leases of deleted pods, deletes records whose rest is over,
// and then claims leases for new pods. It writes the deletions before the claims. If the writes
// are interrupted, no two records in the journal have the same address.
type round struct {
	*Assigner
	now      time.Time
	elapsed  time.Duration // by Config.Elapsed
	complete bool
	given    map[string]bool // the namespaces that the caller gave
	spaces   []*space        // the given and the requesting namespaces, sorted
	write    *journal.Write
	// touched are the namespaces with a changed fact.
	touched map[string]bool
	// more are the given namespaces in which a name became free after their claims. late is
	// set if something became free, after the claims, that any namespace can use.
	more map[string]bool
	late bool
	// ranges are the ranges of services that nodes route; nil before the first use.
	ranges []netip.Prefix
}

// space is a namespace of a round.
type space struct {
	*namespace
	view coe.View
	todo []*coe.Pod // unsettled pods that can have leases
	refused
}

func (a *Assigner) newRound(namespaces []string) *round {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &round{
		Assigner: a, now: a.cfg.Now(), elapsed: a.cfg.Elapsed(),
		// Complete is called before View: if it is true, pods that a view does not have are
		// deleted.
		complete: a.store.Complete(),
		write:    journal.NewWrite(), touched: map[string]bool{}, more: map[string]bool{},
		given: map[string]bool{},
	}
	for _, ns := range namespaces {
		r.given[ns] = true
	}
	all := maps.Clone(r.given)
	maps.Copy(all, a.requesting)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r.spaces = append(r.spaces, &space{namespace: a.namespace(name), view: a.store.View(name)})
	}
	return r
}

func (r *round) run(ctx context.Context) error {
	for _, s := range r.spaces {
		gone := r.scan(s)
		if r.complete {
			r.release(gone)
			r.releaseServices(s)
			r.expire(s)
		}
	}
	r.settleDamage()
	r.followDHCP()
	r.followNodes()
	if r.cfg.Nodes.Joined() {
		r.followNetworks()
	}
	r.vips.BeginRound()
	r.freed = r.sweep() || r.freed
	if r.write.Deletes() {
		if err := r.flush(ctx, false); err != nil {
			return err
		}
	}
	if r.missingInstances && !r.unasked {
		r.restoreInstances()
	}
	r.claimAll()
	if err := r.flush(ctx, true); err != nil {
		return err
	}
	if err := r.vips.Flush(ctx, r.store); err != nil {
		return err
	}
	r.noteClaimed()
	r.followPools()
	r.late = r.sweep() || r.vips.Freed()
	if err := r.flush(ctx, false); err != nil {
		return err
	}
	r.forget()
	return nil
}

// claimAll claims addresses for new pods and services, requested addresses first.
func (r *round) claimAll() {
	r.alloc.Nodes = r.countNodes()
	r.claimRequested()
	for _, s := range r.spaces {
		r.claimClusterIPs(s)
	}
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if !requests(p) {
				r.claimPod(s, p)
			}
		}
		for _, svc := range s.view.Services {
			r.claimService(s, svc)
		}
	}
	for _, s := range r.spaces {
		r.claimExternalIPs(s)
		r.claimNodePorts(s)
		if r.complete {
			r.releaseVIPs(s)
		}
	}
}

// countNodes returns how many nodes may get blocks: those that a source reports, or those that have pods.
func (r *round) countNodes() int {
	first := map[netip.Addr]bool{} // nodes that get a first pod
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if r.elansOn[p.HostIP] == nil {
				first[p.HostIP] = true
			}
		}
	}
	return max(len(r.elansOn)+len(first), len(r.store.Nodes()))
}

// scan collects the pods of a namespace whose leases possibly do not fit. It returns the living
// leases whose interface is deleted.
func (r *round) scan(s *space) (gone []*coe.Lease) {
	s.look(s.view.Pods)
	for _, uid := range slices.Sorted(maps.Keys(s.unsettled)) {
		p := s.pod(uid)
		if known := s.pods[uid]; known != nil {
			gone = append(gone, withoutInterface(known, p)...)
		}
		switch {
		case p != nil && hasNetwork(p) && s.view.Misplaced(p): // wait until the address of its node has no other use
		case p != nil && canPlug(p):
			s.todo = append(s.todo, p)
		case r.complete:
			delete(s.unsettled, uid)
		}
	}
	slices.SortFunc(gone, compareLeases)
	return gone
}

// pod returns the pod with a UID, or nil.
func (s *space) pod(uid string) *coe.Pod {
	n, found := slices.BinarySearchFunc(s.view.Pods, uid, func(p *coe.Pod, uid string) int { return strings.Compare(p.UID, uid) })
	if !found {
		return nil
	}
	return s.view.Pods[n]
}

func compareLeases(a, b *coe.Lease) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.PodUID, b.PodUID), strings.Compare(a.InterfaceUID, b.InterfaceUID))
}

// hasNetwork reports whether a pod can have leases. canPlug reports whether leases can be chosen
// for it now. A pod whose node is not known keeps its leases, because it may still run there.
func hasNetwork(p *coe.Pod) bool { return !p.NoNetwork && p.Name != "" }

func canPlug(p *coe.Pod) bool { return hasNetwork(p) && p.HostIP.IsValid() }

// withoutInterface returns the living leases of interfaces that the pod does not have. p is nil
// if the pod is deleted.
func withoutInterface(known *pod, p *coe.Pod) (gone []*coe.Lease) {
	for _, l := range known.leases {
		if l.Released == 0 && (p == nil || !hasNetwork(p) || !hasInterface(p, l.InterfaceUID)) {
			gone = append(gone, l)
		}
	}
	return gone
}

func hasInterface(p *coe.Pod, uid string) bool {
	return slices.ContainsFunc(p.AllInterfaces(), func(i coe.PodInterface) bool { return i.UID == uid })
}

// forget drops the indexes of empty namespaces.
func (r *round) forget() {
	for name := range r.touched {
		if ns := r.namespaces[name]; ns != nil && ns.empty() {
			delete(r.namespaces, name)
		}
	}
	for _, s := range r.spaces {
		if s.empty() {
			delete(r.namespaces, s.name)
		}
	}
}

// affected returns the namespaces to Sync next.
func (r *round) affected() []string {
	affected := r.more
	for ns := range r.touched {
		if !r.given[ns] {
			affected[ns] = true
		}
	}
	for _, s := range r.spaces {
		if !r.given[s.name] {
			affected[s.name] = true // so that the caller Syncs it, and learns the time of the next Sync
		}
	}
	for ns, refused := range r.waiting {
		if (r.late || r.freed && !r.given[ns]) && refused.any(healedByRoom) {
			affected[ns] = true
		}
	}
	r.freed = false
	if r.clusterChanged {
		affected[""] = true // the problems of the cluster
		r.clusterChanged = false
	}
	return slices.Sorted(maps.Keys(affected))
}

// again returns the time until the first rest in the namespaces of the round is over.
func (r *round) again() time.Duration {
	if !r.complete {
		return 0 // nothing is released or expires; when the store is complete, all are synced
	}
	first, any := time.Duration(0), false
	note := func(record string) {
		if rest, resting := r.rests.byRecord[record]; resting && (!any || rest.end < first) {
			first, any = rest.end, true
		}
	}
	for _, s := range r.spaces {
		for key := range s.released {
			note(journal.LeaseRecord(key))
		}
		for _, formers := range s.formers {
			for _, f := range formers {
				note(journal.FormerRecord(f))
			}
		}
		for uid := range s.namespace.services {
			note(journal.ServiceRecord(uid))
		}
	}
	if !any {
		return 0
	}
	return max(first-r.elapsed, time.Millisecond)
}

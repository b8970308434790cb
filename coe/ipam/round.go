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
)

// round is one Sync. It releases the leases of deleted pods, deletes what has rested long
// enough, and then claims for new pods. Deletions are written before claims, so that no prefix
// of the writes has an address twice.
type round struct {
	*Assigner
	now      time.Time
	elapsed  time.Duration // by Config.Elapsed
	complete bool
	given    map[string]bool // the namespaces that are asked for
	spaces   []*space        // of the given and of the requesting namespaces, sorted
	write    *write
	// touched are the namespaces of which a fact changed.
	touched map[string]bool
	// more are given namespaces in which something came free after they were
	// claimed for; late, that it may serve any namespace.
	more map[string]bool
	late bool
	// ranges are the ranges of services that nodes know; nil before the first use.
	ranges []netip.Prefix
}

// space is one of the namespaces of a round.
type space struct {
	*namespace
	view coe.View
	todo []*coe.Pod // unsettled pods that can have leases
	refused
}

func (a *Assigner) newRound(namespaces []string) *round {
	r := &round{
		Assigner: a, now: a.cfg.Now(), elapsed: a.cfg.Elapsed(),
		// Asked before the views are taken: what a view lacks then is gone.
		complete: a.store.Complete(),
		write:    newWrite(), touched: map[string]bool{}, more: map[string]bool{},
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
	r.followDNS()
	r.followNodes()
	if r.cfg.Nodes.Network.IsValid() {
		r.followNetworks()
	}
	r.vips.freed = false
	r.vips.round++
	r.freed = r.sweep() || r.freed
	if r.write.deletes {
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
	if err := r.flushVIPs(ctx); err != nil {
		return err
	}
	r.noteClaimed()
	r.late = r.sweep() || r.vips.freed
	if err := r.flush(ctx, false); err != nil {
		return err
	}
	r.forget()
	return nil
}

// claimAll claims for new pods and services: requested addresses first.
func (r *round) claimAll() {
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
		if r.complete {
			r.releaseVIPs(s)
		}
	}
}

// scan finds the pods of a namespace that possibly do not match their leases. It
// returns the living leases whose interface is gone.
func (r *round) scan(s *space) (gone []*coe.Lease) {
	s.look(s.view.Pods)
	for _, uid := range slices.Sorted(maps.Keys(s.unsettled)) {
		p := s.pod(uid)
		if known := s.pods[uid]; known != nil {
			gone = append(gone, withoutInterface(known, p)...)
		}
		switch {
		case p != nil && hasNetwork(p) && s.view.Misplaced(p): // until its node has an address of its own
		case p != nil && canPlug(p):
			s.todo = append(s.todo, p)
		case r.complete:
			delete(s.unsettled, uid)
		}
	}
	slices.SortFunc(gone, compareLeases)
	return gone
}

// pod returns the pod of a uid, or nil.
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

// hasNetwork reports whether a pod can have leases, and canPlug whether they can be chosen
// now. One whose node is not known keeps what it has: it may run there all the same.
func hasNetwork(p *coe.Pod) bool { return !p.NoNetwork && p.Name != "" }

func canPlug(p *coe.Pod) bool { return hasNetwork(p) && p.HostIP.IsValid() }

// withoutInterface returns the living leases whose interface the pod, nil when
// it is gone, does not have.
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

// forget drops the indexes of namespaces that have nothing.
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

// affected are the namespaces to Sync next.
func (r *round) affected() []string {
	affected := r.more
	for ns := range r.touched {
		if !r.given[ns] {
			affected[ns] = true
		}
	}
	for _, s := range r.spaces {
		if !r.given[s.name] {
			affected[s.name] = true // the caller gets the time when it is due again
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

// again is the time until the first rest in the given namespaces is over.
func (r *round) again() time.Duration {
	if !r.complete {
		return 0 // nothing is released or expires before; then all are synced
	}
	first, any := time.Duration(0), false
	note := func(record string) {
		if rest, resting := r.rests[record]; resting && (!any || rest.end < first) {
			first, any = rest.end, true
		}
	}
	for _, s := range r.spaces {
		for key := range s.released {
			note(leaseRecord(key))
		}
		for _, formers := range s.formers {
			for _, f := range formers {
				note(formerRecord(f))
			}
		}
		for uid := range s.namespace.services {
			note(serviceRecord(uid))
		}
	}
	if !any {
		return 0
	}
	return max(first-r.elapsed, time.Millisecond)
}

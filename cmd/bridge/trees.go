package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
)

// netvirtTree returns one of the Netvirt trees: what is wanted, or what the backend has
// confirmed.
func (b *Bridge) netvirtTree(ctx context.Context, top string, confirmed bool) ([]byte, error) {
	objects := b.wanted
	if confirmed {
		r, _ := b.current(ctx)
		objects = r.loop.Confirmed
	}
	return netvirtjson.Tree(top, iter.Seq[netvirt.Object](objects))
}

// current returns the role of this replica, whose loop knows how far the backend is, and
// the leader. A standby compares first, unless no replica leads, or it was just elected:
// reading the backend would only delay that.
func (b *Bridge) current(ctx context.Context) (r *role, leader leader) {
	r, leader = b.role.Load(), b.leader(ctx)
	if !r.leads() && leader.name != "" && leader.name != b.data.Name() {
		for _, l := range r.loops() {
			l.Look(ctx)
		}
	}
	return r, leader
}

func (b *Bridge) wanted(yield func(netvirt.Object) bool) {
	settings := b.settingsOf(b.role.Load())
	for _, s := range append(b.scopes(), netvirt.Cluster) {
		model, _ := mapping.Scope(b.store, s, settings)
		for _, o := range model {
			if !yield(o) {
				return
			}
		}
	}
}

func (b *Bridge) statusTree(ctx context.Context, _ tree.Asked) ([]byte, error) {
	r, leader := b.current(ctx)
	st := r.loop.Status()
	out := status.FromLoop(st)
	out.Leads, out.Leader = r.leads(), leader.name
	out.InSync = st.InSync && (r.leads() || b.ledBy(leader, st))
	out.Sources = b.sources(leader.known)
	out.Problems = append(b.fileProblems(), out.Problems...)
	for _, s := range r.filled {
		out.Filled = append(out.Filled, status.FilledOf(s.loop.Status()))
	}
	return marshal("coe-status:status", out)
}

// fileProblems lists the certificates of this replica that must be renewed.
func (b *Bridge) fileProblems() (all []status.Problem) {
	for _, e := range b.access.Expiring() {
		all = append(all, status.Problem{Kind: "certificate", UID: e.Flag, Name: e.Flag, Reason: coe.CertificateExpires, Message: e.String()})
	}
	return all
}

// sources is the state of each source; answers reports whether the datastore answers.
func (b *Bridge) sources(answers bool) []status.Source {
	all := []status.Source{{Name: coe.RESTCONF, Complete: b.store.CompleteFor(coe.RESTCONF), Reachable: answers}}
	if b.cluster == nil {
		return all
	}
	st := b.cluster.source.Status()
	cluster := status.Source{
		Name: coe.Kubernetes, Complete: b.store.CompleteFor(coe.Kubernetes), Reachable: st.Reachable, Troubles: b.cluster.reporter.Troubles(),
	}
	for _, r := range st.Resources {
		cluster.Resources = append(cluster.Resources, status.Resource{
			Name: r.Resource, Listed: r.Synced, Watching: r.Watching, Since: status.Time(r.Since), Restarts: r.Restarts, Problem: r.Problem,
		})
	}
	egress := ""
	if b.cluster.egress != nil {
		egress = b.cluster.egress.Trouble()
	}
	for _, trouble := range []string{b.waitsForPolicies(), egress} {
		if trouble != "" {
			cluster.Troubles = append(cluster.Troubles, trouble)
		}
	}
	return append(all, cluster)
}

// waitsForPolicies says that pods wait for network policies; it is empty if they do not. Without them,
// a pod could receive a packet that a policy forbids.
func (b *Bridge) waitsForPolicies() string {
	if b.store.PoliciesComplete() || b.settingsOf(b.role.Load()).Limits.NoACLs {
		return ""
	}
	return "no new pod gets an interface until all network policies are listed"
}

// ledBy reports whether a standby's status may count as in sync. It does not while no replica
// leads, or this one was just elected, because no replica programs the backend then. Nor does it while
// an address is being chosen, because only the leader knows whether one can be.
func (b *Bridge) ledBy(leader leader, st reconcile.Status) bool {
	waits := func(p coe.Problem) bool { return p.Reason == coe.Waiting }
	return leader.name != "" && leader.name != b.data.Name() && !slices.ContainsFunc(st.Scopes, func(s reconcile.ScopeStatus) bool {
		return slices.ContainsFunc(s.Problems, waits)
	})
}

// leaderTimeout bounds the question who leads.
const leaderTimeout = time.Second

// leader is the replica that leads.
type leader struct {
	name  string // empty if no replica leads
	known bool   // the datastore has answered
}

func (b *Bridge) leader(ctx context.Context) leader {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	name, err := b.data.Leader(ctx)
	return leader{name, err == nil}
}

// podsTree traces all pods, the pods of one namespace, or one pod.
func (b *Bridge) podsTree(ctx context.Context, asked tree.Asked) ([]byte, error) {
	namespaces, uid := b.store.Namespaces(), ""
	if asked.Entry != nil {
		namespaces = asked.Entry[:1]
	}
	if asked.Within != nil {
		uid = asked.Within[0]
	}
	r, _ := b.current(ctx)
	tracer := status.Tracer{Store: b.store, Settings: b.settingsOf(r), Loop: r.loop, Kinds: r.backend.Kinds(), Confirmed: b.hub.Confirmed, Network: b.ports.progress}
	pods := tracer.Pods(namespaces, uid)
	if len(pods.Namespaces) == 0 {
		return nil, nil
	}
	return marshal("coe-status:pods", pods)
}

func (b *Bridge) leasesTree() ([]byte, error) {
	leases := status.LeasesOf(b.store)
	if len(leases.Leases) == 0 {
		return nil, nil
	}
	return marshal("coe-status:leases", leases)
}

func (b *Bridge) egressIPsTree() ([]byte, error) {
	all := status.EgressIPsOf(b.store)
	if len(all.EgressIPs) == 0 {
		return nil, nil
	}
	return marshal("coe-status:egress-ips", all)
}

func (b *Bridge) servicesTree() ([]byte, error) {
	all := status.ServicesOf(b.store, b.settingsOf(b.role.Load()))
	if len(all.Services) == 0 {
		return nil, nil
	}
	return marshal("coe-status:services", all)
}

// allocationsTree has the leased addresses of each pool.
func (b *Bridge) allocationsTree() ([]byte, error) {
	pools := status.AllocationsOf(b.store)
	if len(pools.Networks) == 0 {
		return nil, nil
	}
	return marshal("dhcp_allocation_pool", pools)
}

func marshal(what string, content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("write tree %s: %w", what, err)
	}
	return raw, nil
}

package bridge

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/northbound/entry"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// followChosen passes the leader's choices and confirmations on to the streams of the
// nodes, in every replica. With an embedded datastore no other replica leads, so it begins with what this one reads to lead.
func (b *Bridge) followChosen(ctx context.Context) error {
	apply := func(batch datastore.RecordBatch) error {
		b.hub.Apply(agentstream.Batch(batch))
		return nil
	}
	if b.data.Shared() {
		return b.data.FollowRecords(ctx, "", apply)
	}
	select {
	case all := <-b.read:
		return all.Follow(ctx, apply)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readRecords reads the records that a new leader needs. It passes the first ones on to followChosen.
func (b *Bridge) readRecords(ctx context.Context, l *datastore.Leadership) (*datastore.AllRecords, error) {
	all, err := l.ReadRecords(ctx)
	if err == nil && !b.data.Shared() {
		b.readOnce.Do(func() { b.read <- all })
	}
	return all, err
}

// follow puts what RESTCONF clients write into the store.
func (b *Bridge) follow(ctx context.Context) error {
	feed := northbound.NewFeed(b.store, b.setPosted, b.log)
	return b.data.Follow(ctx, func(batch datastore.Batch) error {
		in := northbound.Batch{Revision: batch.Revision, Snapshot: batch.Snapshot}
		for _, u := range batch.Delete {
			if e, ok := entryOf(u); ok {
				e.Raw = nil
				in.Entries = append(in.Entries, e)
			}
		}
		for _, u := range batch.Put {
			if e, ok := entryOf(u); ok {
				in.Entries = append(in.Entries, e)
			}
		}
		feed.Apply(in)
		return nil
	})
}

func entryOf(u *datastore.Unit) (northbound.Entry, bool) {
	if len(u.Key) == 0 {
		return northbound.Entry{}, false
	}
	return northbound.Entry{
		List: entry.ListName(u.Node), Key: northbound.JoinKey(u.Key...), Raw: u.Raw, Damaged: u.Damaged, Revision: u.ModRevision,
	}, true
}

// isObject reports whether a value of the datastore is a JSON object, as the entries of
// all lists are.
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' && json.Valid(raw) }

// changed passes a change of the store on.
func (b *Bridge) changed(c state.Changed) {
	r := b.role.Load()
	if r == nil {
		return // it is not opened yet
	}
	if !r.leads() {
		for _, l := range r.loops() {
			l.Note(scopesOf(c)...)
		}
		return // a leader looks at everything first
	}
	if c.Egress || c.Cluster {
		r.keeper.Wake()
		if b.cluster != nil && b.cluster.egress != nil {
			b.cluster.egress.Mark()
		}
	}
	r.confirmer.Mark(c.Leased...)
	if b.cluster != nil {
		b.cluster.reporter.Leased(c.Leased...)
	}
	if c.Blocks {
		r.markGateways()
	}
	if scopes := scopesOf(c); len(scopes) > 0 {
		r.claims.Mark(scopes...)
	}
}

// scopesOf returns the scopes that have changed. The cluster comes first, because other scopes refer to it.
func scopesOf(c state.Changed) []netvirt.Scope {
	scopes := make([]netvirt.Scope, 0, len(c.Namespaces)+1)
	if c.Cluster {
		scopes = append(scopes, netvirt.Cluster)
	}
	for _, ns := range c.Namespaces {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	return scopes
}

// setPosted sets the pools that RESTCONF clients have posted.
func (b *Bridge) setPosted(pools []dhcppool.Pool) {
	b.mu.Lock()
	b.posted, b.joined = pools, nil
	b.mu.Unlock()
	b.repool()
}

// repoolWhenDue follows a change of nodes, which may have pools. The Assigner may change the
// store while it holds its lock, so the change itself cannot call it back.
func (b *Bridge) repoolWhenDue() {
	if pooled := b.pooled.Load(); pooled == nil || !pooled.of(b.store.Nodes()) {
		b.repool()
	}
}

// repool sets the pools of the assigner.
func (b *Bridge) repool() {
	b.repooling.Lock() // the newest pools are set last
	defer b.repooling.Unlock()
	r := b.role.Load() // not before: pooled must be the pools of this role
	if !r.leads() {
		return
	}
	whole := b.store.Complete()         // before the pools are read: later changes call repool again
	_, listed := b.store.ServiceCIDRs() // before their ranges are read
	joined := b.allPools()
	r.assigner.SetServiceRanges(joined.services, listed || b.cluster == nil)
	for _, ns := range r.assigner.SetPools(joined.pools) {
		r.claims.Mark(netvirt.Scope(ns))
	}
	b.pooled.Store(joined)
	if whole {
		r.assigner.PoolsAreWhole()
	}
	r.claims.Mark(netvirt.Cluster) // nodes learn the pools
}

// joinedPools are all pools, for these nodes and the posted pools of the time.
type joinedPools struct {
	nodes    map[netip.Addr]*coe.Node
	pools    []dhcppool.Pool
	services []netip.Prefix // ranges of cluster addresses of ServiceCIDRs
	problems []coe.Problem
}

// of reports whether the pools are for these nodes of the Store. It replaces the map when nodes or ServiceCIDRs change.
func (j *joinedPools) of(nodes map[netip.Addr]*coe.Node) bool {
	return reflect.ValueOf(j.nodes).UnsafePointer() == reflect.ValueOf(nodes).UnsafePointer()
}

// allPools joins the pools of the settings, then the posted ones, then the nodes' own. A pool
// that cannot serve beside an earlier one is a problem. They are joined once for all callers,
// who must not change them: an agent's request needs them too, and thousands of nodes have some.
func (b *Bridge) allPools() *joinedPools {
	nodes := b.store.Nodes()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined == nil || !b.joined.of(nodes) {
		b.joined = b.joinPools(nodes)
	}
	return b.joined
}

// joinPools needs mu.
func (b *Bridge) joinPools(nodes map[netip.Addr]*coe.Node) *joinedPools {
	all, problems := ranges.JoinPools(b.cfg.Pools, b.posted, b.reserved(), !b.cfg.Mapping.Isolated())
	if b.cfg.NodePools {
		ofNodes, more := ranges.NodePools(nodes, all, b.reserved())
		all, problems = append(all, ofNodes...), append(problems, more...)
	}
	cidrs, _ := b.store.ServiceCIDRs()
	services, more := ranges.ServiceRanges(cidrs, all, b.reserved())
	return &joinedPools{nodes, all, services, append(problems, more...)}
}

// requestable reports whether the agent of a node may request an address for a pod of a
// namespace: an address of a pool that serves the pod, or of --pod-network. Pools of the
// first network of ipam.NetworksOf that has one serve it.
func (b *Bridge) requestable(node netip.Addr, namespace string, addr netip.Addr) bool {
	pools := b.allPools().pools
	var serving []dhcppool.Pool
	for _, network := range ipam.NetworksOf(netvirt.ELANName(node, namespace), namespace, node) {
		for _, p := range pools {
			if p.Network == network {
				serving = append(serving, p)
			}
		}
		if len(serving) > 0 {
			break
		}
	}
	return slices.ContainsFunc(b.cfg.Nodes.Pods, func(p netip.Prefix) bool { return p.Contains(addr) }) ||
		slices.ContainsFunc(serving, func(p dhcppool.Pool) bool { return p.Subnet.Contains(addr) })
}

// reserved lists the ranges that no pool may overlap.
func (b *Bridge) reserved() ranges.List {
	return b.nodes(b.role.Load().backend.Kinds()).Ranges()
}

func (b *Bridge) scopes() []netvirt.Scope {
	var scopes []netvirt.Scope
	for _, ns := range b.store.Namespaces() {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	return scopes
}

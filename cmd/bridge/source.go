package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// follow tells the store what RESTCONF clients write.
func (b *Bridge) follow(ctx context.Context) error {
	feed := northbound.NewFeed(b.store, b.setPosted, b.log)
	return b.data.Follow(ctx, func(batch datastore.Batch) error {
		in := northbound.Batch{Revision: batch.Revision, Snapshot: batch.Snapshot}
		for _, u := range batch.Delete {
			if e, ok := entry(u); ok {
				e.Raw = nil
				in.Entries = append(in.Entries, e)
			}
		}
		for _, u := range batch.Put {
			if e, ok := entry(u); ok {
				in.Entries = append(in.Entries, e)
			}
		}
		feed.Apply(in)
		return nil
	})
}

func entry(u *datastore.Unit) (northbound.Entry, bool) {
	if len(u.Key) == 0 {
		return northbound.Entry{}, false
	}
	return northbound.Entry{
		List: listName(u.Node), Key: northbound.JoinKey(u.Key...), Raw: u.Raw, Damaged: u.Damaged, Revision: u.ModRevision,
	}, true
}

// isObject reports whether a value of the datastore is a JSON object, as the entries of
// all lists are.
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' && json.Valid(raw) }

// listName is "module:container/list".
func listName(n *yang.Node) string {
	name := n.Name
	for p := n.Parent; p != nil; p = p.Parent {
		name = p.Name + "/" + name
	}
	return fmt.Sprintf("%s:%s", n.Module.Name, name)
}

// changed hands on what the store says has changed.
func (b *Bridge) changed(c coe.Changed) {
	p := b.part.Load()
	if p == nil {
		return // nobody looks yet
	}
	if !p.leads() {
		for _, l := range p.loops() {
			l.Note(scopesOf(c)...)
		}
		return // whoever leads looks at everything first
	}
	if c.Cluster {
		b.repoolDue.Store(true)
	}
	p.confirmer.Mark(c.Leased...)
	if b.cluster != nil {
		b.cluster.reporter.Leased(c.Leased...)
		runtime.Gosched() // who annotates goes first: the API server is the longer way
	}
	if scopes := scopesOf(c); len(scopes) > 0 {
		p.claims.Mark(scopes...)
	}
}

func scopesOf(c coe.Changed) []netvirt.Scope {
	scopes := make([]netvirt.Scope, 0, len(c.Namespaces)+1)
	for _, ns := range c.Namespaces {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	if c.Cluster {
		scopes = append(scopes, netvirt.Cluster)
	}
	return scopes
}

// setPosted hands on what pools RESTCONF clients have posted.
func (b *Bridge) setPosted(pools []dhcppool.Pool) {
	b.mu.Lock()
	b.posted = pools
	b.mu.Unlock()
	b.repool()
}

// repoolWhenDue follows a change of nodes. The Assigner may change the store while it
// holds its lock, so the change itself cannot call it back; a pod's claim comes after it.
func (b *Bridge) repoolWhenDue() {
	if b.repoolDue.Swap(false) {
		b.repool()
	}
}

// repool tells who chooses addresses what pools there are.
func (b *Bridge) repool() {
	p := b.part.Load()
	if !p.leads() {
		return
	}
	b.repooling.Lock() // the assigner is told of the newest pools last
	defer b.repooling.Unlock()
	whole := b.store.Complete() // asked first: what is said later is told again
	pools, _ := b.allPools()
	for _, ns := range p.assigner.SetPools(pools) {
		p.claims.Mark(netvirt.Scope(ns))
	}
	if whole {
		p.assigner.PoolsAreWhole()
	}
	p.claims.Mark(netvirt.Cluster) // nodes are told what pools there are
}

// allPools are pools, with what is posted now.
func (b *Bridge) allPools() ([]dhcppool.Pool, []coe.Problem) {
	b.mu.Lock()
	posted := b.posted
	b.mu.Unlock()
	return b.pools(posted)
}

// pools are all pools that can serve beside each other: those of the settings, then
// those that are posted, then those of nodes. What can't is a problem.
func (b *Bridge) pools(posted []dhcppool.Pool) ([]dhcppool.Pool, []coe.Problem) {
	all, problems := ipam.JoinPools(b.cfg.Pools, posted, b.reserved(), !b.cfg.Mapping.Isolated())
	if b.cfg.NodePools {
		ofNodes, more := ipam.NodePools(b.store.Nodes(), all, b.reserved())
		all, problems = append(all, ofNodes...), append(problems, more...)
	}
	return all, problems
}

// requestable reports whether the agent of a node may request an address for a pod of a
// namespace: an address of a pool that serves the pod, or of --pod-network. Pools of the
// first network of ipam.NetworksOf that has one serve it.
func (b *Bridge) requestable(node netip.Addr, namespace string, addr netip.Addr) bool {
	pools, _ := b.allPools()
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

// reserved are the ranges that no pool may overlap.
func (b *Bridge) reserved() ipam.Ranges {
	return ipamConfig(b.cfg.Mapping, b.cfg.Nodes.of(b.cfg.Mapping, b.part.Load().backend.Kinds()), 0).Ranges()
}

// mapped tells Kubernetes what can't be mapped of a scope.
func (b *Bridge) mapped(s netvirt.Scope, problems []coe.Problem) {
	if b.cluster != nil {
		b.cluster.reporter.Problems(string(s), problems)
	}
}

// mapper maps scopes again and again, for one goroutine.
func (b *Bridge) mapper() func(netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	mapper := mapping.NewMapper(b.store, b.cfg.Mapping)
	return func(s netvirt.Scope) (netvirt.Parts, []coe.Problem) {
		parts, problems := mapper.Scope(s)
		if s == netvirt.Cluster {
			pools, ofPools := b.allPools()
			problems = slices.Concat(problems, ofPools, ipam.SmallPools(pools, b.store.Nodes(), b.store.Namespaces()))
		}
		return parts, problems
	}
}

func (b *Bridge) scopes() []netvirt.Scope {
	var scopes []netvirt.Scope
	for _, ns := range b.store.Namespaces() {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	return scopes
}

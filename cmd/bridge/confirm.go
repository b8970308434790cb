package bridge

import (
	"context"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// The prefixes of the leader's records: what is chosen, what of it the backend is
// known to have, and which namespaces' services have which addresses.
const (
	chosen    = "chosen"
	confirmed = "confirmed"
	vips      = "vips"
)

// followChosen tells the streams of the nodes what is chosen and confirmed, whoever
// leads.
func (b *Bridge) followChosen(ctx context.Context) error {
	return b.data.FollowRecords(ctx, "", func(batch datastore.RecordBatch) error {
		b.hub.Apply(agentstream.Batch(batch))
		return nil
	})
}

// has tells whether the backend has the interface of a lease just as that says, and the
// network has made it work.
func (p *part) has(l *coe.Lease) bool {
	s := netvirt.Scope(l.Namespace)
	i, found := p.loop.Has(s, netvirt.Interface{Name: l.Name}.Key()).(netvirt.Interface)
	if !found || i.PodUID != l.PodUID || i.UID != l.InterfaceUID || p.loop.Lacks(i) != "" {
		return false
	}
	e, found := p.loop.Has(s, netvirt.ELANInterface{Name: l.Name}.Key()).(netvirt.ELANInterface)
	if !found || e.ELAN != netvirt.ELANName(l.Node, l.Namespace) || p.loop.Lacks(e) != "" {
		return false
	}
	for _, x := range l.Addresses {
		key := netvirt.Adjacency{Interface: l.Name, Address: x.Address}.Key()
		a, found := p.loop.Has(s, key).(netvirt.Adjacency)
		if !found || a.MAC != l.MAC || p.loop.Lacks(a) != "" {
			return false
		}
	}
	return true
}

// network is what the network is made from, where the backend tells.
func (p *part) network() agentstream.Network {
	return agentstream.Network{Identity: p.loop.Identity()}
}

// reached has the pods confirmed that a batch has changed, and all pods of scopes
// that are reached anew. Until it is known what the network has, the records that
// another leader has left count.
func (b *Bridge) reached(p *part, anew []netvirt.Scope, changes []netvirt.Change) {
	if !p.loop.Observed() {
		return
	}
	pods := map[string]bool{}
	for _, s := range anew {
		if s == netvirt.Cluster {
			continue
		}
		b.podsOf(string(s), pods)
	}
	for _, c := range changes {
		if uid := p.podOf(c); uid != "" {
			pods[uid] = true
		}
	}
	p.confirmer.Mark(slices.Collect(maps.Keys(pods))...)
}

// podsOf adds the pods of a namespace that were given anything.
func (b *Bridge) podsOf(namespace string, pods map[string]bool) {
	for _, l := range b.store.View(namespace).Leases {
		pods[l.PodUID] = true
	}
}

// realised has the pods confirmed, or not any more, of whose interfaces the network has
// something else than before; nil stands for all.
func (b *Bridge) realised(p *part, interfaces []string) {
	if !p.leads() {
		return
	}
	pods := map[string]bool{}
	for _, name := range interfaces {
		if i, found := p.loop.Has(scopeOf(name), netvirt.Interface{Name: name}.Key()).(netvirt.Interface); found {
			pods[i.PodUID] = true
		}
	}
	if interfaces == nil {
		for _, namespace := range b.store.Namespaces() {
			b.podsOf(namespace, pods)
		}
	}
	p.confirmer.Mark(slices.Collect(maps.Keys(pods))...)
}

// scopeOf is the scope of the interface of a name.
func scopeOf(name string) netvirt.Scope {
	namespace, _, _, _ := netvirt.ParseInterfaceName(name)
	return netvirt.Scope(namespace)
}

// podOf is the uid of the pod whose interface a change is about, or empty.
func (p *part) podOf(c netvirt.Change) string {
	for _, o := range []netvirt.Object{c.New, c.Old} {
		var name string
		switch o := o.(type) {
		case netvirt.Interface:
			return o.PodUID
		case netvirt.ELANInterface:
			name = o.Name
		case netvirt.Adjacency:
			name = o.Interface
		default:
			continue
		}
		i, _ := p.loop.Has(c.Scope(), netvirt.Interface{Name: name}.Key()).(netvirt.Interface)
		return i.PodUID
	}
	return ""
}

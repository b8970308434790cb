package bridge

import (
	"context"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// The prefixes of the leader's records: what is chosen, and what of it the backend
// is known to have.
const (
	chosen    = "chosen"
	confirmed = "confirmed"
)

// followChosen tells the streams of the nodes what is chosen and confirmed, whoever
// leads.
func (b *Bridge) followChosen(ctx context.Context) error {
	return b.data.FollowRecords(ctx, "", func(batch datastore.RecordBatch) error {
		b.hub.Apply(agentstream.Batch(batch))
		return nil
	})
}

// has tells whether the backend has the interface of a lease just as that says.
func (p *part) has(l *coe.Lease) bool {
	s := netvirt.Scope(l.Namespace)
	i, found := p.loop.Has(s, netvirt.Interface{Name: l.Name}.Key()).(netvirt.Interface)
	if !found || i.PodUID != l.PodUID || i.UID != l.InterfaceUID {
		return false
	}
	e, found := p.loop.Has(s, netvirt.ELANInterface{Name: l.Name}.Key()).(netvirt.ELANInterface)
	if !found || e.ELAN != netvirt.ELANName(l.Node, l.Namespace) {
		return false
	}
	for _, x := range l.Addresses {
		key := netvirt.Adjacency{Interface: l.Name, Address: x.Address}.Key()
		a, found := p.loop.Has(s, key).(netvirt.Adjacency)
		if !found || a.MAC != l.MAC {
			return false
		}
	}
	return true
}

// reached has the pods confirmed that a batch has changed, and all pods of scopes
// that are reached anew.
func (b *Bridge) reached(p *part, anew []netvirt.Scope, changes []netvirt.Change) {
	pods := map[string]bool{}
	for _, s := range anew {
		if s == netvirt.Cluster {
			continue
		}
		for key := range b.store.View(string(s)).Leases {
			pods[key.PodUID] = true
		}
	}
	for _, c := range changes {
		if uid := p.podOf(c); uid != "" {
			pods[uid] = true
		}
	}
	for uid := range pods {
		p.confirmer.Mark(uid)
	}
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

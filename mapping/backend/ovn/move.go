package ovn

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A change of the layout moves some nodes at a time, each with its pods, and waits until OVN has computed that. So a pod loses packets only
// while the switches replace the flows of those nodes. Meanwhile the routers of the former layout stay, and pods in both layouts reach each other by the
// transit. Without a transit all nodes move at once.
const (
	// leastBatches is how many times Batch the steps of nodes are at least that move together, and mostMoves about how many moves there are: new pods of
	// a node wait until it moves.
	leastBatches = 5
	mostMoves    = 20
	// northdWithin is how long ovn-northd may take for a move, and hostsWithin how long the hosts may take after it. A host that is gone never has it.
	northdWithin = 2 * time.Minute
	hostsWithin  = 5 * time.Second
)

// moved is the last move of nodes.
type moved struct {
	most     int       // steps of nodes that move together
	number   int       // of OVN's report, at least; 0 for none
	at       time.Time // when it was written
	computed time.Time // when ovn-northd was seen to have it; zero before
}

// move writes steps while there are switches of the former layout. It defers the steps of nodes that it moves later.
func (b *Backend) move(ctx context.Context, w *write, all []*step) error {
	waiting := w.mirror.waiting()
	if len(waiting) == 0 || !w.mirror.joined(all) {
		return w.run(ctx, transactions(all, len(all)))
	}
	settled, err := b.settled(ctx, w.session)
	if err != nil {
		return err
	}
	p := newPlan(all, waiting, w.mirror.damagedELANs())
	if settled {
		b.moved.most = max(b.moved.most, leastBatches*b.cfg.Batch, p.waiting/mostMoves)
		p.choose(b.moved.most)
	}
	now, late := p.divide()
	w.counted = len(p.moves) > 0 && len(late) > 0
	err = w.run(ctx, transactions(now, len(now)))
	if err != nil && !errors.Is(err, netvirt.ErrRejected) {
		return err
	}
	if w.counted {
		rows, failed := w.global(ctx)
		if failed != nil {
			return failed
		}
		b.moved = moved{number: integer(rows, "nb_cfg"), at: time.Now(), most: b.moved.most}
	}
	if len(p.moves) > 0 {
		b.log.Info("changed the layout of some nodes", "nodes", len(p.moves), "left", len(waiting)-len(p.moves))
	}
	if err == nil && len(late) > 0 {
		return &netvirt.DeferredError{Have: late}
	}
	return err
}

// settled reports whether OVN has the last move, or has had its time.
func (b *Backend) settled(ctx context.Context, s *session) (bool, error) {
	if b.moved.number == 0 {
		return true, nil
	}
	rows, err := s.global(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if b.moved.computed.IsZero() && (integer(rows, "sb_cfg") >= b.moved.number || now.Sub(b.moved.at) > northdWithin) {
		b.moved.computed = now
	}
	if b.moved.computed.IsZero() || integer(rows, "hv_cfg") < b.moved.number && now.Sub(b.moved.computed) < hostsWithin {
		return false, nil
	}
	b.moved.number = 0
	return true, nil
}

// waiting returns the nodes that must move: they have a switch of the former layout, and no Node that is right.
func (m *mirror) waiting() map[netip.Addr]bool {
	nodes := map[netip.Addr]bool{}
	for k := range m.former {
		node, err := netip.ParseAddr(k.Name)
		if k.Kind == netvirt.KindELANInstance {
			node, _, err = netvirt.ParseELANName(k.Name)
		}
		if o := m.look(netvirt.Node{Address: node}.Key()); err == nil && (o == nil || codec.IsDamaged(o)) {
			nodes[node] = true
		}
	}
	return nodes
}

// joined reports whether all vpn-instances have a transit, before and after some steps.
func (m *mirror) joined(all []*step) bool {
	for _, s := range all {
		for _, c := range s.changes {
			if vpn, is := c.New.(netvirt.VPNInstance); is && vpn.Transit == "" {
				return false
			}
		}
	}
	for k, g := range m.groups {
		if k.Kind != netvirt.KindVPNInstance {
			continue
		}
		vpn, _ := m.look(k).(netvirt.VPNInstance)
		isolated := vpn.Transit == ""
		if g.damaged != nil {
			isolated = hasRows[*nb.LogicalRouter](g) && !hasRows[*nb.LogicalRouterPort](g)
		}
		if isolated {
			return false
		}
	}
	return true
}

func hasRows[T any](g *group) bool {
	return slices.ContainsFunc(g.damaged.Rows, func(r ovsdb.Row) bool { _, is := r.Value.(T); return is })
}

// damagedELANs returns the heads of damaged groups of elan-instances, by node.
func (m *mirror) damagedELANs() map[netip.Addr][]netvirt.Key {
	heads := map[netip.Addr][]netvirt.Key{}
	for k, g := range m.groups {
		if k.Kind != netvirt.KindELANInstance || g.damaged == nil {
			continue
		}
		if node, _, err := netvirt.ParseELANName(k.Name); err == nil {
			heads[node] = append(heads[node], k)
		}
	}
	return heads
}

// damagedInMove returns the heads of damaged groups while the layout changes; nil at other times.
func (m *mirror) damagedInMove() map[netvirt.Key]struct{} {
	if m == nil || len(m.former) == 0 {
		return nil
	}
	heads := map[netvirt.Key]struct{}{}
	for k, g := range m.groups {
		if g.damaged != nil {
			heads[k] = struct{}{}
		}
	}
	return heads
}

// damagedBeside returns the head of a damaged group that is not known, if there is one. All are known if known is nil.
func (m *mirror) damagedBeside(known map[netvirt.Key]struct{}) (head netvirt.Key, more bool) {
	for k, g := range m.groups {
		if _, is := known[k]; known != nil && g.damaged != nil && !is {
			return k, true
		}
	}
	return netvirt.Key{}, false
}

// plan says which nodes move.
type plan struct {
	all     []*step
	node    map[netvirt.Key]netip.Addr // of the heads at the switches of nodes or of elan-instances
	nodes   map[netip.Addr]bool        // that wait
	steps   map[netip.Addr]int         // of each node
	waiting int                        // steps of nodes that wait
	whole   map[netip.Addr]bool        // nodes that can move: the steps have all their elan-instances, and so all their pods
	moves   map[netip.Addr]bool        // nodes that move now
}

func newPlan(all []*step, nodes map[netip.Addr]bool, elans map[netip.Addr][]netvirt.Key) *plan {
	p := &plan{all: all, node: nodesOf(all), nodes: nodes, steps: map[netip.Addr]int{}, whole: map[netip.Addr]bool{}, moves: map[netip.Addr]bool{}}
	for _, s := range all {
		if node, is := p.node[s.head]; is && nodes[node] {
			p.steps[node]++
			p.waiting++
		}
	}
	for node := range nodes {
		p.whole[node] = !slices.ContainsFunc(elans[node], func(head netvirt.Key) bool { _, is := p.node[head]; return !is })
	}
	return p
}

// choose chooses the nodes that move now: the first ones with at most a number of steps, and at least one. A node moves with its Node.
func (p *plan) choose(most int) {
	steps := 0
	for _, s := range p.all {
		node := p.node[s.head]
		if s.head.Kind != netvirt.KindNode || !p.whole[node] {
			continue
		}
		if steps += p.steps[node]; steps > most && len(p.moves) > 0 {
			return
		}
		p.moves[node] = true
	}
}

// divide returns the steps to write now, and what the database has instead of the other changes: changes of nodes that move later, and changes to
// objects that refer to theirs. Pods that move later keep the policies that they have, so no policy is deleted before.
func (p *plan) divide() (now []*step, late map[netvirt.Key]netvirt.Object) {
	late = map[netvirt.Key]netvirt.Object{}
	for _, s := range p.all {
		node := p.node[s.head]
		waits := p.nodes[node] && !p.moves[node] && (s.head.Kind == netvirt.KindNode || !s.deletesHead())
		part := &step{head: s.head}
		for _, c := range s.changes {
			if waits || c.New != nil && slices.ContainsFunc(c.New.Refs(), func(ref netvirt.Key) bool { _, is := late[ref]; return is }) {
				late[c.Key()] = c.Old
			} else {
				part.changes = append(part.changes, c)
			}
		}
		if len(part.changes) > 0 {
			now = append(now, part)
		}
	}
	if len(late) == 0 {
		return now, late
	}
	now = slices.DeleteFunc(now, func(s *step) bool {
		ofPolicy := s.head.Kind == netvirt.KindACL || s.head.Kind == netvirt.KindRemoteGroup
		if !ofPolicy || !s.deletesHead() {
			return false
		}
		for _, c := range s.changes {
			late[c.Key()] = c.Old
		}
		return true
	})
	return now, late
}

// deletesHead reports whether the step deletes its group.
func (s *step) deletesHead() bool {
	return slices.ContainsFunc(s.changes, func(c netvirt.Change) bool { return c.New == nil && c.Key() == s.head })
}

// nodesOf returns the nodes of the heads whose rows are at the switches of nodes or of elan-instances.
func nodesOf(all []*step) map[netvirt.Key]netip.Addr {
	nodes := map[netvirt.Key]netip.Addr{}
	for _, s := range all {
		for _, c := range s.changes {
			elan := ""
			switch o := c.Object().(type) {
			case netvirt.Node:
				nodes[s.head] = o.Address
			case netvirt.ELANInstance:
				elan = o.Name
			case netvirt.Subnet:
				elan = o.ELAN
			case netvirt.ELANInterface:
				elan = o.ELAN
			}
			if node, _, err := netvirt.ParseELANName(elan); err == nil {
				nodes[s.head] = node
			}
		}
	}
	return nodes
}

package ovn

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
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
	p := newPlan(all, waiting)
	if settled {
		b.moved.most = max(b.moved.most, leastBatches*b.cfg.Batch, p.waiting/mostMoves)
		p.choose(b.moved.most)
	}
	now, late := p.divide()
	w.counted = len(p.moves) > 0 && len(late) > 0
	if err := w.run(ctx, transactions(now, len(now))); err != nil {
		return err
	}
	if w.counted {
		rows, err := w.global(ctx)
		if err != nil {
			return err
		}
		b.moved = moved{number: integer(rows, "nb_cfg"), at: time.Now(), most: b.moved.most}
	}
	if len(p.moves) > 0 {
		b.log.Info("changed the layout of some nodes", "nodes", len(p.moves), "left", len(waiting)-len(p.moves))
	}
	if len(late) > 0 {
		return &netvirt.DeferredError{Have: late}
	}
	return nil
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

// joined reports whether all vpn-instances, after some steps, have a transit.
func (m *mirror) joined(all []*step) bool {
	for _, s := range all {
		for _, c := range s.changes {
			if vpn, is := c.New.(netvirt.VPNInstance); is && vpn.Transit == "" {
				return false
			}
		}
	}
	for _, g := range m.groups {
		for _, o := range g.objects {
			if vpn, is := o.(netvirt.VPNInstance); is && vpn.Transit == "" && !codec.IsDamaged(o) {
				return false
			}
		}
	}
	return true
}

// plan says which nodes move.
type plan struct {
	all     []*step
	node    map[netvirt.Key]netip.Addr // of the heads at the switches of nodes or of elan-instances
	nodes   map[netip.Addr]bool        // that wait
	steps   map[netip.Addr]int         // of each node
	waiting int                        // steps of nodes that wait
	moves   map[netip.Addr]bool        // nodes that move now
}

func newPlan(all []*step, nodes map[netip.Addr]bool) *plan {
	p := &plan{all: all, node: nodesOf(all), nodes: nodes, steps: map[netip.Addr]int{}, moves: map[netip.Addr]bool{}}
	for _, s := range all {
		if node, is := p.node[s.head]; is && nodes[node] {
			p.steps[node]++
			p.waiting++
		}
	}
	return p
}

// choose chooses the nodes that move now: the first ones with at most a number of steps, and at least one. A node moves with its Node.
func (p *plan) choose(most int) {
	steps := 0
	for _, s := range p.all {
		node := p.node[s.head]
		if s.head.Kind != netvirt.KindNode || !p.nodes[node] {
			continue
		}
		if steps += p.steps[node]; steps > most && len(p.moves) > 0 {
			return
		}
		p.moves[node] = true
	}
}

// divide returns the steps to write now, and what the database has instead of the other changes: changes of nodes that move later, and changes to
// objects that refer to theirs.
func (p *plan) divide() (now []*step, late map[netvirt.Key]netvirt.Object) {
	late = map[netvirt.Key]netvirt.Object{}
	for _, s := range p.all {
		node := p.node[s.head]
		waits := p.nodes[node] && !p.moves[node] && (s.changes[0].New != nil || s.head.Kind == netvirt.KindNode)
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
	return now, late
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

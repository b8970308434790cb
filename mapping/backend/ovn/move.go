package ovn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A change of the layout moves some nodes at a time, each with its pods, and waits until OVN has computed that. So a pod loses packets only
// while the switches replace the flows of those nodes. Meanwhile the routers of the former layout stay, and pods in both layouts reach each other by the
// transit. Without a transit all nodes move at once.
//
// To LayoutNode the nodes get their switches before the first one moves. ovn-controller requests the flows of a switch when it finds a way from its pods
// to the switch, and in a large network the southbound database takes seconds to answer. The pods on the switch would lose packets meanwhile.
// LayoutELAN has many more switches: with all of them each move would take longer.
const (
	// leastBatches is how many times Batch the steps of nodes are at least that move together, and mostMoves about how many moves there are: new pods of
	// a node wait until it moves.
	leastBatches = 5
	mostMoves    = 20
	// northdWithin is how long ovn-northd may take for a move, and hostsWithin how long the hosts may take after it, or switchesWithin if it was only
	// switches. A host that is gone never has it.
	northdWithin   = 2 * time.Minute
	hostsWithin    = 5 * time.Second
	switchesWithin = 30 * time.Second
)

// moved is the last move of nodes, or of switches ahead of them.
type moved struct {
	most     int                 // steps of nodes that move together
	ahead    map[netip.Addr]bool // nodes whose switches are there, or were refused
	refused  map[netip.Addr]bool // nodes whose move was refused
	number   int                 // of OVN's report, at least; 0 for none
	at       time.Time           // when it was written; zero if that is not known, because a bridge before made it, or it failed
	within   time.Duration       // how long the hosts may take
	computed time.Time           // when ovn-northd was seen to have it; zero before
}

// move writes steps while there are switches of the former layout. It defers the steps of nodes that it moves later.
func (b *Backend) move(ctx context.Context, w *write, all []*step) error {
	w.fresh = true // after a rejection the caller reads the database, too
	waiting := w.mirror.waiting()
	if len(waiting) == 0 || !w.mirror.joined(all) {
		return w.run(ctx, transactions(all, len(all)))
	}
	settled, err := b.settled(ctx, w.session)
	if err != nil {
		return err
	}
	p := newPlan(all, waiting, w.mirror.damagedELANs())
	p.refused = b.moved.refused
	if settled {
		b.choose(w, p)
	}
	now, late := p.divide()
	ahead := len(w.ahead) > 0
	w.counted = (len(p.moves) > 0 || ahead) && len(late) > 0
	if w.counted {
		b.moved.at = time.Time{}
	}
	err = b.together(ctx, w, p, now)
	if err != nil && !errors.Is(err, netvirt.ErrRejected) {
		return err
	}
	if w.counted {
		rows, failed := w.global(ctx)
		if failed != nil {
			return failed
		}
		b.moved.number, b.moved.at, b.moved.computed, b.moved.within = integer(rows, "nb_cfg"), time.Now(), time.Time{}, hostsWithin
	}
	if ahead {
		b.moved.within = switchesWithin
		b.log.Info("created the switches of nodes that change their layout", "nodes", len(waiting))
	}
	if len(p.moves) > 0 {
		b.log.Info("changed the layout of some nodes", "nodes", len(p.moves), "left", len(waiting)-len(p.moves))
	}
	if err == nil && len(late) > 0 {
		return &netvirt.DeferredError{Have: late}
	}
	return err
}

// choose chooses switches ahead of nodes, or nodes that move.
func (b *Backend) choose(w *write, p *plan) {
	b.moved.most = max(b.moved.most, leastBatches*b.cfg.Batch, p.waiting/mostMoves)
	if b.cfg.Layout == LayoutNode && p.waiting > b.moved.most {
		w.ahead = p.ahead(b.moved.ahead)
	}
	if len(w.ahead) == 0 {
		p.choose(b.moved.most)
	}
}

// together makes steps in one transaction, unless the server refuses it.
func (b *Backend) together(ctx context.Context, w *write, p *plan, now []*step) error {
	ahead := w.ahead
	err := w.transaction(ctx, now)
	var refused *refusal
	if errors.As(err, &refused) {
		err = w.apart(ctx, p)
	} else if err != nil {
		return err
	}
	for _, s := range ahead {
		b.moved.ahead[p.node[s.head]] = true
	}
	return err
}

// apart makes the steps that the server has refused together: the steps of no node, then switches ahead, then a transaction for each node. A node whose
// transaction is refused too stays in the former layout, with all its pods.
func (w *write) apart(ctx context.Context, p *plan) error {
	moves, ahead := p.moves, w.ahead
	p.moves, w.ahead = nil, nil
	now, _ := p.divide()
	if err := w.chunk(ctx, now); err != nil {
		return err
	}
	if err := w.switches(ctx, ahead); err != nil {
		return err
	}
	w.whole = true
	for _, s := range p.all {
		node := p.node[s.head]
		if s.head.Kind != netvirt.KindNode || !moves[node] {
			continue
		}
		err := w.transaction(ctx, slices.DeleteFunc(slices.Clone(p.all), func(s *step) bool { return p.node[s.head] != node }))
		var refused *refusal
		if errors.As(err, &refused) {
			w.reject(s, err)
			p.refused[node] = true
		} else if err != nil {
			return err
		}
	}
	if len(w.rejected.Keys) > 0 {
		return &w.rejected
	}
	if len(moves) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the server has refused a move and then made it", errStale)
}

// switches adds switches ahead. If the server refuses them, switches halves them until it has left out each one that is refused: pods can move without
// switches ahead of them, and the move of that node is refused for the same reason.
func (w *write) switches(ctx context.Context, ahead []*step) error {
	if len(ahead) == 0 {
		return nil
	}
	w.ahead = ahead
	err := w.transaction(ctx, nil)
	w.ahead = nil
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
	}
	if len(ahead) == 1 {
		return nil
	}
	for _, half := range [][]*step{ahead[:len(ahead)/2], ahead[len(ahead)/2:]} {
		if err := w.switches(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

// settled reports whether OVN has the last move, or has had its time. If the last move is not known, it is all that the database has. Without an epoch
// there is one writer, and NB_Global can have no row.
func (b *Backend) settled(ctx context.Context, s *session) (bool, error) {
	if b.moved.number == 0 && (b.cfg.Epoch == "" || !b.moved.at.IsZero()) {
		return true, nil
	}
	rows, err := s.global(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if b.moved.at.IsZero() {
		b.moved.number, b.moved.at, b.moved.computed, b.moved.within = integer(rows, "nb_cfg"), now, time.Time{}, hostsWithin
	}
	if b.moved.computed.IsZero() && (integer(rows, "sb_cfg") >= b.moved.number || now.Sub(b.moved.at) > northdWithin) {
		b.moved.computed = now
	}
	if b.moved.computed.IsZero() || integer(rows, "hv_cfg") < b.moved.number && now.Sub(b.moved.computed) < b.moved.within {
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
		if o := m.look(netvirt.Node{Address: node}.Key()); err == nil && (o == nil || identity.IsDamaged(o)) {
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

// plan says which nodes move.
type plan struct {
	all     []*step
	node    map[netvirt.Key]netip.Addr // of the heads at the switches of nodes or of elan-instances
	nodes   map[netip.Addr]bool        // that wait
	steps   map[netip.Addr]int         // of each node
	waiting int                        // steps of nodes that wait
	whole   map[netip.Addr]bool        // nodes that can move: the steps have all their elan-instances, and so all their pods
	moves   map[netip.Addr]bool        // nodes that move now
	refused map[netip.Addr]bool        // nodes that move last, because the server has refused that before
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

// ahead returns the steps of the nodes that can move, and have no switches ahead of them.
func (p *plan) ahead(have map[netip.Addr]bool) (switches []*step) {
	for _, s := range p.all {
		if node := p.node[s.head]; s.head.Kind == netvirt.KindNode && p.whole[node] && !have[node] && !s.deletesHead() {
			switches = append(switches, s)
		}
	}
	return switches
}

// choose chooses the nodes that move now: the first ones with at most a number of steps, and at least one. A node moves with its Node.
func (p *plan) choose(most int) {
	steps := 0
	for _, last := range []bool{false, true} {
		for _, s := range p.all {
			node := p.node[s.head]
			if s.head.Kind != netvirt.KindNode || !p.whole[node] || p.refused[node] != last {
				continue
			}
			if steps += p.steps[node]; steps > most && len(p.moves) > 0 {
				return
			}
			p.moves[node] = true
		}
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

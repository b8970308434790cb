package salremote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/changes"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// dataEvent is the change of one instance. After is nil if the instance is deleted.
type dataEvent struct {
	at        tree.Target
	operation string
	after     *yang.Data
}

// The operations of OpenDaylight's events.
const (
	isCreated = "created"
	isUpdated = "updated"
	isDeleted = "deleted"
)

// comparer turns changes of units into events about the instances of a subscription. It keeps the
// last event of each unit.
type comparer struct {
	schema *yang.Schema
	asked  subscription
	leaves bool // only leaves are reported
	// told has the last event of each existing unit, by target. The stream has the same events,
	// so this takes little more memory than the map.
	told map[string][]byte
	// fresh is the next told, while a snapshot is read.
	fresh  map[string][]byte
	events []dataEvent
}

// entryChange is an event of the streams of changes.
type entryChange struct {
	Target string          `json:"target"`
	Value  json.RawMessage `json:"value"`
}

// settle waits until a first snapshot was read, so that the client misses nothing after its
// answer.
func (c *comparer) settle(ctx context.Context, sub stream.Subscription, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		_, err := c.take(sub.Take())
		if err == nil && c.told == nil {
			select {
			case <-sub.Ready():
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return fmt.Errorf("read the first snapshot: %w", err)
		}
		return nil
	}
}

// take returns the changes of the instances in a group of events. The first snapshot changes nothing.
// A later snapshot is compared with the earlier state.
func (c *comparer) take(group []stream.Event) ([]dataEvent, error) {
	c.events = nil
	for _, e := range group {
		var err error
		switch e.Name {
		case changes.Begin:
			c.fresh = map[string][]byte{}
		case changes.Complete:
			err = c.replace()
		default:
			err = c.change(e)
		}
		if err != nil {
			return nil, fmt.Errorf("write the event %s: %w", e.Name, err)
		}
	}
	return c.events, nil
}

// change applies the event of one unit.
func (c *comparer) change(e stream.Event) error {
	var one entryChange
	if err := json.Unmarshal(e.Content, &one); err != nil {
		return err
	}
	unit, err := wire.RFC8040.Parse(c.schema, one.Target)
	if err != nil || !related(unit, c.asked.at) {
		return err
	}
	if c.fresh != nil {
		c.fresh[one.Target] = e.Content
		return nil
	}
	before := c.told[one.Target]
	if one.Value == nil {
		delete(c.told, one.Target)
	} else {
		c.told[one.Target] = e.Content
	}
	return c.compareUnit(unit, before, e.Content)
}

// replace applies a snapshot.
func (c *comparer) replace() error {
	before, now := c.told, c.fresh
	c.told, c.fresh = now, nil
	if before == nil {
		return nil
	}
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		unit, err := wire.RFC8040.Parse(c.schema, name)
		if err != nil {
			return err
		}
		if err := c.compareUnit(unit, before[name], now[name]); err != nil {
			return err
		}
	}
	return nil
}

// related reports whether two instances are the same, or one is in the other.
func related(a, b tree.Target) bool {
	for i := range min(len(a), len(b)) {
		if a[i].Node != b[i].Node || !slices.Equal(a[i].Keys, b[i].Keys) {
			return false
		}
	}
	return true
}

// compareUnit compares a unit before and after: as a whole if it is below the followed
// node, else the followed node in it.
func (c *comparer) compareUnit(unit tree.Target, before, after []byte) error {
	if bytes.Equal(before, after) {
		return nil
	}
	at, depth := c.asked.at, 0
	if len(unit) > len(at) {
		at, depth = unit, len(unit)-len(at)
	}
	old, err := c.instance(before, at)
	if err != nil {
		return err
	}
	now, err := c.instance(after, at)
	if err != nil {
		return err
	}
	c.compare(at, old, now, depth)
	return nil
}

// instance returns the instance at t in the event of a unit, or nil.
func (c *comparer) instance(event []byte, t tree.Target) (*yang.Data, error) {
	var one entryChange
	if event == nil {
		return nil, nil
	}
	if err := json.Unmarshal(event, &one); err != nil || one.Value == nil {
		return nil, err
	}
	tops, err := c.schema.DecodeJSON(one.Value, nil, "", yang.Strict)
	if err != nil {
		return nil, err
	}
	if len(tops) != 1 {
		return nil, errors.New("want one top container")
	}
	return tree.Descend(tops[0], t[1:]), nil
}

// compare appends the event of an instance, and then of the instances in it, as deep as the
// scope goes.
func (c *comparer) compare(at tree.Target, before, after *yang.Data, depth int) {
	if before == nil && after == nil || depth > reach[c.asked.scope] {
		return
	}
	operation := c.operation(before, after)
	if operation == "" {
		if c.asked.scope == scopeSubtree {
			return // no instance in it has changed either
		}
	} else if !c.leaves || tree.IsLeaf(at.Node()) {
		c.events = append(c.events, dataEvent{slices.Clone(at), operation, after})
	}
	for _, twin := range twinsOf(before, after) {
		c.compare(append(at[:len(at):len(at)], twin.step), twin.before, twin.after, depth+1)
	}
}

// operation returns the operation of an instance's event, or an empty text for no event. An instance
// is updated if its own leaves change or, with the scope SUBTREE, if any node in it changes.
func (c *comparer) operation(before, after *yang.Data) string {
	switch {
	case before == nil:
		return isCreated
	case after == nil:
		return isDeleted
	case c.asked.scope == scopeSubtree && !same(before, after, false), !same(before, after, true):
		return isUpdated
	}
	return ""
}

// same reports whether two instances of one node are equal: with all nodes in them, or only their own
// leaves.
func same(a, b *yang.Data, own bool) bool {
	return a.Value == b.Value && bytes.Equal(contentOf(a, own), contentOf(b, own))
}

func contentOf(d *yang.Data, own bool) []byte {
	if own {
		d = &yang.Data{Node: d.Node, Children: slices.DeleteFunc(slices.Clone(d.Children), func(child *yang.Data) bool {
			return !tree.IsLeaf(child.Node)
		})}
	}
	var buf bytes.Buffer
	yang.EncodeObject(&buf, d)
	return buf.Bytes()
}

// twins has one instance before and after a change.
type twins struct {
	step          tree.Step
	before, after *yang.Data
}

// twinsOf returns the children before and after a change, the present ones first. Entries without keys
// have no name, and count as a part of their parent.
func twinsOf(before, after *yang.Data) []twins {
	var all []twins
	places := map[string]int{}
	add := func(d *yang.Data, put func(*twins, *yang.Data)) {
		if d == nil {
			return
		}
		for _, child := range d.Children {
			s := tree.StepOf(child)
			if s.IsList() {
				continue
			}
			name := s.Path("/")
			if _, known := places[name]; !known {
				places[name] = len(all)
				all = append(all, twins{step: s})
			}
			put(&all[places[name]], child)
		}
	}
	add(after, func(p *twins, d *yang.Data) { p.after = d })
	add(before, func(p *twins, d *yang.Data) { p.before = d })
	return all
}

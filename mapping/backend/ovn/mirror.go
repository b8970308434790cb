package ovn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// mirror is what the database has of ours, as the last read and the writes since
// leave it. A write needs it to know a group's other objects; it is thrown away,
// and read anew, whenever it may be wrong.
type mirror struct {
	codec  codec
	groups map[netvirt.Key]*group                   // by head
	users  map[netvirt.Key]map[netvirt.Key]struct{} // heads by the key that encoding them looked up
	// floating has the head of each FloatingIP, whose key does not tell it.
	floating map[netvirt.Key]netvirt.Key
	// strays are rows that no group has, but that may be ours: of tables
	// without external_ids, or such that have lost theirs. A group that wants
	// one of them takes it over.
	strays map[string]row
}

// group is the objects of one head. Its rows are those that they are encoded
// to, unless they are damaged.
type group struct {
	objects []netvirt.Object
	damaged *rowSet       // what is there instead
	looked  []netvirt.Key // what encoding it looked up
}

func newMirror(c codec) *mirror {
	return &mirror{
		codec: c, groups: map[netvirt.Key]*group{}, users: map[netvirt.Key]map[netvirt.Key]struct{}{},
		floating: map[netvirt.Key]netvirt.Key{}, strays: map[string]row{},
	}
}

// model are the objects of all groups.
func (m *mirror) model() netvirt.Model {
	count := 0
	for _, g := range m.groups {
		count += len(g.objects)
	}
	all := make(netvirt.Model, count)
	for _, g := range m.groups {
		all.Add(g.objects...)
	}
	return all
}

// look returns an object that others refer to.
func (m *mirror) look(k netvirt.Key) netvirt.Object {
	g := m.groups[headOfRef(k)]
	if g == nil {
		return nil
	}
	for _, o := range g.objects {
		switch o.(type) {
		case netvirt.MACEntry, netvirt.Adjacency, netvirt.ServiceVIP, netvirt.FloatingIP: // nothing refers to these
		default:
			if o.Key() == k {
				return o
			}
		}
	}
	return nil
}

// rows are those of a group that are in the database.
func (m *mirror) rows(k netvirt.Key) *rowSet {
	g := m.groups[k]
	switch {
	case g == nil:
		return &rowSet{}
	case g.damaged != nil:
		return g.damaged
	}
	return m.codec.encode(k, modelOf(g.objects), m.look)
}

func modelOf(objects []netvirt.Object) netvirt.Model {
	m := make(netvirt.Model, len(objects))
	m.Add(objects...)
	return m
}

// encode is codec.encode, and the keys that it looked up.
func (m *mirror) encode(k netvirt.Key, objects netvirt.Model, look lookup) (*rowSet, []netvirt.Key) {
	var looked []netvirt.Key
	set := m.codec.encode(k, objects, func(k netvirt.Key) netvirt.Object {
		looked = append(looked, k)
		return look(k)
	})
	return set, looked
}

// use notes what the encoding of a group looked up.
func (m *mirror) use(k netvirt.Key, g *group, looked []netvirt.Key) {
	for _, used := range g.looked {
		delete(m.users[used], k)
		if len(m.users[used]) == 0 {
			delete(m.users, used)
		}
	}
	g.looked = looked
	for _, used := range looked {
		if m.users[used] == nil {
			m.users[used] = map[netvirt.Key]struct{}{}
		}
		m.users[used][k] = struct{}{}
	}
}

// put makes a group the one of its head, or takes it away when it has nothing.
func (m *mirror) put(k netvirt.Key, objects netvirt.Model, damaged *rowSet, looked []netvirt.Key) {
	g := m.groups[k]
	if g == nil {
		g = &group{}
		m.groups[k] = g
	}
	if len(objects) == 0 && damaged == nil {
		looked = nil
		delete(m.groups, k)
	}
	g.objects, g.damaged = slices.AppendSeq(make([]netvirt.Object, 0, len(objects)), maps.Values(objects)), damaged
	m.use(k, g, looked)
}

// stage is a step ahead of the mirror: groups as they will be.
type stage struct {
	*mirror
	groups   map[netvirt.Key]*staged
	changed  []netvirt.Key               // of objects
	floating map[netvirt.Key]netvirt.Key // that change; a zero head for those that go
	adopted  []string                    // strays
}

// staged is a group as it will be.
type staged struct {
	objects netvirt.Model
	damaged *rowSet
	looked  []netvirt.Key
}

func (m *mirror) stage() *stage {
	return &stage{mirror: m, groups: map[netvirt.Key]*staged{}, floating: map[netvirt.Key]netvirt.Key{}}
}

func (s *stage) look(k netvirt.Key) netvirt.Object {
	if g := s.groups[headOfRef(k)]; g != nil {
		return g.objects[k]
	}
	return s.mirror.look(k)
}

// group returns the group of a head, to be changed.
func (s *stage) group(k netvirt.Key) *staged {
	g := s.groups[k]
	if g == nil {
		g = &staged{objects: netvirt.Model{}}
		if have := s.mirror.groups[k]; have != nil {
			g.objects.Add(have.objects...)
		}
		s.groups[k] = g
	}
	return g
}

// apply makes one change. It fails when the change creates what refers to
// nothing: then the mirror is not what the caller has read.
func (s *stage) apply(c netvirt.Change) error {
	k, o := c.Key(), c.New
	if o == nil {
		o = c.Old
	}
	if c.New != nil {
		for _, ref := range c.New.Refs() {
			if s.look(ref) == nil {
				return fmt.Errorf("%s %s: it refers to %s, which is not in the database", c.Verb(), k, ref)
			}
		}
	}
	head := headOf(o)
	delete(s.group(s.holder(k, head)).objects, k)
	g := s.group(head)
	if c.New != nil {
		g.objects[k] = c.New
	} else {
		head = netvirt.Key{}
	}
	if k.Kind == netvirt.KindFloatingIP {
		s.floating[k] = head
	}
	s.changed = append(s.changed, k)
	return nil
}

// holder is the head of the group that has an object now, which would be of
// another.
func (s *stage) holder(k, head netvirt.Key) netvirt.Key {
	if k.Kind != netvirt.KindFloatingIP {
		return head
	}
	held, found := s.floating[k]
	if !found {
		held = s.mirror.floating[k]
	}
	if held == (netvirt.Key{}) {
		return head
	}
	return held
}

// operations encodes the groups that change, by themselves or by what they look
// up, and returns what makes the database agree.
func (s *stage) operations() *operations {
	for _, k := range s.changed {
		for user := range s.users[k] {
			s.group(user)
		}
	}
	ops := newOperations()
	for _, k := range slices.SortedFunc(maps.Keys(s.groups), netvirt.Key.Compare) {
		g, old := s.groups[k], s.mirror.groups[k]
		if o := g.objects[k]; o != nil && isDamaged(o) && old != nil {
			g.damaged = old.damaged // it waits for what its head is to be
			continue
		}
		var want *rowSet
		want, g.looked = s.encode(k, g.objects, s.look)
		ops.become(s.withStrays(s.rows(k), want), want)
	}
	return ops
}

// withStrays is what is there of a group, with the strays that it takes over.
func (s *stage) withStrays(have, want *rowSet) *rowSet {
	if len(s.strays) == 0 {
		return have
	}
	all := &rowSet{slices.Clone(have.rows), have.links}
	for _, r := range want.rows {
		if stray, found := s.strays[uuidOf(r)]; found {
			all.rows = append(all.rows, stray)
			s.adopted = append(s.adopted, uuidOf(r))
		}
	}
	return all
}

// commit makes the stage the mirror.
func (s *stage) commit() {
	m := s.mirror
	for k, g := range s.groups {
		m.put(k, g.objects, g.damaged, g.looked)
	}
	for k, head := range s.floating {
		if head == (netvirt.Key{}) {
			delete(m.floating, k)
		} else {
			m.floating[k] = head
		}
	}
	for _, uuid := range s.adopted {
		delete(m.strays, uuid)
	}
}

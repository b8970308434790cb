package ovn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// mirror is what the database has of ours, as the last read and the writes since
// leave it. A write needs it to know a group's other objects and rows; it is
// thrown away, and read anew, whenever it may be wrong.
type mirror struct {
	codec   codec
	objects netvirt.Model
	groups  map[netvirt.Key]*group                   // by head
	users   map[netvirt.Key]map[netvirt.Key]struct{} // heads by the key that encoding them looked up
	// strays are rows that no group has, but that may be ours: of tables
	// without external_ids, or such that have lost theirs. A group that wants
	// one of them takes it over.
	strays map[string]row
}

// group is the objects of one head and their rows.
type group struct {
	objects netvirt.Model
	rows    rowSet
	looked  []netvirt.Key
}

func newMirror(c codec) *mirror {
	return &mirror{
		codec: c, objects: netvirt.Model{}, groups: map[netvirt.Key]*group{},
		users: map[netvirt.Key]map[netvirt.Key]struct{}{}, strays: map[string]row{},
	}
}

// load builds the mirror of rows as they were read. Of a group whose rows are
// not exactly those that its objects make, another hand has changed something:
// all that is read of it is what damaged says, and writing that makes it whole.
func load(c codec, rows []row, links []link) *mirror {
	m := newMirror(c)
	owner := map[string]netvirt.Key{} // heads by UUID of row
	for _, r := range rows {
		t := tableOf(r)
		uuid := t.uuidOf(r)
		k, ours := c.marked(t.name, uuid, t.idsOf(r))
		if !ours {
			if !t.marked {
				m.strays[uuid] = r
			}
			continue
		}
		owner[uuid] = k
		if m.groups[k] == nil {
			m.groups[k] = &group{rows: newRowSet()}
		}
		m.groups[k].rows.rows[uuid] = r
	}
	for _, l := range links {
		if k, ours := owner[l.child]; ours {
			m.groups[k].rows.links[l] = struct{}{}
		}
	}
	m.decode()
	return m
}

// decode fills in the objects of all groups.
func (m *mirror) decode() {
	byKind := map[netvirt.Kind][]netvirt.Key{}
	for k, g := range m.groups {
		byKind[k.Kind] = append(byKind[k.Kind], k)
		g.objects = m.codec.decode(k, g.rows)
		maps.Copy(m.objects, g.objects)
	}
	for _, kind := range headOrder {
		for _, k := range byKind[kind] {
			m.judge(k, m.groups[k])
		}
	}
}

// judge holds the group's rows against what its objects make.
func (m *mirror) judge(k netvirt.Key, g *group) {
	want, looked := m.encode(k, g.objects, m.look)
	m.adopt(g, want)
	if !want.equal(g.rows) || !m.whole(k, g.objects) {
		for key := range g.objects {
			delete(m.objects, key)
		}
		g.objects = netvirt.Model{}
		if o, ok := damaged(k, g.rows); ok {
			g.objects.Add(o)
			m.objects.Add(o)
		}
	}
	m.use(k, g, looked)
}

// whole reports whether the objects are of this group alone, and are what the
// model has under their keys.
func (m *mirror) whole(k netvirt.Key, objects netvirt.Model) bool {
	for key, o := range objects {
		if headOf(o) != k || m.objects[key] != o {
			return false
		}
	}
	return true
}

// adopt gives the group the strays that it wants.
func (m *mirror) adopt(g *group, want rowSet) {
	for uuid := range want.rows {
		if r, found := m.strays[uuid]; found {
			g.rows.rows[uuid] = r
			delete(m.strays, uuid)
		}
	}
}

func (m *mirror) look(k netvirt.Key) netvirt.Object { return m.objects[k] }

// encode is codec.encode, and the keys that it looked up.
func (m *mirror) encode(k netvirt.Key, objects netvirt.Model, look lookup) (rowSet, []netvirt.Key) {
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

// stage is a step ahead of the mirror: groups as they will be.
type stage struct {
	*mirror
	objects map[netvirt.Key]netvirt.Object // that change; nil for those that go
	groups  map[netvirt.Key]*group
}

func (m *mirror) stage() *stage {
	return &stage{mirror: m, objects: map[netvirt.Key]netvirt.Object{}, groups: map[netvirt.Key]*group{}}
}

func (s *stage) look(k netvirt.Key) netvirt.Object {
	if o, found := s.objects[k]; found {
		return o
	}
	return s.mirror.objects[k]
}

// group returns the group of a head, to be changed.
func (s *stage) group(k netvirt.Key) *group {
	g := s.groups[k]
	if g == nil {
		g = &group{objects: netvirt.Model{}}
		if have := s.mirror.groups[k]; have != nil {
			g.objects = maps.Clone(have.objects)
		}
		s.groups[k] = g
	}
	return g
}

// apply makes one change. It fails when the change creates what refers to
// nothing: then the mirror is not what the caller has read.
func (s *stage) apply(c netvirt.Change) error {
	k := c.Key()
	if c.New != nil {
		for _, ref := range c.New.Refs() {
			if s.look(ref) == nil {
				return fmt.Errorf("%s %s: it refers to %s, which is not in the database", c.Verb(), k, ref)
			}
		}
	}
	if old := s.look(k); old != nil {
		delete(s.group(headOf(old)).objects, k)
	}
	s.objects[k] = c.New
	if c.New != nil {
		s.group(headOf(c.New)).objects[k] = c.New
	} else if c.Old != nil {
		s.group(headOf(c.Old))
	}
	return nil
}

// operations encodes the groups that change, by themselves or by what they look
// up, and returns what makes the database agree.
func (s *stage) operations() (*operations, error) {
	for k := range s.objects {
		for user := range s.users[k] {
			s.group(user)
		}
	}
	ops := newOperations()
	for _, k := range slices.SortedFunc(maps.Keys(s.groups), netvirt.Key.Compare) {
		g := s.groups[k]
		have := newRowSet()
		if old := s.mirror.groups[k]; old != nil {
			have = old.rows
		}
		if o := g.objects[k]; o != nil && isDamaged(o) {
			g.rows = have // it waits for what its head is to be
			continue
		}
		g.rows, g.looked = s.encode(k, g.objects, s.look)
		if err := ops.become(s.withStrays(have, g.rows), g.rows); err != nil {
			return nil, fmt.Errorf("write %s: %w", k, err)
		}
	}
	return ops, nil
}

// withStrays is what is there of a group, with the strays that it takes over.
func (s *stage) withStrays(have, want rowSet) rowSet {
	all := have
	for uuid := range want.rows {
		if r, found := s.strays[uuid]; found {
			if len(all.rows) == len(have.rows) {
				all = rowSet{maps.Clone(have.rows), have.links}
			}
			all.rows[uuid] = r
		}
	}
	return all
}

// commit makes the stage the mirror.
func (s *stage) commit() {
	m := s.mirror
	for k, o := range s.objects {
		if o == nil {
			delete(m.objects, k)
		} else {
			m.objects[k] = o
		}
	}
	for k, g := range s.groups {
		old := m.groups[k]
		if old == nil {
			old = &group{}
			m.groups[k] = old
		}
		for uuid := range g.rows.rows {
			delete(m.strays, uuid)
		}
		looked := g.looked
		old.objects, old.rows = g.objects, g.rows
		if len(g.objects) == 0 && g.rows.empty() {
			looked = nil
			delete(m.groups, k)
		}
		m.use(k, old, looked)
	}
}

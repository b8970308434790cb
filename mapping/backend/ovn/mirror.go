package ovn

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// mirror holds our objects in the database, as of the last read and the writes since. A
// write needs it for the other objects of a group. It is dropped and read again
// whenever it may be wrong.
type mirror struct {
	codec  codec.Codec
	groups map[netvirt.Key]*group                   // by head
	users  map[netvirt.Key]map[netvirt.Key]struct{} // heads, by a key that their encoding looked up
	// floating has the head of each FloatingIP: its key does not contain the service.
	floating map[netvirt.Key]netvirt.Key
	// strays holds, by UUID, the rows that belong to no group but may be ours: rows of
	// tables without external_ids, and rows that have lost theirs. A group takes over a
	// stray that is one of its wanted rows.
	strays map[string]ovsdb.Row
	// left has the UUIDs of strays that are MAC bindings of ours at a router port, by its name. An external writer has deleted all
	// other rows of their pods. Each has a group of its own, without rows: identity.LeftBinding.
	left map[string][]string
	// former has the heads of groups with a switch of the other layout.
	former map[netvirt.Key]struct{}
	// kept has the routers of LayoutELAN that its switches still need. Their groups are right otherwise; when they are read, they are damaged.
	kept *ovsdb.RowSet
}

// group holds the objects of one head. Its rows are encoded from them, unless the group
// is damaged. Then its object is the mark of damage, or its objects are right and one of its rows is of an earlier release.
type group struct {
	objects  []netvirt.Object
	damaged  *ovsdb.RowSet // nil, or the rows in the database
	looked   []netvirt.Key // that the encoding looked up
	outdated bool          // damaged, with the right objects; in the model the head has the mark of damage
}

func newMirror(c codec.Codec) *mirror {
	return &mirror{
		codec: c, groups: map[netvirt.Key]*group{}, users: map[netvirt.Key]map[netvirt.Key]struct{}{},
		floating: map[netvirt.Key]netvirt.Key{}, strays: map[string]ovsdb.Row{}, left: map[string][]string{},
		former: map[netvirt.Key]struct{}{}, kept: codec.Northbound.NewRowSet(),
	}
}

// moves reports whether the layout changes. A mirror that was not read does not know.
func (m *mirror) moves() bool { return m != nil && len(m.former) > 0 }

// model returns the objects of all groups.
func (m *mirror) model() netvirt.Model {
	count := 0
	for _, g := range m.groups {
		count += len(g.objects)
	}
	all := make(netvirt.Model, count)
	for k, g := range m.groups {
		all.Add(g.shown(k)...)
	}
	return all
}

// byScope returns the objects of all groups by scope.
func (m *mirror) byScope() map[netvirt.Scope]netvirt.Parts {
	d := netvirt.NewDivision()
	for k, g := range m.groups {
		d.Add(g.shown(k)...)
	}
	return d.ByScope()
}

// shown returns the objects of the group of a head in the model.
func (g *group) shown(head netvirt.Key) []netvirt.Object {
	if !g.outdated {
		return g.objects
	}
	all := slices.Clone(g.objects)
	for i, o := range all {
		if o.Key() == head {
			all[i] = identity.Outdated(o)
		}
	}
	return all
}

// look returns the object of a key that other objects refer to; nil if there is none.
func (m *mirror) look(k netvirt.Key) netvirt.Object {
	g := m.groups[identity.HeadOfRef(k)]
	if g == nil {
		return nil
	}
	for _, o := range g.objects {
		switch o.(type) {
		case netvirt.MACEntry, netvirt.Adjacency, netvirt.InterfaceACL, netvirt.ACE, netvirt.ServiceVIP, netvirt.GatewayVIP, netvirt.FloatingIP: // nothing refers to these
		default:
			if o.Key() == k {
				return o
			}
		}
	}
	return nil
}

// rows returns the rows of a group in the database.
func (m *mirror) rows(k netvirt.Key) *ovsdb.RowSet {
	g := m.groups[k]
	switch {
	case g == nil:
		return codec.Northbound.NewRowSet()
	case g.damaged != nil:
		return g.damaged
	}
	return m.codec.Encode(k, modelOf(g.objects), m.look)
}

func modelOf(objects []netvirt.Object) netvirt.Model {
	m := make(netvirt.Model, len(objects))
	m.Add(objects...)
	return m
}

// encode is Codec.Encode; it also returns the keys that the encoding looked up. Most encodings ask again and again for the same few
// objects, so each of the first few is looked up once.
func (m *mirror) encode(k netvirt.Key, objects netvirt.Model, look codec.Lookup) (*ovsdb.RowSet, []netvirt.Key) {
	var looked []netvirt.Key
	var found [fewLookups]netvirt.Object
	set := m.codec.Encode(k, objects, func(k netvirt.Key) netvirt.Object {
		if looked == nil {
			looked = make([]netvirt.Key, 0, fewLookups)
		}
		if i := slices.Index(looked[:min(len(looked), fewLookups)], k); i >= 0 {
			return found[i]
		}
		o := look(k)
		if len(looked) < fewLookups {
			found[len(looked)] = o
		}
		looked = append(looked, k)
		return o
	})
	return set, looked
}

// fewLookups is as many as the encoding of most interfaces needs.
const fewLookups = 6

// use records the keys that the encoding of a group looked up.
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

// put replaces the group of a head, or removes it if it has neither objects nor rows.
func (m *mirror) put(k netvirt.Key, objects netvirt.Model, damaged *ovsdb.RowSet, looked []netvirt.Key) {
	delete(m.former, k)
	g := m.groups[k]
	if g == nil {
		g = &group{}
		m.groups[k] = g
	}
	if len(objects) == 0 && damaged == nil {
		looked = nil
		delete(m.groups, k)
	}
	g.objects, g.damaged, g.outdated = slices.AppendSeq(make([]netvirt.Object, 0, len(objects)), maps.Values(objects)), damaged, false
	m.use(k, g, looked)
}

// stage is the mirror with changes that are not committed yet.
type stage struct {
	*mirror
	groups   map[netvirt.Key]*staged
	changed  []netvirt.Key                 // of objects
	floating map[netvirt.Key]netvirt.Key   // changes of mirror.floating; a zero head deletes
	adopted  []string                      // strays
	keeping  *ovsdb.RowSet                 // added to kept
	ends     bool                          // kept is deleted
	switches map[netvirt.Key]*ovsdb.RowSet // the rows of damaged groups with codec.SwitchAhead
}

// staged is a group with the changes of a stage.
type staged struct {
	objects netvirt.Model
	damaged *ovsdb.RowSet
	looked  []netvirt.Key
}

func (m *mirror) stage() *stage {
	return &stage{mirror: m, groups: map[netvirt.Key]*staged{}, floating: map[netvirt.Key]netvirt.Key{}, keeping: codec.Northbound.NewRowSet(), switches: map[netvirt.Key]*ovsdb.RowSet{}}
}

func (s *stage) look(k netvirt.Key) netvirt.Object {
	if g := s.groups[identity.HeadOfRef(k)]; g != nil {
		return g.objects[k]
	}
	return s.mirror.look(k)
}

// group returns the group of a head, for changes.
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

// apply makes all changes of a step. If a new object refers to an object that does not exist, apply
// fails and makes none of them: the object was rejected, or the mirror is older than the caller's
// model.
func (s *stage) apply(one *step) error {
	made := map[netvirt.Key]bool{}
	for _, c := range one.changes {
		k := c.Key()
		if c.New == nil {
			continue
		}
		for _, ref := range c.New.Refs() {
			if !made[ref] && s.look(ref) == nil {
				return fmt.Errorf("%s %s: it refers to %s, which is not in the database", c.Verb(), k, ref)
			}
		}
		made[k] = true
	}
	for _, c := range one.changes {
		s.change(c)
	}
	return nil
}

// change makes one change.
func (s *stage) change(c netvirt.Change) {
	k := c.Key()
	head := identity.HeadOf(c.Object())
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
}

// addSwitch adds codec.SwitchAhead of a node to the rows of its damaged group, which stays damaged.
func (s *stage) addSwitch(one *step) {
	g := s.mirror.groups[one.head]
	if g == nil || g.damaged == nil {
		return
	}
	objects := netvirt.Model{}
	for _, c := range one.changes {
		if c.New != nil {
			objects.Add(c.New)
		}
	}
	want := s.codec.Encode(one.head, objects, s.look)
	with := &ovsdb.RowSet{Rows: slices.Clone(g.damaged.Rows), Links: slices.Clone(g.damaged.Links)}
	for _, r := range codec.SwitchAhead(want) {
		if _, has := g.damaged.Get(r.UUID()); has {
			continue
		}
		with.Rows = append(with.Rows, r)
		for _, l := range want.Links {
			if l.Child == r.UUID() {
				with.Links = append(with.Links, l)
			}
		}
	}
	s.switches[one.head] = with
}

// holder returns the head of the group that has an object now. It differs from head if
// a floating IP moves to another service.
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

// transaction encodes the groups that change, and the groups whose encoding looks up a
// changed object. It returns the transaction that updates the database. A MAC binding that is left comes last: another group may
// have taken it over.
func (s *stage) transaction() *ovsdb.Transaction {
	for _, k := range s.changed {
		for user := range s.users[k] {
			s.group(user)
		}
	}
	tx := ovsdb.NewTransaction()
	keeps := s.keeps()
	if s.ends = !keeps; s.ends {
		tx.Replace(s.kept, codec.Northbound.NewRowSet())
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.groups), netvirt.Key.Compare) {
		g, old := s.groups[k], s.mirror.groups[k]
		if o := g.objects[k]; o != nil && identity.IsDamaged(o) && old != nil {
			g.damaged = old.damaged // it is repaired when the head changes
			continue
		}
		var want *ovsdb.RowSet
		want, g.looked = s.encode(k, g.objects, s.look)
		have := s.withStrays(s.rows(k), want)
		if keeps {
			have = s.keep(k, have, want)
		}
		tx.Replace(have, want)
	}
	for k, with := range s.switches {
		tx.Replace(s.withStrays(s.rows(k), with), with)
	}
	for k, g := range s.groups {
		if uuid, is := identity.ParseLeftBinding(k); is && len(g.objects) == 0 {
			tx.Replace(s.leftRow(uuid), codec.Northbound.NewRowSet())
		}
	}
	return tx
}

// keeps reports whether the routers of LayoutELAN stay, because one of its switches does.
func (s *stage) keeps() bool {
	if s.codec.Layout != codec.LayoutNode {
		return false
	}
	for k := range s.former {
		if s.groups[k] == nil {
			return true
		}
	}
	return false
}

// keep takes the rows of a router of the other layout that the group does not want out of the rows that it has.
func (s *stage) keep(k netvirt.Key, have, want *ovsdb.RowSet) *ovsdb.RowSet {
	if k.Kind != netvirt.KindVPNInstance || len(want.Rows) == 0 {
		return have
	}
	rest := codec.Northbound.NewRowSet()
	stays := map[string]bool{}
	for _, r := range have.Rows {
		if _, wanted := want.Get(r.UUID()); wanted {
			rest.Rows = append(rest.Rows, r)
		} else {
			s.keeping.Rows = append(s.keeping.Rows, r)
			stays[r.UUID()] = true
		}
	}
	for _, l := range have.Links {
		if stays[l.Child] {
			s.keeping.Links = append(s.keeping.Links, l)
		} else {
			rest.Links = append(rest.Links, l)
		}
	}
	return rest
}

// leftRow returns the row of a MAC binding that is left, if no group has taken it over.
func (s *stage) leftRow(uuid string) *ovsdb.RowSet {
	set := codec.Northbound.NewRowSet()
	if r, found := s.strays[uuid]; found && !slices.Contains(s.adopted, uuid) {
		set.AddRow(r)
		s.adopted = append(s.adopted, uuid)
	}
	return set
}

// withStrays returns the rows of a group in the database, with the strays that the group takes over: its wanted rows, MAC bindings
// of a former pod with an address of the group, and MAC bindings at a router port that the group deletes. A binding at a port that
// does not exist keeps ovn-northd 23.03 from writing.
func (s *stage) withStrays(have, want *ovsdb.RowSet) *ovsdb.RowSet {
	if len(s.strays) == 0 {
		return have
	}
	all := &ovsdb.RowSet{Rows: slices.Clone(have.Rows), Links: have.Links}
	take := func(uuid string) {
		all.Rows = append(all.Rows, s.strays[uuid])
		s.adopted = append(s.adopted, uuid)
	}
	for _, r := range want.Rows {
		if _, found := s.strays[r.UUID()]; found {
			take(r.UUID())
		}
		if binding, is := r.Value.(*nb.StaticMACBinding); is {
			for uuid, other := range s.leftAt(binding.LogicalPort) {
				if other.IP == binding.IP && uuid != binding.UUID {
					take(uuid)
				}
			}
		}
	}
	for _, r := range have.Rows {
		port, is := r.Value.(*nb.LogicalRouterPort)
		if _, stays := want.Get(r.UUID()); is && !stays {
			for uuid := range s.leftAt(port.Name) {
				take(uuid)
			}
		}
	}
	return all
}

// leftAt returns the bindings that are left at a router port, by UUID.
func (m *mirror) leftAt(port string) iter.Seq2[string, *nb.StaticMACBinding] {
	return func(yield func(string, *nb.StaticMACBinding) bool) {
		for _, uuid := range m.left[port] {
			if binding, is := m.strays[uuid].Value.(*nb.StaticMACBinding); is && !yield(uuid, binding) {
				return
			}
		}
	}
}

// commit applies the stage to the mirror.
func (s *stage) commit() {
	m := s.mirror
	for k, g := range s.groups {
		m.put(k, g.objects, g.damaged, g.looked)
	}
	for k, with := range s.switches {
		m.groups[k].damaged = with
	}
	m.kept.Rows, m.kept.Links = append(m.kept.Rows, s.keeping.Rows...), append(m.kept.Links, s.keeping.Links...)
	if s.ends {
		m.kept = codec.Northbound.NewRowSet()
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

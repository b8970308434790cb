package codec

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Operation writes or deletes one entry.
type Operation struct {
	Unit    Unit
	List    int
	Entry   Entry // nil deletes it
	There   bool  // whether the mirror has it
	changes []netvirt.Change
	Refs    []netvirt.Key // of the objects in the entry
	of      netvirt.Key   // of an access list: its ACL or RemoteGroup
}

// Key returns the key of the entry.
func (o *Operation) Key() string { return o.Unit.Name }

// Head returns the key of the entry's main object.
func (o *Operation) Head() netvirt.Key {
	if o.Unit.Kind == netvirt.KindTransit {
		return netvirt.Transit{RouteTarget: strings.TrimPrefix(o.Unit.Name, TransitPrefix)}.Key()
	}
	if o.List == AccessLists {
		return o.of
	}
	if of, is := nodeKey(o.Unit); is {
		return of
	}
	kind := [ListCount]netvirt.Kind{
		netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindACL, netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindVPNInterface, netvirt.KindFloatingIP,
	}[o.List]
	return netvirt.Key{Kind: kind, Name: o.Unit.Name}
}

// Keys returns the keys of the changes that the operation makes: of the objects in the
// entry or, if there are none, all changes of the unit.
func (o *Operation) Keys() []netvirt.Key {
	var held, all []netvirt.Key
	for _, c := range o.changes {
		k := c.Key()
		all = append(all, k)
		if listOf(k.Kind) == o.List {
			held = append(held, k)
		}
	}
	if len(held) > 0 {
		return held
	}
	return all
}

// Own returns the changes of Keys that change an object of the operation's unit. The operation makes the other changes because the unit
// uses the changed object.
func (o *Operation) Own() (own []netvirt.Change) {
	keys := o.Keys()
	for _, c := range o.changes {
		if slices.Contains(keys, c.Key()) && UnitOf(c.Object()) == o.Unit {
			own = append(own, c)
		}
	}
	return own
}

// Refusal is an operation whose objects have no encoding.
type Refusal struct {
	Operation *Operation
	Err       error
}

// draft is a unit with its changes.
type draft struct {
	unit    Unit
	have    Content
	objects netvirt.Model // before the changes
	changes []netvirt.Change
}

// Operations returns the operations that make changes, by list, and those that cannot be made. The mirror then knows what changes of
// Transits, ACLs, RemoteGroups and NodeNetworks. Its entries stay as they are; see Put.
func (m *Mirror) Operations(changes []netvirt.Change) (lists [ListCount][]*Operation, refused []Refusal) {
	drafts := m.drafts(changes)
	for _, c := range changes {
		if vpn, ok := c.New.(netvirt.VPNInstance); ok {
			m.Join(vpn.Name, vpn.Transit)
		}
		m.Learn(c)
	}
	for _, d := range drafts {
		if err := m.encodeDraft(&lists, d); err != nil {
			refused = append(refused, Refusal{&Operation{Unit: d.unit, List: listOf(d.unit.Kind), changes: d.changes}, err})
		}
	}
	lists[AccessLists] = append(lists[AccessLists], m.openLists(lists[Interfaces])...)
	return lists, refused
}

// openLists returns the operations that write the lists that permit everything, as far as interfaces of the mirror, or of operations,
// name them. They are never deleted.
func (m *Mirror) openLists(of []*Operation) (all []*Operation) {
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		names := func(o *Operation) bool {
			e, ok := o.Entry.(*IETFInterface)
			return ok && slices.Contains(e.Groups, openID(d))
		}
		if m.open[d] || len(m.users[openKey(d)]) == 0 && !slices.ContainsFunc(of, names) {
			continue
		}
		u := Unit{Kind: netvirt.KindACL, Name: openID(d)}
		all = append(all, &Operation{Unit: u, List: AccessLists, Entry: openList(d), There: m.At(u)[AccessLists] != nil, of: openKey(d)})
	}
	return all
}

// Probe returns an operation that changes nothing in the network: it writes one of the lists that permit everything, which is always the
// same.
func Probe() *Operation {
	return &Operation{Unit: Unit{Kind: netvirt.KindACL, Name: openID(netvirt.Ingress)}, List: AccessLists, Entry: openList(netvirt.Ingress)}
}

// drafts returns the units of changes: the units of the objects, if a vpn-instance gets another
// Transit, the units of its interfaces, and the units that use an ACL or a RemoteGroup.
func (m *Mirror) drafts(changes []netvirt.Change) []*draft {
	var all []*draft
	byUnit := map[Unit]*draft{}
	add := func(u Unit, c netvirt.Change) {
		d := byUnit[u]
		if d == nil {
			have := m.At(u)
			d = &draft{unit: u, have: have, objects: netvirt.Model{}}
			d.objects.Add(m.Decode(u, have, nil)...)
			byUnit[u], all = d, append(all, d)
		}
		d.changes = append(d.changes, c)
	}
	for _, c := range changes {
		add(UnitOf(cmp.Or(c.New, c.Old)), c)
		if vpn, ok := c.New.(netvirt.VPNInstance); ok && m.transits[vpn.Name] != vpn.Transit {
			for _, u := range m.members(vpn.Name) {
				add(u, c)
			}
		}
		if network, ok := c.New.(netvirt.NodeNetwork); ok && m.networks[network.Prefix] != network {
			for _, u := range m.managementPorts() {
				add(u, c)
			}
		}
		for u := range m.users[c.Key()] {
			add(u, c)
		}
	}
	return all
}

// encodeDraft adds the operations on the entries of a unit.
func (m *Mirror) encodeDraft(lists *[ListCount][]*Operation, d *draft) error {
	for _, c := range d.changes {
		if UnitOf(cmp.Or(c.New, c.Old)) == d.unit {
			d.objects.Apply([]netvirt.Change{c})
		}
	}
	want, err := m.Encode(d.unit, slices.Collect(maps.Values(d.objects)), d.have)
	if err != nil {
		return err
	}
	m.Touch(d.unit)
	for l := range ListCount {
		if equalAt(d.have, want, l) {
			continue
		}
		o := &Operation{Unit: d.unit, List: l, Entry: want[l], There: d.have[l] != nil, changes: d.changes}
		for k, object := range d.objects {
			if listOf(k.Kind) == l || OfNode(k.Kind) {
				o.Refs = append(append(o.Refs, object.Refs()...), m.aclsOfNodes(object)...)
			}
			if OfNode(k.Kind) && l != Interfaces {
				o.Refs = append(o.Refs, k)
			}
		}
		if e, ok := want[l].(*IETFInterface); ok {
			o.Refs = append(o.Refs, e.openLists()...)
		}
		if l == AccessLists {
			o.of = listObject(cmp.Or(want[l], d.have[l])).Key()
		}
		lists[l] = append(lists[l], o)
	}
	return nil
}

// aclsOfNodes returns the known ACLs of nodes that an InterfaceACL names. The entry waits for their lists.
func (m *Mirror) aclsOfNodes(o netvirt.Object) (keys []netvirt.Key) {
	acl, _ := o.(netvirt.InterfaceACL)
	for _, name := range acl.SecurityGroups.All() {
		if _, known := m.acls[name]; known && netvirt.IsOfNode(name) {
			keys = append(keys, netvirt.ACL{Name: name}.Key())
		}
	}
	return keys
}

func equalAt(a, b Content, l int) bool {
	if a[l] == nil || b[l] == nil {
		return a[l] == nil && b[l] == nil
	}
	return Same(a[l], b[l])
}

package ovn

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// members holds, while rows are read, the members of port groups and address sets. Each
// InterfaceACL is found in them: no row holds it.
type members struct {
	parents map[string]*parent      // by UUID of the row
	of      map[string][]membership // by UUID of the port, or by text of the address or prefix
	// lists are the lists of names in use. Interfaces with equal lists share their memory.
	lists map[netvirt.NameList]netvirt.NameList
}

// parent is a row of a port group or of an address set.
type parent struct {
	link ovsdb.Link  // without a child
	head netvirt.Key // of the row's group; the zero Key unless the row is ours
}

// membership is a member of a parent.
type membership struct {
	*parent
	taken bool // by an interface
}

func newMembers() *members {
	return &members{parents: map[string]*parent{}, of: map[string][]membership{}, lists: map[netvirt.NameList]netvirt.NameList{}}
}

// add adds a link, if it is a member of a port group or of an address set.
func (m *members) add(l ovsdb.Link) {
	if l.Table.Name != nb.AddressSetTable && (l.Table.Name != nb.PortGroupTable || l.Column.Name != "ports") {
		return
	}
	p := m.parents[l.Parent]
	if p == nil {
		p = &parent{link: ovsdb.Link{Table: l.Table, Column: l.Column, Parent: l.Parent}}
		m.parents[l.Parent] = p
	}
	m.of[l.Child] = append(m.of[l.Child], membership{parent: p})
}

// own says that a row belongs to a group of ours.
func (m *members) own(uuid string, head netvirt.Key) {
	if p := m.parents[uuid]; p != nil {
		p.head = head
	}
}

// groups returns the names of the ACLs whose port groups have a port.
func (m *members) groups(port string) netvirt.NameList {
	var names []string
	for _, at := range m.of[port] {
		if at.head.Kind == netvirt.KindACL {
			names = append(names, at.head.Name)
		}
	}
	return m.list(names)
}

// list returns the list of the given names.
func (m *members) list(names []string) netvirt.NameList {
	l := netvirt.NewNameList(names...)
	if shared, found := m.lists[l]; found {
		return shared
	}
	m.lists[l] = l
	return l
}

// ofInterface shows the links from address sets to the addresses of an interface, given the
// objects of its group, as far as their remote groups admit the interface.
func (m *members) ofInterface(i netvirt.Interface, objects []netvirt.Object, look codec.Lookup, show func(at *membership, l ovsdb.Link)) {
	for a := range addressesOf(objects) {
		address := a.String()
		all := m.of[address]
		for n := range all {
			at := &all[n]
			remote, ok := look(at.head).(netvirt.RemoteGroup)
			if ok && remote.Admits(i.Namespace) {
				show(at, at.to(address))
			}
		}
	}
}

func addressesOf(objects []netvirt.Object) map[netip.Addr]struct{} {
	all := map[netip.Addr]struct{}{}
	for _, o := range objects {
		switch o := o.(type) {
		case netvirt.MACEntry:
			all[o.Address] = struct{}{}
		case netvirt.Adjacency:
			all[o.Address] = struct{}{}
		}
	}
	return all
}

// ofSets shows the links from address sets of ours.
func (m *members) ofSets(show func(at *membership, l ovsdb.Link)) {
	for child, all := range m.of {
		for n := range all {
			if at := &all[n]; at.head.Kind == netvirt.KindRemoteGroup {
				show(at, at.to(child))
			}
		}
	}
}

// to returns the link to a child.
func (p *parent) to(child string) ovsdb.Link {
	l := p.link
	l.Child = child
	return l
}

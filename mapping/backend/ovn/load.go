package ovn

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// source shows a visitor all rows that may be ours, and their links, in codec.ReadOrder. A
// link to a row comes before the row. It calls read when it has shown all rows of a
// table; it may have begun to show rows of later tables by then.
type source func(v *ovsdb.Visitor, read func(*ovsdb.Table)) error

// load builds the mirror of the rows that a source shows. A group is damaged if its
// rows differ from the rows that its objects are encoded to: then an external writer
// has changed something. The mirror has a damaged group as the object that damaged
// returns; writing the wanted objects repairs it.
//
// A row is dropped after it was read. Its content remains in the group's objects and in
// the group's balance. If there are damaged groups, the source is read a second time
// for their rows.
func load(c codec.Codec, from source) (*mirror, error) {
	l := &loading{
		mirror: newMirror(c), balances: map[netvirt.Key]ovsdb.Sum{}, links: map[uuid.UUID]ovsdb.Sum{}, due: map[*ovsdb.Table][]netvirt.Key{},
		members: newMembers(), adopted: map[netvirt.Key]*ovsdb.RowSet{}, damaged: map[netvirt.Key]*ovsdb.RowSet{},
		outdated: map[netvirt.Key]struct{}{}, bound: map[string]bool{},
	}
	if err := l.follow(from); err != nil {
		return nil, err
	}
	l.findDamaged()
	l.findBindings()
	if len(l.damaged) > 0 {
		if err := l.keepDamaged(from); err != nil {
			return nil, err
		}
	}
	return l.mirror, nil
}

// loading is a mirror while it is read.
type loading struct {
	*mirror
	// balances holds, by head, the sum of the rows and links of a group that were read,
	// less the sum of the rows and links that its objects are encoded to.
	balances map[netvirt.Key]ovsdb.Sum
	links    map[uuid.UUID]ovsdb.Sum // by the row that is linked to
	members  *members
	// due holds the groups that are encoded when a table is read.
	due     map[*ovsdb.Table][]netvirt.Key
	ports   bool                          // switchPorts is read
	adopted map[netvirt.Key]*ovsdb.RowSet // strays, by the group that has taken them over
	damaged map[netvirt.Key]*ovsdb.RowSet // the rows of damaged groups
	// outdated has the groups with a row of an earlier release.
	outdated map[netvirt.Key]struct{}
	// bound has the router ports that MAC bindings of ours name, and whether each was read as a port of ours.
	bound  map[string]bool
	others bool // bridges of other owners have routers in the database
}

// switchPorts is the table with most rows. It has the management ports, which groups of earlier tables may look up.
var switchPorts = codec.Northbound.Table(nb.LogicalSwitchPortTable)

// follow takes in all that a source shows. Rows are decoded on the goroutine of the source, and groups are encoded on this one.
func (l *loading) follow(from source) error {
	p := newPipe()
	ended := make(chan error, 1)
	go func() {
		defer p.close()
		ended <- from(&ovsdb.Visitor{
			Row: func(r ovsdb.Row) (kept bool) {
				one := l.decode(r)
				p.send(one)
				return one.stray.Table != nil
			},
			Link: func(to ovsdb.Link) { p.send(shown{link: to}) },
		}, func(t *ovsdb.Table) { p.send(shown{read: t}) })
	}()
	for batch := range p.batches {
		for i := range batch {
			l.take(&batch[i])
		}
	}
	return <-ended
}

// decode returns what a row says.
func (l *loading) decode(r ovsdb.Row) shown {
	k, ours := l.codec.Marked(r)
	switch {
	case ours:
		sum := r.Sum()
		now, outdated := l.codec.Renewed(k, r)
		if outdated {
			sum = now.Sum()
		}
		one := shown{
			table: r.Table, uuid: r.UUID(), head: k, former: l.codec.IsFormer(k, r), outdated: outdated, sum: sum, objects: l.codec.Decode(k, r),
		}
		if port, is := r.Value.(*nb.LogicalRouterPort); is {
			one.port = port.Name
		}
		return one
	case r.Table.ExternalIDs:
		owner := r.ExternalIDs()[identity.IDOwner]
		return shown{others: r.Table.Name == nb.LogicalRouterTable && owner != "" && owner != string(l.codec.Owner)}
	}
	return shown{stray: r}
}

// take takes in one thing that a source has shown.
func (l *loading) take(one *shown) {
	switch {
	case one.table != nil:
		l.row(one)
	case one.link.Table != nil:
		l.link(one.link)
	case one.stray.Table != nil:
		l.strays[one.stray.UUID()] = one.stray
		if binding, is := one.stray.Value.(*nb.StaticMACBinding); is && identity.IsOwnBinding(binding) {
			l.bound[binding.LogicalPort] = false
		}
	case one.read != nil:
		l.read(one.read)
	case one.others:
		l.others = true
	}
}

func (l *loading) link(to ovsdb.Link) {
	l.members.add(to)
	if to.Table.Name != nb.AddressSetTable {
		l.links[rowID(to.Child)] += to.Sum()
	}
}

// rowID returns a row's UUID in short form; the zero value for text that is not one.
func rowID(text string) uuid.UUID {
	id, _ := uuid.Parse(text)
	return id
}

// row takes in a row of ours.
func (l *loading) row(r *shown) {
	l.members.own(r.uuid, r.head)
	if r.former {
		l.former[r.head] = struct{}{}
	}
	if r.outdated {
		l.outdated[r.head] = struct{}{}
	}
	if _, is := l.bound[r.port]; is {
		l.bound[r.port] = true
	}
	l.balances[r.head] += r.sum + l.links[rowID(r.uuid)]
	l.add(r)
}

// add adds the objects of a row to a group. All rows of a group that objects are
// decoded from are in one table. An interface looks up no other object of its table, except management ports, so it is encoded
// at once.
func (l *loading) add(r *shown) {
	k, objects := r.head, r.objects
	g := l.groups[k]
	if g == nil {
		g = &group{}
		l.groups[k] = g
	}
	switch {
	case len(objects) == 0:
	case len(g.objects) > 0: // a further load balancer; its first object is the same service
		g.objects = append(g.objects, objects[1:]...)
	case k.Kind == netvirt.KindInterface:
		g.objects = objects
		l.join(k, g)
		l.subtract(k, g)
	default:
		g.objects = objects
		due := dueAfter(r.table, k)
		l.due[due] = append(l.due[due], k)
	}
}

// dueAfter returns the table after which a group is encoded whose objects are decoded from a table, unless it looks up a management port.
func dueAfter(t *ovsdb.Table, head netvirt.Key) *ovsdb.Table {
	if t.Name != nb.DHCPOptionsTable && (head.Kind == netvirt.KindNode || head.Kind == netvirt.KindELANInstance) {
		return switchPorts // they look up management ports, and vpn-instances
	}
	return t
}

// read encodes the groups that are due when a table is read. The objects that the
// encoding looks up are in tables that were read before.
func (l *loading) read(t *ovsdb.Table) {
	l.ports = l.ports || t == switchPorts
	for _, k := range l.due[t] {
		l.subtract(k, l.groups[k])
	}
}

// subtract takes the rows that a group's objects are encoded to off its balance. If the group looks up a management port
// that may be in a row that was not read yet, that is done when switchPorts is read.
func (l *loading) subtract(k netvirt.Key, g *group) {
	objects := modelOf(g.objects)
	if !l.valid(k, objects) {
		l.damaged[k] = codec.Northbound.NewRowSet()
		return
	}
	want, looked := l.encode(k, objects, l.look)
	if !l.ports && slices.ContainsFunc(looked, func(k netvirt.Key) bool { return k.Kind == netvirt.KindManagementPort }) {
		l.due[switchPorts] = append(l.due[switchPorts], k)
		return
	}
	l.balances[k] += l.adopt(k, want, objects) - want.Sum()
	l.use(k, g, looked)
	for k, o := range objects {
		if k.Kind == netvirt.KindFloatingIP {
			l.floating[k] = identity.HeadOf(o)
		}
	}
	g.objects = slices.Clip(g.objects)
}

// join adds the InterfaceACL of an interface to its group, if it has one.
func (l *loading) join(k netvirt.Key, g *group) {
	var remote []string
	i := interfaceOf(g.objects)
	l.members.ofInterface(i, g.objects, l.look, func(at *membership, to ovsdb.Link) {
		at.taken = true
		l.balances[k] += to.Sum()
		remote = append(remote, at.head.Name)
	})
	acl := netvirt.InterfaceACL{
		Interface: i.Name, Namespace: i.Namespace,
		SecurityGroups: l.members.groups(l.codec.PortUUID(k)), RemoteGroups: l.members.list(remote),
	}
	if acl.SecurityGroups != "" || acl.RemoteGroups != "" {
		g.objects = append(g.objects, acl)
	}
}

func interfaceOf(objects []netvirt.Object) netvirt.Interface {
	for _, o := range objects {
		if i, ok := o.(netvirt.Interface); ok {
			return i
		}
	}
	return netvirt.Interface{}
}

// valid reports whether objects belong to a group, none is a mark of damage, and no
// other group has one of them.
func (l *loading) valid(head netvirt.Key, objects netvirt.Model) bool {
	for k, o := range objects {
		if _, taken := l.floating[k]; taken || identity.HeadOf(o) != head || identity.IsDamaged(o) {
			return false
		}
	}
	return true
}

// adopt gives a group the strays that are among its wanted rows, or among its rows in the other layout, and returns their
// sum.
func (l *loading) adopt(k netvirt.Key, want *ovsdb.RowSet, objects netvirt.Model) ovsdb.Sum {
	if len(l.strays) == 0 {
		return 0
	}
	adopted := codec.Northbound.NewRowSet()
	rows := l.codec.Unmarked(k, objects)
	for _, r := range want.Rows {
		rows = append(rows, r.UUID())
	}
	for _, uuid := range rows {
		if stray, found := l.strays[uuid]; found {
			adopted.AddRow(stray)
			delete(l.strays, uuid)
		}
	}
	if len(adopted.Rows) > 0 {
		l.adopted[k] = adopted
	}
	return adopted.Sum()
}

// findDamaged finds damaged groups. A group is also damaged if it was encoded with an
// object of a damaged group. Damage of an ACL or a remote group does not spread to its members. Nor does it spread from a group that
// is right except for a row of an earlier release: its objects are known.
// Members of an address set that no interface has belong to its remote group.
func (l *loading) findDamaged() {
	l.members.ofSets(func(at *membership, to ovsdb.Link) {
		if !at.taken {
			l.balances[at.head] += to.Sum()
		}
	})
	for k, balance := range l.balances {
		if balance != 0 {
			l.damaged[k] = codec.Northbound.NewRowSet()
		}
	}
	for k := range maps.Clone(l.damaged) {
		if k.Kind == netvirt.KindRemoteGroup || k.Kind == netvirt.KindACL {
			continue
		}
		for user := range l.users[k] {
			l.damaged[user] = codec.Northbound.NewRowSet()
		}
	}
	for k := range l.outdated {
		if l.damaged[k] == nil {
			l.damaged[k], l.groups[k].outdated = codec.Northbound.NewRowSet(), true
		}
	}
	for k, set := range l.damaged {
		if adopted := l.adopted[k]; adopted != nil {
			*set = *adopted
		}
		l.keepAddresses(k, l.groups[k].objects, set)
	}
	for k, set := range l.damaged {
		l.markDamaged(k, l.groups[k], set)
	}
	l.members.ofSets(func(at *membership, to ovsdb.Link) {
		if set := l.damaged[at.head]; set != nil {
			set.Links = append(set.Links, to)
		}
	})
}

// findBindings gives the MAC bindings of ours that no group has taken over to the damaged groups that they belong to. Each other one is
// left, and becomes a group: all other rows of its pod are gone. At the router port of another owner it is not ours. A router port
// that does not exist has no owner, so the binding is ours if no other owner has routers.
func (l *loading) findBindings() {
	for uuid, r := range l.strays {
		binding, is := r.Value.(*nb.StaticMACBinding)
		if !is || !identity.IsOwnBinding(binding) {
			continue
		}
		if set := l.damagedOf(binding); set != nil {
			set.AddRow(r)
			delete(l.strays, uuid)
		} else if l.bound[binding.LogicalPort] || !l.others {
			l.left[binding.LogicalPort] = append(l.left[binding.LogicalPort], uuid)
			o := identity.LeftBinding(uuid)
			l.groups[o.Key()] = &group{objects: []netvirt.Object{o}, damaged: codec.Northbound.NewRowSet()}
		}
	}
}

// damagedOf returns the rows of the damaged group that a MAC binding belongs to; nil if there is none.
func (l *loading) damagedOf(binding *nb.StaticMACBinding) *ovsdb.RowSet {
	for k, set := range l.damaged {
		if l.codec.BindsFor(k, binding) {
			return set
		}
	}
	return nil
}

// keepAddresses adds the links from address sets to the addresses of a damaged interface. The
// links from a damaged address set belong to its remote group.
func (l *loading) keepAddresses(k netvirt.Key, objects []netvirt.Object, rows *ovsdb.RowSet) {
	if k.Kind != netvirt.KindInterface {
		return
	}
	l.members.ofInterface(interfaceOf(objects), objects, l.look, func(at *membership, to ovsdb.Link) {
		if l.damaged[at.head] == nil {
			rows.Links = append(rows.Links, to)
		}
	})
}

// markDamaged replaces a group's objects by the mark of damage, unless they are right.
func (l *loading) markDamaged(k netvirt.Key, g *group, rows *ovsdb.RowSet) {
	if g.outdated {
		g.damaged = rows
		return
	}
	l.use(k, g, nil)
	var known netvirt.Object
	if len(g.objects) > 0 {
		known = g.objects[0]
	}
	for _, o := range g.objects {
		if f, ok := o.(netvirt.FloatingIP); ok && l.floating[f.Key()] == k {
			delete(l.floating, f.Key())
		}
	}
	g.objects, g.damaged = nil, rows
	if o, ok := identity.Damaged(k, known); ok {
		g.objects = []netvirt.Object{o}
	}
}

// keepDamaged reads the rows of damaged groups, which their repair has to replace. It
// takes the rows as they are now, even if they have changed since the first reading.
func (l *loading) keepDamaged(from source) error {
	var (
		links []ovsdb.Link
		heads = map[string]netvirt.Key{} // by UUID of row
	)
	err := from(&ovsdb.Visitor{
		Link: func(to ovsdb.Link) {
			if to.Table.Name != nb.AddressSetTable { // the members have these
				links = append(links, to)
			}
		},
		Row: func(r ovsdb.Row) bool {
			k, ours := l.codec.Marked(r)
			set := l.damaged[k]
			if !ours || set == nil {
				return false
			}
			set.AddRow(r)
			heads[r.UUID()] = k
			return true
		},
	}, func(*ovsdb.Table) {})
	for _, to := range links {
		if k, found := heads[to.Child]; found {
			l.damaged[k].Links = append(l.damaged[k].Links, to)
		}
	}
	return err
}

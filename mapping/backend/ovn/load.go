package ovn

import (
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// visitor is shown what is read.
type visitor struct {
	// row is shown a row. It is the visitor's if it says that it keeps it; else it
	// is used again for the next.
	row func(*table, row) (kept bool)
	// link is shown a link, before the row that it leads to.
	link func(link)
	// read is called when all rows of a table were shown, while those of later
	// tables may be shown already.
	read func(*table)
}

// source shows a visitor all rows that may be ours, and their links, in readOrder.
type source func(visitor) error

// load builds the mirror of what a source has. Of a group whose rows are not
// exactly those that its objects make, another hand has changed something: all
// that is read of it is what damaged says, and writing that makes it whole.
//
// A row is forgotten once it is read: what remains is its part of the objects,
// and of the balance by which its group is judged. Only if there are damaged
// groups is the source asked again, for their rows.
func load(c codec, from source) (*mirror, error) {
	l := &loading{
		mirror: newMirror(c), balances: map[netvirt.Key]sum{}, links: map[uuid.UUID]sum{}, due: map[*table][]netvirt.Key{},
		adopted: map[netvirt.Key]*rowSet{}, damaged: map[netvirt.Key]*rowSet{},
	}
	if err := from(visitor{l.row, l.link, l.read}); err != nil {
		return nil, err
	}
	l.settle()
	if len(l.damaged) > 0 {
		if err := l.keepDamaged(from); err != nil {
			return nil, err
		}
	}
	return l.mirror, nil
}

// loading is a mirror while it is read.
type loading struct {
	mu sync.Mutex
	*mirror
	// balances are, by head, the sums of the rows and links that were read of a
	// group, less that of those that its objects make.
	balances map[netvirt.Key]sum
	links    map[uuid.UUID]sum // to rows
	// due are the groups whose objects rows of a table tell, until that is read.
	due     map[*table][]netvirt.Key
	adopted map[netvirt.Key]*rowSet
	damaged map[netvirt.Key]*rowSet // rows of the groups that are
}

func (l *loading) link(to link) { l.links[rowID(to.child)] += to.sum() }

// row notes a row. Strays are kept.
func (l *loading) row(t *table, r row) bool {
	k, ours := l.codec.marked(t, r)
	if !ours && t.marked {
		return false
	}
	uuid := t.uuidOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ours {
		l.strays[uuid] = r
		return true
	}
	l.balances[k] += t.sumOf(r) + l.links[rowID(uuid)]
	l.know(t, k, l.codec.decode(k, r))
	return false
}

// know adds objects to a group. All its rows that tell of any are of one table.
func (l *loading) know(t *table, k netvirt.Key, objects []netvirt.Object) {
	g := l.groups[k]
	if g == nil {
		g = &group{}
		l.groups[k] = g
	}
	switch {
	case len(objects) == 0:
	case len(g.objects) == 0:
		g.objects = objects
		l.due[t] = append(l.due[t], k)
	default: // a further load balancer; it begins with the service too
		g.objects = append(g.objects, objects[1:]...)
	}
}

// read encodes the groups whose objects a table has told. What they look up is
// of tables that were read before.
func (l *loading) read(t *table) {
	l.mu.Lock()
	due := l.due[t]
	l.mu.Unlock()
	for _, k := range due {
		l.mu.Lock()
		l.weigh(k, l.groups[k])
		l.mu.Unlock()
	}
}

// weigh takes what a group's objects make off its balance.
func (l *loading) weigh(k netvirt.Key, g *group) {
	objects := modelOf(g.objects)
	if !l.proper(k, objects) {
		l.damaged[k] = &rowSet{}
		return
	}
	want, looked := l.encode(k, objects, l.look)
	l.balances[k] += l.adopt(k, want) - want.sum()
	l.use(k, g, looked)
	for k, o := range objects {
		if k.Kind == netvirt.KindFloatingIP {
			l.floating[k] = headOf(o)
		}
	}
	g.objects = slices.Clip(g.objects)
}

// proper reports whether objects are of a group, are not damaged by what they
// say, and no other group has any of them.
func (l *loading) proper(head netvirt.Key, objects netvirt.Model) bool {
	for k, o := range objects {
		if _, taken := l.floating[k]; taken || headOf(o) != head || isDamaged(o) {
			return false
		}
	}
	return true
}

// adopt takes the strays that a group wants, and returns their sum.
func (l *loading) adopt(k netvirt.Key, want *rowSet) sum {
	adopted := &rowSet{}
	for _, r := range want.rows {
		uuid := uuidOf(r)
		if stray, found := l.strays[uuid]; found {
			adopted.add(stray)
			delete(l.strays, uuid)
		}
	}
	if len(adopted.rows) > 0 {
		l.adopted[k] = adopted
	}
	return adopted.sum()
}

// settle finds the groups that are damaged, which those are too that were
// encoded by what they say.
func (l *loading) settle() {
	for k, balance := range l.balances {
		if balance != 0 {
			l.damaged[k] = &rowSet{}
		}
	}
	for k := range maps.Clone(l.damaged) {
		for user := range l.users[k] {
			l.damaged[user] = &rowSet{}
		}
	}
	for k, set := range l.damaged {
		if adopted := l.adopted[k]; adopted != nil {
			*set = *adopted
		}
		l.spoil(k, l.groups[k], set)
	}
}

// spoil has a group say that it is damaged.
func (l *loading) spoil(k netvirt.Key, g *group, rows *rowSet) {
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
	if o, ok := damaged(k, known); ok {
		g.objects = []netvirt.Object{o}
	}
}

// keepDamaged reads the rows of damaged groups, which what makes them whole has
// to know. What has changed since they were judged is as it is now.
func (l *loading) keepDamaged(from source) error {
	var (
		links []link
		heads = map[string]netvirt.Key{} // by UUID of row
	)
	err := from(visitor{
		link: func(to link) { links = append(links, to) },
		row: func(t *table, r row) bool {
			k, ours := l.codec.marked(t, r)
			set := l.damaged[k]
			if !ours || set == nil {
				return false
			}
			set.add(r)
			heads[t.uuidOf(r)] = k
			return true
		},
		read: func(*table) {},
	})
	for _, to := range links {
		if k, found := heads[to.child]; found {
			l.damaged[k].links = append(l.damaged[k].links, to)
		}
	}
	return err
}

package datastore

import (
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Change tells when something last changed. All who share a datastore tell the same.
type Change struct {
	Revision int64 // 0: never
	// Time is in whole seconds, and not before the change. Where it is unknown, it is
	// when this process opened the datastore.
	Time time.Time
}

// later is the later revision and the later time of both.
func (c Change) later(other Change) Change {
	c.Revision = max(c.Revision, other.Revision)
	if other.Time.After(c.Time) {
		c.Time = other.Time
	}
	return c
}

// markName ends the id of a top container's mark. No unit's id ends so.
const markName = "/!"

// mark is what etcd keeps of the last change of a top container beside its units.
// Its value is the time. It is put by whoever deletes, since etcd forgets when that
// was, and by the first write in each second: not by each write, since times are
// told in seconds.
type mark struct {
	top *yang.Node
	Change
}

// marked is the top container whose mark an id names, or nil.
func (l *layout) marked(id string) *yang.Node {
	path, ok := strings.CutSuffix(id, markName)
	if !ok {
		return nil
	}
	return l.nodes[path]
}

func markOf(top *yang.Node, kv *mvccpb.KeyValue) mark {
	seconds, err := strconv.ParseInt(string(kv.Value), 10, 64)
	m := mark{top, Change{Revision: kv.ModRevision}}
	if err == nil {
		m.Time = time.Unix(seconds, 0)
	}
	return m
}

// Changed tells when anything in a top container last changed, the container and
// deletions included; nil is all top containers.
func (d *Datastore) Changed(top *yang.Node) Change { return d.mirror.lastChange(top) }

// Changed is Datastore's, and the transaction relies on it: its writes are made only
// if nothing in top changes before. It does not tell of what this Tx writes.
func (tx *Tx) Changed(top *yang.Node) Change {
	change := tx.d.Changed(top)
	if _, seen := tx.whole[top]; !seen {
		tx.whole[top] = change.Revision
	}
	return change
}

// outrun reports whether the results of Get and Changed have changed since.
func (tx *Tx) outrun() bool {
	for top, revision := range tx.whole {
		if tx.d.Changed(top).Revision != revision {
			return true
		}
	}
	for id, was := range tx.read {
		if revisionOf(tx.d.mirror.get(was.top, id)) != was.modRevision {
			return true
		}
	}
	return false
}

// unchanged compares the revisions of all that is in top with the one that this Tx
// began at. A delete since then has changed the mark.
func (tx *Tx) unchanged(top *yang.Node) []clientv3.Cmp {
	all := clientv3.Compare(clientv3.ModRevision(configPrefix), "<", tx.rev+1).WithPrefix()
	if top == nil {
		return []clientv3.Cmp{all}
	}
	key := configPrefix + tx.d.layout.id(top, nil)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "<", tx.rev+1),
		clientv3.Compare(clientv3.ModRevision(key+"/"), "<", tx.rev+1).WithPrefix(),
	}
}

// marks are the marks that go with the writes, and the time that the writes have.
func (tx *Tx) marks(now time.Time) (ops []clientv3.Op, at time.Time) {
	now = now.Truncate(time.Second)
	deletes := map[*yang.Node]bool{} // by top container that is written
	for _, u := range tx.put {
		deletes[topOf(u.Node)] = false
	}
	for _, u := range tx.delete {
		deletes[topOf(u.Node)] = true
	}
	for _, list := range tx.clear {
		deletes[topOf(list)] = true
	}
	for top, must := range deletes {
		told := tx.d.mirror.markedAt(top)
		if must || told.Before(now) {
			if told.Before(now) {
				told = now
			}
			ops = append(ops, clientv3.OpPut(configPrefix+tx.d.layout.id(top, nil)+markName, strconv.FormatInt(told.Unix(), 10)))
		}
		if told.After(at) {
			at = told
		}
	}
	return ops, at
}

// lastChange is that of a top container, or of all (nil).
func (m *mirror) lastChange(top *yang.Node) Change {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var last Change
	if top != nil {
		last = m.changed[top]
	} else {
		for _, c := range m.changed {
			last = last.later(c)
		}
	}
	if last.Time.IsZero() {
		last.Time = m.since
	}
	return last
}

// markedAt is the time on a top container's mark; it is zero where there is none.
func (m *mirror) markedAt(top *yang.Node) time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed[top].Time
}

// note keeps when what b changes last changed.
func (m *mirror) note(b Batch) {
	for _, units := range [][]*Unit{b.Put, b.Delete} {
		for _, u := range units {
			top := topOf(u.Node)
			m.changed[top] = m.changed[top].later(Change{Revision: u.ModRevision})
		}
	}
	for _, mark := range b.marks {
		m.changed[mark.top] = m.changed[mark.top].later(mark.Change)
	}
}

package datastore

import (
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Change is the last change of some data. All processes that share a datastore report the same
// Change.
type Change struct {
	Revision int64 // 0 means that the data never changed
	// Time is in whole seconds, and not before the change. If it is unknown, it is the time
	// when this process opened the datastore.
	Time time.Time
}

// later returns the later revision and the later time of both.
func (c Change) later(other Change) Change {
	c.Revision = max(c.Revision, other.Revision)
	if other.Time.After(c.Time) {
		c.Time = other.Time
	}
	return c
}

// markName is the end of the id of a top container's mark. No id of a unit has this end.
const markName = "/!"

// mark is the key of etcd with the time of the last change of a top container. Each transaction
// that deletes puts it, because etcd does not keep the time of a deletion. Other transactions put
// it once in each second, because times have whole seconds.
type mark struct {
	top *yang.Node
	Change
}

// marked returns the top container whose mark has an id, or nil.
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

// Changed returns the last change in a top container, which includes deletions and the container
// itself. nil means all top containers.
func (d *Datastore) Changed(top *yang.Node) Change { return d.mirror.lastChange(top) }

// Changed is Datastore.Changed. The transaction fails if the data in top change before it is
// committed. The result does not include the writes of this Tx.
func (tx *Tx) Changed(top *yang.Node) Change {
	change := tx.d.Changed(top)
	if _, seen := tx.whole[top]; !seen {
		tx.whole[top] = change.Revision
	}
	return change
}

// outrun reports whether Get or Changed would now return another result than before.
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

// unchanged returns comparisons that fail if the data in top changed after this Tx began. They
// compare revisions; a later deletion has changed the mark.
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

// marks returns the puts of the marks for the writes, and the time of the writes.
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
		marked := tx.d.mirror.markedAt(top)
		if must || marked.Before(now) {
			if marked.Before(now) {
				marked = now
			}
			ops = append(ops, clientv3.OpPut(configPrefix+tx.d.layout.id(top, nil)+markName, strconv.FormatInt(marked.Unix(), 10)))
		}
		if marked.After(at) {
			at = marked
		}
	}
	return ops, at
}

// lastChange returns the last change of a top container, or of all top containers if it is nil.
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

// markedAt returns the time in a top container's mark, or zero if there is no mark.
func (m *mirror) markedAt(top *yang.Node) time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed[top].Time
}

// note records the changes of b.
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

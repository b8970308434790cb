package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Rank is the place of a change in the order in which the changes of a Write reach the journal, if they do not fit into one
// transaction. A record is written after the records that it needs, and deleted before them. So
// the journal can be loaded even if only the first transactions of a Write were made.
type Rank int

// The ranks, from the first to the last.
const (
	RankAdopting Rank = iota
	RankInstance
	RankBlock
	RankFormer
	RankLease
	RankDeleteLease
	RankDeleteBlock
	RankDeleteInstance
)

// change is a record to write, and the change of the store that follows.
type change struct {
	rank  Rank
	value any // nil deletes
	tell  func(*state.Tx)
}

// Write collects changes. A later change of a key replaces an earlier one.
type Write struct {
	changes map[string]change
	deletes bool
}

// NewWrite returns a Write without changes.
func NewWrite() *Write { return &Write{changes: map[string]change{}} }

// Put writes a record, and then makes a change of the store; tell may be nil.
func (w *Write) Put(rank Rank, key string, value any, tell func(*state.Tx)) {
	w.changes[key] = change{rank, value, tell}
}

// Remove deletes a record, and then makes a change of the store; tell may be nil.
func (w *Write) Remove(rank Rank, key string, tell func(*state.Tx)) {
	w.changes[key] = change{rank, nil, tell}
	w.deletes = true
}

// Empty reports whether there are no changes.
func (w *Write) Empty() bool { return len(w.changes) == 0 }

// Deletes reports whether a Remove was among the changes.
func (w *Write) Deletes() bool { return w.deletes }

// Has reports whether there is a change of a record.
func (w *Write) Has(key string) bool {
	_, found := w.changes[key]
	return found
}

// named is a change with the key of its record.
type named struct {
	key string
	change
}

// inOrder returns the changes in the order of writing.
func (w *Write) inOrder() []named {
	all := make([]named, 0, len(w.changes))
	for k, c := range w.changes {
		all = append(all, named{k, c})
	}
	slices.SortFunc(all, func(a, b named) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.key, b.key)) })
	return all
}

// maxOps limits the records of one transaction. On a busy machine etcd gives up a transaction of 90,000 after its 7 s, and all would be
// tried again.
const maxOps = 10_000

// Commit writes all changes to the journal, in as few transactions as possible. It encodes a transaction while the journal works on
// the one before.
func (w *Write) Commit(ctx context.Context, j Journal) error {
	committed := make(chan error, 1)
	committed <- nil
	for chunk := range slices.Chunk(w.inOrder(), max(min(j.MaxOps(), maxOps), 1)) {
		puts, deletes, err := encode(chunk)
		if failed := <-committed; failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		go func() {
			err := j.Commit(ctx, puts, deletes)
			if err != nil {
				err = fmt.Errorf("write %d records to the journal: %w", len(chunk), err)
			}
			committed <- err
		}()
	}
	return <-committed
}

// encode returns the records that changes write and delete.
func encode(changes []named) (puts map[string][]byte, deletes []string, err error) {
	puts = make(map[string][]byte, len(changes))
	for _, c := range changes {
		if c.value == nil {
			deletes = append(deletes, c.key)
			continue
		}
		if puts[c.key], err = json.Marshal(c.value); err != nil {
			return nil, nil, fmt.Errorf("encode record %q: %w", c.key, err)
		}
	}
	return puts, deletes, nil
}

// Tell applies all changes to the store, in the order of writing.
func (w *Write) Tell(tx *state.Tx) {
	for _, c := range w.inOrder() {
		if c.tell != nil {
			c.tell(tx)
		}
	}
}

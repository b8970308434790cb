package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
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
	tell  func(*coe.Tx)
}

// Write collects changes. A later change of a key replaces an earlier one.
type Write struct {
	changes map[string]change
	deletes bool
}

// NewWrite returns a Write without changes.
func NewWrite() *Write { return &Write{changes: map[string]change{}} }

// Put writes a record, and then makes a change of the store; tell may be nil.
func (w *Write) Put(rank Rank, key string, value any, tell func(*coe.Tx)) {
	w.changes[key] = change{rank, value, tell}
}

// Remove deletes a record, and then makes a change of the store; tell may be nil.
func (w *Write) Remove(rank Rank, key string, tell func(*coe.Tx)) {
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

// keys returns the keys of the changes in the order of writing.
func (w *Write) keys() []string {
	return slices.SortedFunc(maps.Keys(w.changes), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.changes[a].rank, w.changes[b].rank), cmp.Compare(a, b))
	})
}

// maxOps limits the records of one transaction. On a busy machine etcd gives up a transaction of 90,000 after its 7 s, and all would be
// tried again.
const maxOps = 10_000

// Commit writes all changes to the journal, in as few transactions as possible.
func (w *Write) Commit(ctx context.Context, j Journal) error {
	for keys := range slices.Chunk(w.keys(), max(min(j.MaxOps(), maxOps), 1)) {
		puts := make(map[string][]byte, len(keys))
		var deletes []string
		for _, k := range keys {
			if w.changes[k].value == nil {
				deletes = append(deletes, k)
				continue
			}
			value, err := json.Marshal(w.changes[k].value)
			if err != nil {
				return fmt.Errorf("encode record %q: %w", k, err)
			}
			puts[k] = value
		}
		if err := j.Commit(ctx, puts, deletes); err != nil {
			return fmt.Errorf("write %d records to the journal: %w", len(keys), err)
		}
	}
	return nil
}

// Tell applies all changes to the store, in the order of writing.
func (w *Write) Tell(tx *coe.Tx) {
	for _, k := range w.keys() {
		if tell := w.changes[k].tell; tell != nil {
			tell(tx)
		}
	}
}

package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// memoryJournal is a Journal in memory. It makes all changes of a Commit, or none. A test can make a
// Commit fail.
type memoryJournal struct {
	mu      sync.Mutex
	records map[string][]byte
	maxOps  int
	commits int
	largest int // number of changes
	// failIn is the number of Commits until one fails; 0 means that none fails. applied says
	// whether the failed Commit makes its changes.
	failIn  int
	applied bool
}

var errJournal = errors.New("the datastore is unreachable")

func newJournal() *memoryJournal { return &memoryJournal{records: map[string][]byte{}, maxOps: 100} }

func (j *memoryJournal) MaxOps() int { return j.maxOps }

func (j *memoryJournal) Load(context.Context) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.records), nil
}

func (j *memoryJournal) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(puts) + len(deletes); n > j.maxOps || n == 0 {
		return fmt.Errorf("transaction of %d changes", n)
	}
	j.largest = max(j.largest, len(puts)+len(deletes))
	failing := j.failIn == 1
	if j.failIn > 0 {
		j.failIn--
	}
	if failing && !j.applied {
		return errJournal
	}
	j.commits++
	maps.Copy(j.records, puts)
	for _, k := range deletes {
		delete(j.records, k)
	}
	if failing {
		return errJournal
	}
	return nil
}

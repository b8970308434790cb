package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// journal keeps records in memory, as the datastore does on disk: each Commit
// as a whole or not at all. A test can make it fail.
type journal struct {
	mu      sync.Mutex
	records map[string][]byte
	maxOps  int
	commits int
	// failIn counts down the Commits until one fails, 0 for never; applied says
	// whether that one takes effect all the same.
	failIn  int
	applied bool
}

var errJournal = errors.New("the datastore is away")

func newJournal() *journal { return &journal{records: map[string][]byte{}, maxOps: 100} }

func (j *journal) MaxOps() int { return j.maxOps }

func (j *journal) Load(context.Context) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.records), nil
}

func (j *journal) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(puts) + len(deletes); n > j.maxOps || n == 0 {
		return fmt.Errorf("transaction of %d changes", n)
	}
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

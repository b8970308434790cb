package odl

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// reject notes that the changes of an operation will never be taken.
func (w *write) reject(o *operation, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range o.keys() {
		w.refused[k] = true
		if !slices.Contains(w.rejected.Keys, k) {
			w.rejected.Keys = append(w.rejected.Keys, k)
		}
	}
	w.refused[o.head()] = true
	w.rejected.Err = errors.Join(w.rejected.Err, fmt.Errorf("write %s %s: %w", w.lists[o.list].name, o.key(), err))
}

// isRefused tells whether the entry of an operation was refused.
func (w *write) isRefused(o *operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[o.head()]
}

// doubt is an answer that may be a failure of the controller as well as a refusal.
type doubt struct {
	operation *operation
	err       error
}

// place is where an entry is.
type place struct {
	list int
	key  string
}

func (o *operation) at() place { return place{o.list, o.key()} }

// strikes count the writes in a row that ended with a failure at an entry.
type strikes map[place]int

const (
	// repeated is how many failures of an entry are a refusal, if the controller took
	// others meanwhile, and maxStrikes, if nothing else was there to write.
	repeated   = 2
	maxStrikes = 3
	// maxStruck is of how many entries failures are counted.
	maxStruck = 1000
	// maxDoubts is how many entries may fail while none is taken, until the controller is
	// left alone.
	maxDoubts = 8
)

// suspect notes that the controller failed at an entry alone (a status 500). Whether it
// refuses the entry or fails at everything shows when it takes others.
func (w *write) suspect(o *operation, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.backend.strikes) >= maxStruck {
		clear(w.backend.strikes) // most are of what is wanted no more
	}
	w.backend.strikes[o.at()]++
	w.refused[o.head()] = true
	w.doubtful = append(w.doubtful, doubt{o, err})
	if w.taken == 0 && len(w.doubtful) >= maxDoubts {
		return fmt.Errorf("it fails at whatever is written: %w", err)
	}
	return nil
}

// verdict says what of the write was refused. A controller that refuses, or says of something
// that it is not there, and is not ready any more has said nothing: so it answers before its
// models are loaded.
func (w *write) verdict(ctx context.Context) error {
	var failed []error
	for _, d := range w.doubtful {
		n := w.backend.strikes[d.operation.at()]
		if w.taken > 0 && n >= repeated || n >= maxStrikes {
			w.reject(d.operation, d.err)
		} else {
			failed = append(failed, d.err)
		}
	}
	if w.believed || len(w.rejected.Keys) > 0 || len(failed) > 0 {
		if _, err := w.ready(ctx); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if len(w.rejected.Keys) > 0 {
		return &w.rejected
	}
	return nil
}

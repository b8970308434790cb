package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// reject records that the controller will never accept the changes of an operation. If the operation makes no changes of the model, as that of a
// list that permits everything, the write fails: the interfaces that name the list wait for it.
func (w *write) reject(o *codec.Operation, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(o.Keys()) == 0 {
		w.refused[o.Head()] = true
		w.failed = append(w.failed, failure{o, err})
		return
	}
	for _, k := range o.Keys() {
		w.refused[k] = true
		if !slices.Contains(w.rejected.Keys, k) {
			w.rejected.Keys = append(w.rejected.Keys, k)
		}
	}
	w.refused[o.Head()] = true
	w.rejected.Err = errors.Join(w.rejected.Err, fmt.Errorf("write %s %s: %w", w.Lists[o.List].Name, o.Key(), err))
}

// isRefused reports whether the entry of an operation was refused.
func (w *write) isRefused(o *codec.Operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[o.Head()]
}

// failure is an answer that may be a refusal or a failure of the controller (500, 409).
type failure struct {
	operation *codec.Operation
	err       error
}

// place identifies an entry.
type place struct {
	list int
	key  string
}

func placeOf(o *codec.Operation) place { return place{o.List, o.Key()} }

// failureCount counts the consecutive writes that failed at an entry.
type failureCount struct {
	writes      int
	first, last time.Time
}

const (
	// An entry is refused after refusedWithOthers failures if the controller has accepted
	// other entries, and after refusedAlone if there were no others.
	refusedWithOthers = 2
	refusedAlone      = 3
	// failuresFor is the time after which failures are forgotten at whose entry no write has failed since: it is not wanted any more.
	failuresFor = 10 * time.Minute
	// conflictOver is the time without a failure at an entry after which a conflict is a new one. A failed write is repeated much sooner.
	conflictOver = 30 * time.Second
	// After each maxFailed failed entries a write checks that the datastore accepts writes, if the controller has
	// accepted none.
	maxFailed = 8
)

// fail records that the controller failed at a request with one entry. If it accepts other entries, it refuses this one; else the
// controller itself may have failed. The write ends if it fails at many, and the datastore accepts no writes.
func (w *write) fail(ctx context.Context, o *codec.Operation, err error) error {
	if w.countFailure(failure{o, err})%maxFailed != 0 {
		return nil
	}
	return w.checkWritable(ctx)
}

// countFailure records a failure, and returns how many the write has.
func (w *write) countFailure(f failure) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, now := placeOf(f.operation), time.Now()
	count, found := w.backend.failures[at]
	if !found || now.Sub(count.last) > conflictOver {
		count.first = now // an earlier conflict has ended
	}
	count.writes, count.last = count.writes+1, now
	w.backend.failures[at] = count
	w.refused[f.operation.Head()] = true
	w.failed = append(w.failed, f)
	return len(w.failed)
}

// mayHaveFailed reports whether the controller has failed at entries and accepted none, so that it may have failed itself. If the
// datastore was asked and accepts no write, it returns why.
func (w *write) mayHaveFailed() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failed) > 0 && w.accepted == 0, w.unwritable
}

// checkWritable fails if the controller has accepted none of our entries, has failed at some, and does not accept a list as it is
// either. Then the datastore accepts no write, and the failures are not about the entries.
func (w *write) checkWritable(ctx context.Context) error {
	if may, why := w.mayHaveFailed(); !may || why != nil {
		return why
	}
	err := w.probe(ctx)
	if err == nil {
		return nil
	}
	w.forgetFailures()
	var answer *controller.AnswerError
	if errors.As(err, &answer) { // result must not take it for a refusal
		err = errors.New(answer.Error())
	}
	err = fmt.Errorf("OpenDaylight at %s accepts no write: %w", w.URL, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwritable = err
	return err
}

func (w *write) forgetFailures() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.backend.failures)
}

// probe writes a list that permits everything, which is always the same. It is in the same part of the datastore (shard) as our entries;
// the identity is in another one, which can have another leader.
func (w *write) probe(ctx context.Context) error {
	o := codec.Probe()
	found, err := w.Look(ctx, &w.Lists[codec.AccessLists], []string{o.Key()})
	if err != nil {
		return err
	}
	full := o.Entry.Own()
	if there := found[o.Key()]; there != nil {
		full.Keep(there)
	}
	w.mirror.Touch(o.Unit)
	err = w.Put(ctx, &w.Lists[codec.AccessLists], full)
	if err == nil {
		w.done(o, false)
	}
	return err
}

// countsAsRefused reports whether so many writes have failed at an entry that the controller refuses it. A conflict with another
// transaction ends with that, so it must also have lasted.
func (w *write) countsAsRefused(f failure) bool {
	if len(f.operation.Keys()) == 0 {
		return false
	}
	count := w.backend.failures[placeOf(f.operation)]
	var answer *controller.AnswerError
	if errors.As(f.err, &answer) && answer.Status == http.StatusConflict && count.last.Sub(count.first) < w.backend.cfg.Conflict {
		return false
	}
	return w.accepted > 0 && count.writes >= refusedWithOthers || count.writes >= refusedAlone
}

// result returns the error of the write. If the controller has refused something, or has
// answered that something does not exist, result checks that it is ready: a controller that
// has not loaded its models gives the same answers.
func (w *write) result(ctx context.Context) error {
	if err := w.checkWritable(ctx); err != nil {
		return err
	}
	var failed []error
	for _, f := range w.failed {
		if w.countsAsRefused(f) {
			w.reject(f.operation, f.err)
		} else {
			failed = append(failed, f.err)
		}
	}
	if w.absent || len(w.rejected.Keys) > 0 || len(failed) > 0 {
		if err := w.Ready(ctx); err != nil {
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

package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Back-off of a scope whose processing failed. maxBackoff is the longest time that the return
// of a backend can go unnoticed.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// maxBatch is how many scopes are processed together at most.
const maxBatch = 512

// A worker is under load if both are true for loadBatches batches in a row:
//
//   - The marks of a batch would have taken more than a quarter of the time in which they came,
//     if each had been processed by itself.
//   - There were at least loadMarks marks, and at least loadRate a second.
//
// A few callers that each wait for their result are not load, because a rest would gather only
// their marks. Under load the worker rests after each batch: restFactor times as long as the
// batch took, and at most maxRest. After a storm, single marks are processed at once again.
const (
	loadBatches = 3
	loadMarks   = 32
	loadRate    = 250
	restFactor  = 32
	maxRest     = 200 * time.Millisecond
)

// worker passes marked scopes, each once, to a function, in batches: while one batch is
// processed the next one grows. Single marks are processed at once. Under load the worker rests
// between batches, so that each does more, and the processor and the datastore's disk are left
// to the server. A scope for which the function fails is retried, later each time.
type worker struct {
	queue   workqueue.TypedRateLimitingInterface[netvirt.Scope]
	process func(ctx context.Context, scopes []netvirt.Scope) error

	mu     sync.Mutex
	behind map[netvirt.Scope]marked // scopes that are marked and not processed
	marks  int                      // how many scopes were marked since next
}

// marked is when a scope was marked since it was processed: first and last.
type marked struct{ first, last time.Time }

func newWorker(process func(context.Context, []netvirt.Scope) error) *worker {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[netvirt.Scope](minBackoff, maxBackoff)
	return &worker{
		queue:   workqueue.NewTypedRateLimitingQueue(limiter),
		process: process,
		behind:  map[netvirt.Scope]marked{},
	}
}

// mark schedules the scopes, together, so that an object that moves between two of them moves in
// one write.
func (w *worker) mark(scopes ...netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallBehind(scopes)
	w.marks += len(scopes)
	for _, s := range scopes {
		w.queue.Add(s)
	}
}

// note has the scopes count as behind, and not processed.
func (w *worker) note(scopes ...netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallBehind(scopes)
}

// fallBehind needs mu.
func (w *worker) fallBehind(scopes []netvirt.Scope) {
	now := time.Now()
	for _, s := range scopes {
		m := marked{now, now}
		if before, found := w.behind[s]; found {
			m.first = before.first
		}
		w.behind[s] = m
	}
}

// markAfter has the scopes processed after a time.
func (w *worker) markAfter(d time.Duration, scopes ...netvirt.Scope) {
	for _, s := range scopes {
		w.queue.AddAfter(s, d)
	}
}

// run processes batches until ctx is done.
func (w *worker) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	before := time.Now()
	var busy run
	for {
		batch, marks := w.next()
		if batch == nil {
			return
		}
		begun := time.Now()
		err := w.process(ctx, batch)
		w.done(batch, begun, err)
		took := time.Since(begun)
		if isLoad(marks, took/time.Duration(len(batch)), begun.Sub(before)) {
			busy.goOn(marks, before)
		} else {
			busy = run{}
		}
		if busy.isLong(begun) {
			rest(ctx, min(restFactor*took, maxRest))
		}
		before = begun
	}
}

// run is batches in a row that were load.
type run struct {
	batches, marks int
	since          time.Time
}

func (r *run) goOn(marks int, since time.Time) {
	if r.batches == 0 {
		r.since = since
	}
	r.batches++
	r.marks += marks
}

// isLong reports whether the load has lasted long enough for rests.
func (r *run) isLong(now time.Time) bool {
	return r.batches >= loadBatches && r.marks >= loadMarks && float64(r.marks) >= loadRate*now.Sub(r.since).Seconds()
}

// isLoad reports whether the marks are load: so many, of so much work each, in this time.
func isLoad(marks int, each, within time.Duration) bool {
	return 4*time.Duration(marks)*each >= within
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// next waits for a marked scope and returns it with all that are marked beside
// it, and how many scopes were marked since the last batch, one marked twice counted
// twice; nil when the worker is to stop.
func (w *worker) next() (batch []netvirt.Scope, marks int) {
	first, stopped := w.queue.Get()
	if stopped {
		return nil, 0
	}
	w.mu.Lock() // a mark of several scopes is complete
	defer w.mu.Unlock()
	marks, w.marks = w.marks, 0
	batch = []netvirt.Scope{first}
	for len(batch) < maxBatch && w.queue.Len() > 0 {
		s, stopped := w.queue.Get()
		if stopped {
			return nil, 0
		}
		batch = append(batch, s)
	}
	return batch, marks
}

func (w *worker) done(batch []netvirt.Scope, begun time.Time, err error) {
	for _, s := range batch {
		if err != nil {
			w.queue.AddRateLimited(s)
		} else {
			w.queue.Forget(s)
			w.settle(s, begun)
		}
		w.queue.Done(s)
	}
}

// settle forgets that a scope is behind, unless it was marked again since the
// batch began.
func (w *worker) settle(s netvirt.Scope, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp(s, begun)
}

// settleAll does so for every scope.
func (w *worker) settleAll(begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.behind {
		w.catchUp(s, begun)
	}
}

// catchUp needs mu.
func (w *worker) catchUp(s netvirt.Scope, begun time.Time) {
	if m := w.behind[s]; m.last.After(begun) {
		w.behind[s] = marked{m.last, m.last}
	} else {
		delete(w.behind, s)
	}
}

// lag returns the scopes that are behind, and since when.
func (w *worker) lag() map[netvirt.Scope]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[netvirt.Scope]time.Time, len(w.behind))
	for s, m := range w.behind {
		out[s] = m.first
	}
	return out
}

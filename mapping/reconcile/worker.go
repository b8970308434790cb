package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Back-off of a scope whose processing failed. When a backend is reachable again, the loop
// notices it after maxBackoff at the latest.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// maxBatch is the largest number of scopes in a batch.
const maxBatch = 512

// A worker is under load if two conditions hold for loadBatches consecutive batches:
//
//   - Processing each mark of a batch by itself would have taken at least a quarter of the time
//     in which the marks arrived.
//   - The batches had at least loadMarks marks, and at least loadRate marks a second.
//
// A few callers that each wait for their result are not load: during a rest no other marks
// would arrive. Under load the worker rests after each batch for restFactor times the duration
// of the batch, and at most maxRest. Without load, each mark is processed at once.
const (
	loadBatches = 3
	loadMarks   = 32
	loadRate    = 250
	restFactor  = 32
	maxRest     = 200 * time.Millisecond
)

// worker passes marked scopes to a function, in batches. A scope is in a batch once, even if it
// was marked several times. While one batch is processed, the next one collects marks. Without
// load, each mark is processed at once. Under load the worker rests between batches: each batch
// then has more scopes, and the RESTCONF server gets more of the processor and of the datastore's
// disk. It also rests when process asks for that, unless a batch was full: what a rest would collect is there already. If the
// function fails, its scopes are retried with increasing delays.
type worker struct {
	queue   workqueue.TypedRateLimitingInterface[netvirt.Scope]
	process func(ctx context.Context, scopes []netvirt.Scope) error
	pause   time.Duration       // how long to rest after a batch; process can set it
	rested  func(time.Duration) // gets the time of each rest

	mu     sync.Mutex
	behind map[netvirt.Scope]marked // scopes that are marked and not processed
	marks  int                      // number of marks since the last call of next
	// repeats are the scopes that wait for a repetition, and repeated is how many the next batch has at least.
	repeats  map[netvirt.Scope]struct{}
	repeated int
}

// marked has the times of the first and the last mark of a scope since it was processed.
type marked struct{ first, last time.Time }

func newWorker(process func(context.Context, []netvirt.Scope) error) *worker {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[netvirt.Scope](minBackoff, maxBackoff)
	return &worker{
		queue:   workqueue.NewTypedRateLimitingQueue(limiter),
		process: process,
		rested:  func(time.Duration) {},
		behind:  map[netvirt.Scope]marked{},
		repeats: map[netvirt.Scope]struct{}{},
	}
}

// mark schedules the scopes for the same batch. An object that moves between two of them then
// moves in one write.
func (w *worker) mark(scopes ...netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallBehind(scopes)
	w.marks += len(scopes)
	for _, s := range scopes {
		w.queue.Add(s)
	}
}

// note counts the scopes as behind, and does not schedule them.
func (w *worker) note(scopes ...netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fallBehind(scopes)
}

// fallBehind counts the scopes as behind. It needs mu.
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

// markAfter schedules the scopes after a time.
func (w *worker) markAfter(d time.Duration, scopes ...netvirt.Scope) {
	for _, s := range scopes {
		w.queue.AddAfter(s, d)
	}
}

// repeat schedules the scopes after repeatAfter, for the same batch as all others that wait for that.
func (w *worker) repeat(scopes ...netvirt.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fallBehind(scopes); len(w.repeats) == 0 && len(scopes) > 0 {
		time.AfterFunc(repeatAfter, w.repeatAll)
	}
	for _, s := range scopes {
		w.repeats[s] = struct{}{}
	}
}

func (w *worker) repeatAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.repeats {
		w.queue.Add(s)
	}
	w.repeated = w.queue.Len() + 1 // the worker may have taken one
	clear(w.repeats)
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
		w.pause = 0
		err := w.process(ctx, batch)
		w.done(batch, begun, err)
		took := time.Since(begun)
		if err != nil || len(batch) >= maxBatch {
			w.pause = 0
		}
		if isLoad(marks, took/time.Duration(len(batch)), begun.Sub(before)) {
			busy.goOn(marks, before)
		} else {
			busy = run{}
		}
		if busy.isLong(begun) {
			w.pause = max(w.pause, min(restFactor*took, maxRest))
		}
		if w.pause > 0 {
			resting := time.Now()
			rest(ctx, w.pause)
			w.rested(time.Since(resting))
		}
		before = begun
	}
}

// run is a run of consecutive batches that were load.
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

// isLoad reports whether a number of marks that arrived within a time are load, if each takes
// some time to process.
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

// next waits for a mark. It returns all marked scopes, up to maxBatch or all that are repeated, and the number of marks
// since the last batch. It returns nil when the worker must stop.
func (w *worker) next() (batch []netvirt.Scope, marks int) {
	first, stopped := w.queue.Get()
	if stopped {
		return nil, 0
	}
	w.mu.Lock() // wait until a call of mark has added all its scopes
	defer w.mu.Unlock()
	marks, w.marks = w.marks, 0
	most := max(maxBatch, w.repeated)
	w.repeated = 0
	batch = []netvirt.Scope{first}
	for len(batch) < most && w.queue.Len() > 0 {
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

// settle counts a scope as processed, unless it was marked after the batch began.
func (w *worker) settle(s netvirt.Scope, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp(s, begun)
}

// settleAll settles every scope.
func (w *worker) settleAll(begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.behind {
		w.catchUp(s, begun)
	}
}

// catchUp is settle without its lock. It needs mu.
func (w *worker) catchUp(s netvirt.Scope, begun time.Time) {
	if _, waits := w.repeats[s]; waits {
		return
	}
	if m := w.behind[s]; m.last.After(begun) {
		w.behind[s] = marked{m.last, m.last}
	} else {
		delete(w.behind, s)
	}
}

// lag returns the scopes that are behind, with the time of the first mark.
func (w *worker) lag() map[netvirt.Scope]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[netvirt.Scope]time.Time, len(w.behind))
	for s, m := range w.behind {
		out[s] = m.first
	}
	return out
}

package report

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// note is an annotation to write; an empty value removes it.
type note struct {
	uid, namespace, name string
	value                string
	ready                bool // the condition kube.NetworkReady is written too
}

// patcher writes annotations and conditions.
type patcher interface {
	// annotate returns the pod's resource version after the write. It fails if the pod of that
	// name has another UID.
	annotate(ctx context.Context, n note) (revision string, err error)
}

// annotator makes the annotations of pods match the leases in the Store, and sets the condition
// kube.NetworkReady of the pods that the backend has confirmed, if it is one of their readiness
// gates. It keeps the state of each pod at the API server, and a queue of pods to compare. It
// computes an annotation only when it writes it.
type annotator struct {
	cfg      Config
	patcher  patcher
	store    *state.Store
	restored func(n note)
	log      *slog.Logger
	limiter  *rate.Limiter
	trouble  *trouble
	metrics  annotatorMetrics

	mu    sync.Mutex
	pods  map[string]*pod                          // by uid
	queue workqueue.TypedDelayingInterface[string] // of UIDs; nil while the annotator does not run
}

// newAnnotator returns an annotator. It calls restored for each annotation that it restored.
func newAnnotator(cfg Config, p patcher, store *state.Store, restored func(note), log *slog.Logger) *annotator {
	limit := rate.Limit(cfg.AnnotateQPS)
	if math.IsInf(cfg.AnnotateQPS, 1) {
		limit = rate.Inf
	}
	return &annotator{
		cfg: cfg, patcher: p, store: store, restored: restored, log: log,
		limiter: rate.NewLimiter(limit, cfg.Burst),
		trouble: newTrouble("annotations of pods", "patch on pods/status", log),
		metrics: newAnnotatorMetrics(),
		pods:    map[string]*pod{},
	}
}

// off reports whether annotations are disabled.
func (a *annotator) off() bool { return a.cfg.AnnotateQPS == 0 }

func (a *annotator) seen(s kube.PodSeen) {
	if a.off() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Deleted {
		delete(a.pods, s.UID)
		return
	}
	p := a.pods[s.UID]
	if p == nil {
		p = &pod{namespace: s.Namespace, name: s.Name, hostNetwork: s.HostNetwork}
		a.pods[s.UID] = p
	}
	if p.see(s) {
		a.mark(s.UID, p)
	}
}

func (a *annotator) leased(uids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range uids {
		if p := a.pods[uid]; p != nil {
			a.mark(uid, p)
		}
	}
}

// confirm notes whether the backend has confirmed all interfaces of a pod.
func (a *annotator) confirm(uid string, confirmed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[uid]
	if p == nil {
		return
	}
	if p.confirmed = confirmed; p.becomesReady() {
		a.mark(uid, p)
	}
}

// mark queues a pod for comparison. The caller holds the lock.
func (a *annotator) mark(uid string, p *pod) {
	if a.queue == nil {
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	a.queue.Add(uid)
}

// run compares all pods, and then the marked pods, until ctx is done.
func (a *annotator) run(ctx context.Context) {
	if a.off() {
		<-ctx.Done()
		return
	}
	queue := workqueue.NewTypedDelayingQueue[string]()
	a.begin(queue)
	var workers sync.WaitGroup
	for range a.cfg.Workers {
		workers.Go(func() { work(ctx, queue, a.process) })
	}
	<-ctx.Done()
	a.end()
	queue.ShutDown()
	workers.Wait()
}

func (a *annotator) begin(queue workqueue.TypedDelayingInterface[string]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = queue
	for uid, p := range a.pods {
		a.mark(uid, p)
	}
}

func (a *annotator) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = nil
	for _, p := range a.pods {
		p.since = time.Time{}
	}
}

// process writes a pod's annotation if it differs. It returns the delay after which to check
// the pod again; 0 for no check.
func (a *annotator) process(ctx context.Context, uid string) (again time.Duration) {
	if _, again, due := a.due(uid); !due {
		return again
	}
	if a.trouble.wait(ctx) != nil || a.limiter.Wait(ctx) != nil {
		return 0 // ctx is done
	}
	n, again, due := a.due(uid)
	if !due || !a.send(n) {
		return again
	}
	call, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	revision, err := a.patcher.annotate(call, n)
	switch {
	case err == nil:
		a.took(n, revision)
		return 0
	case ctx.Err() != nil:
		return 0
	default:
		return a.failed(n, err)
	}
}

// due returns the annotation to write for a pod now, or the delay after which it is due.
func (a *annotator) due(uid string) (n note, after time.Duration, due bool) {
	value, known := wanted(a.store.Pod(uid), a.cfg.MTU)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[uid]
	if p == nil {
		return note{}, 0, false
	}
	if p.hostNetwork {
		value, known = "", true
	}
	if p.finished || !known || digestOf(value) == p.have && !p.becomesReady() {
		p.settle()
		return note{}, 0, false
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if after := time.Until(p.notBefore); after > 0 {
		return note{}, after, false
	}
	return note{uid, p.namespace, p.name, value, p.becomesReady()}, 0, true
}

// wanted returns the annotation that a pod should have. It is unknown for a pod of another
// origin or without a network, and while the leases of the pod are not chosen yet.
func wanted(s state.PodState, mtu int) (value string, known bool) {
	if s.Pod == nil || s.Origin != coe.Kubernetes || s.Pod.NoNetwork {
		return "", false
	}
	if all := interfaces(s.Leases, mtu); len(all) > 0 {
		return Encode(all), true
	}
	return "", s.Refused || len(s.Leases) > 0
}

// send records that an annotation is being sent; it returns false if the pod is gone.
func (a *annotator) send(n note) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[n.uid]
	if p == nil {
		return false
	}
	p.sends, p.sent = true, digestOf(n.value)
	return true
}

// took records that the API server has accepted an annotation.
func (a *annotator) took(n note, revision string) {
	a.trouble.over()
	a.metrics.patches.WithLabelValues("ok").Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[n.uid]
	if p == nil {
		return
	}
	p.sends, p.isReady = false, p.isReady || n.ready
	if p.took(revision, time.Now()) {
		a.restored(n)
	}
	if p.have == p.sent && !p.since.IsZero() {
		a.metrics.lag.Observe(time.Since(p.since).Seconds())
		p.since = time.Time{}
	}
}

// failed records a failed write, and returns the delay before the retry; 0 for none.
func (a *annotator) failed(n note, err error) (again time.Duration) {
	failure := failureOf(err)
	a.metrics.patches.WithLabelValues(string(failure)).Inc()
	switch failure {
	case gone:
		a.trouble.over()
	case rejected:
		a.trouble.over()
		a.log.Warn("the API server rejected the annotation of a pod", "namespace", n.namespace, "name", n.name, "err", err)
	default:
		a.trouble.add(failure, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[n.uid]
	if p == nil {
		return 0
	}
	if failure == gone {
		delete(a.pods, n.uid)
		return 0
	}
	again = failure.backoff(p.failures)
	p.failures++
	p.notBefore = time.Now().Add(again)
	return again
}

// behind returns the number of marked pods, and the time of the oldest mark.
func (a *annotator) behind() (n int, oldest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		if p.since.IsZero() {
			continue
		}
		n++
		if oldest.IsZero() || p.since.Before(oldest) {
			oldest = p.since
		}
	}
	return n, oldest
}

package report

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// sender writes Events.
type sender interface {
	create(ctx context.Context, e *corev1.Event) error
	// repeat updates the count and the last time of an existing Event.
	repeat(ctx context.Context, e *corev1.Event) error
}

// events writes Events about problems. It keeps the problems of each object, the last Events
// about it, and a queue of objects. It decides what to write at the last moment, so a problem
// that is already solved is not written.
//
// The recorders of client-go do not fit: they keep messages instead of states, drop messages
// silently when there are many, and have neither deadlines nor our logger.
type events struct {
	cfg      Config
	sender   sender
	store    *state.Store
	log      *slog.Logger
	instance string
	limiter  *rate.Limiter
	trouble  *trouble
	counter  *prometheus.CounterVec

	mu      sync.Mutex
	objects map[string]map[string]*object               // by namespace and uid
	queue   workqueue.TypedDelayingInterface[objectKey] // nil while events does not run
}

type objectKey struct{ namespace, uid string }

func newEvents(cfg Config, s sender, store *state.Store, log *slog.Logger) *events {
	instance, _ := os.Hostname() // informational; may be empty
	return &events{
		cfg: cfg, sender: s, store: store, log: log, instance: instance,
		limiter: rate.NewLimiter(rate.Limit(cfg.EventQPS), max(1, int(2*cfg.EventQPS))),
		trouble: newTrouble("events", "create and patch on events", log),
		counter: newEventsCounter(),
		objects: map[string]map[string]*object{},
	}
}

// finding is the current state of one object.
type finding struct {
	ref      corev1.ObjectReference
	problems map[coe.Reason]*problem
	report   bool // a problem must be reported
}

// problems replaces the problems of a namespace.
func (e *events) problems(namespace string, all []coe.Problem) {
	found := e.find(namespace, all)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range found {
		if f.report {
			e.object(f.ref)
		}
	}
	for uid, o := range e.objects[namespace] {
		o.set(found[uid].problems)
		key := objectKey{namespace, uid}
		if exists, _ := stateOf(e.store, key); !exists {
			e.forget(key)
		} else if !o.idle() {
			e.mark(key)
		}
	}
}

// find groups problems by object. The first problem of each reason counts.
func (e *events) find(namespace string, all []coe.Problem) map[string]finding {
	subjects := subjects{store: e.store, namespace: namespace}
	found := map[string]finding{}
	now := time.Now()
	for _, p := range all {
		ref := subjects.of(p)
		if ref == nil {
			continue
		}
		f, known := found[string(ref.UID)]
		if !known {
			f = finding{ref: *ref, problems: map[coe.Reason]*problem{}}
		}
		if f.problems[p.Reason] == nil {
			silent := isSilent(e.store, p)
			f.problems[p.Reason] = &problem{message: p.Message, silent: silent, since: now}
			f.report = f.report || !silent
		}
		found[string(ref.UID)] = f
	}
	return found
}

// restored queues an Event about an annotation that someone else had changed.
func (e *events) restored(n note) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.object(*reference("Pod", n.namespace, n.name, n.uid))
	o.once[AnnotationRestored] = "annotation " + kube.InterfacesAnnotation + " was changed and has been restored: " + component +
		" does not read it; change the pool or the requested address of the pod instead"
	e.mark(objectKey{n.namespace, n.uid})
}

// object returns the state of an object, and creates it if necessary. The caller holds the lock.
func (e *events) object(ref corev1.ObjectReference) *object {
	objects := e.objects[ref.Namespace]
	if objects == nil {
		objects = map[string]*object{}
		e.objects[ref.Namespace] = objects
	}
	o := objects[string(ref.UID)]
	if o == nil {
		o = newObject(ref)
		objects[string(ref.UID)] = o
	}
	return o
}

// forget deletes the state of an object. The caller holds the lock.
func (e *events) forget(key objectKey) {
	delete(e.objects[key.namespace], key.uid)
	if len(e.objects[key.namespace]) == 0 {
		delete(e.objects, key.namespace)
	}
}

// mark queues an object. The caller holds the lock.
func (e *events) mark(key objectKey) {
	if e.queue != nil {
		e.queue.Add(key)
	}
}

// run writes Events until ctx is done.
func (e *events) run(ctx context.Context) {
	queue := newEventQueue()
	e.begin(queue)
	var worker sync.WaitGroup
	worker.Go(func() { work(ctx, queue, e.process) })
	<-ctx.Done()
	e.begin(nil)
	queue.ShutDown()
	worker.Wait()
}

func (e *events) begin(queue workqueue.TypedDelayingInterface[objectKey]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = queue
	for namespace, objects := range e.objects {
		for uid := range objects {
			e.mark(objectKey{namespace, uid})
		}
	}
}

// process writes at most one Event about an object. It returns the delay after which to check
// the object again; 0 for no check.
func (e *events) process(ctx context.Context, key objectKey) (again time.Duration) {
	if _, again, due := e.next(key); !due {
		return again
	}
	if e.trouble.wait(ctx) != nil || e.limiter.Wait(ctx) != nil {
		return 0 // ctx is done
	}
	d, again, due := e.next(key)
	if !due {
		return again
	}
	call, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	event, err := e.send(call, d)
	if err != nil && ctx.Err() != nil {
		return 0
	}
	return e.sent(key, d, event, err)
}

// send writes an Event. It repeats the last Event of the reason if that still exists with the
// same message.
func (e *events) send(ctx context.Context, d draft) (*corev1.Event, error) {
	now := time.Now()
	if d.last != nil && d.last.Message == d.message {
		event := again(d.last, now)
		if err := e.sender.repeat(ctx, event); failureOf(err) != gone {
			return event, err
		}
	}
	event := newEvent(d, now, e.instance)
	return event, e.sender.create(ctx, event)
}

// sent records the result of send.
func (e *events) sent(key objectKey, d draft, event *corev1.Event, err error) (again time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objects[key.namespace][key.uid]
	if o == nil {
		return 0
	}
	now := time.Now()
	switch failure := failureOf(err); failure {
	case none:
		e.trouble.over()
		e.counter.WithLabelValues("sent").Inc()
		o.sent(d, event, now)
	case gone, rejected:
		e.trouble.over()
		e.drop(d, failure, err)
		o.sent(d, nil, now)
	default:
		e.trouble.add(failure, err)
		again = failure.backoff(o.failures)
		o.failures++
		o.notBefore = now.Add(again)
		return again
	}
	e.mark(key) // there may be more to write
	return 0
}

// drop records that the API server rejects an Event for good. It is normal that the object is
// gone or its namespace terminates.
func (e *events) drop(d draft, f failure, err error) {
	log := e.log.Warn
	if f == gone {
		log = e.log.Debug
	}
	log("the API server rejected an event", "namespace", d.ref.Namespace, "name", d.ref.Name, "reason", d.reason, "err", err)
	e.counter.WithLabelValues("dropped").Inc()
}

// next returns the Event to write about an object now, or the delay after which one is due.
func (e *events) next(key objectKey) (d draft, after time.Duration, due bool) {
	exists, wanted := stateOf(e.store, key)
	namespace := e.store.Namespace(key.namespace)
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objects[key.namespace][key.uid]
	switch {
	case o == nil:
		return draft{}, 0, false
	case !exists, namespace != nil && namespace.Terminating:
		e.forget(key) // a terminating namespace accepts no Events
		return draft{}, 0, false
	case !wanted:
		o.problems, o.warned = nil, false
	}
	return o.next(time.Now())
}

// behind returns the number of queued objects.
func (e *events) behind() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queue == nil {
		return 0
	}
	return e.queue.Len()
}

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
)

// sender writes Events.
type sender interface {
	create(ctx context.Context, e *corev1.Event) error
	// repeat writes the count of an Event that was created, and when it was last.
	repeat(ctx context.Context, e *corev1.Event) error
}

// events tells of problems. It keeps what is the matter with each object and
// what was told of it, and a queue of objects; what is told is found out at the
// last moment, so a problem that has healed by then is not told.
//
// client-go's recorders do not fit: they keep sayings instead of states, drop them
// unseen when they come fast, and have neither deadlines nor a logger of ours.
type events struct {
	cfg      Config
	sender   sender
	store    *coe.Store
	log      *slog.Logger
	instance string
	limiter  *rate.Limiter
	trouble  *trouble
	counter  *prometheus.CounterVec

	mu      sync.Mutex
	objects map[string]map[string]*object               // by namespace and uid
	queue   workqueue.TypedDelayingInterface[objectKey] // nil while it does not run
}

type objectKey struct{ namespace, uid string }

func newEvents(cfg Config, s sender, store *coe.Store, log *slog.Logger) *events {
	instance, _ := os.Hostname() // for people; empty is as good
	return &events{
		cfg: cfg, sender: s, store: store, log: log, instance: instance,
		limiter: rate.NewLimiter(rate.Limit(cfg.EventQPS), max(1, int(2*cfg.EventQPS))),
		trouble: newTrouble("events", "create and patch on events", log),
		counter: newEventsCounter(),
		objects: map[string]map[string]*object{},
	}
}

// finding is what is the matter with one object.
type finding struct {
	ref      corev1.ObjectReference
	problems map[coe.Reason]*problem
	loud     bool // one of them is to be told
}

// problems replaces what is the matter in a namespace.
func (e *events) problems(namespace string, all []coe.Problem) {
	found := e.find(namespace, all)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range found {
		if f.loud {
			e.object(f.ref)
		}
	}
	for uid, o := range e.objects[namespace] {
		o.set(found[uid].problems)
		key := objectKey{namespace, uid}
		if there, _ := standing(e.store, key); !there {
			e.forget(key)
		} else if !o.idle() {
			e.mark(key)
		}
	}
}

// find sorts problems by the objects that they are about. Of those with one reason
// the first counts.
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
			quiet := silent(e.store, p)
			f.problems[p.Reason] = &problem{message: p.Message, silent: quiet, since: now}
			f.loud = f.loud || !quiet
		}
		found[string(ref.UID)] = f
	}
	return found
}

// restored tells that somebody else had changed a pod's annotation.
func (e *events) restored(n note) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.object(*reference("Pod", n.namespace, n.name, n.uid))
	o.once[AnnotationRestored] = "annotation " + kube.InterfacesAnnotation + " was changed and is put back: " + component +
		" writes it, and nothing reads it back; change the pod's pool or its address instead"
	e.mark(objectKey{n.namespace, n.uid})
}

// object is what is known of an object, from now on if nothing was. The lock is held.
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

// forget drops an object. The lock is held.
func (e *events) forget(key objectKey) {
	delete(e.objects[key.namespace], key.uid)
	if len(e.objects[key.namespace]) == 0 {
		delete(e.objects, key.namespace)
	}
}

// mark has an object looked at soon. The lock is held.
func (e *events) mark(key objectKey) {
	if e.queue != nil {
		e.queue.Add(key)
	}
}

// run tells what is to be told until ctx is done.
func (e *events) run(ctx context.Context) {
	queue := workqueue.NewTypedDelayingQueue[objectKey]()
	e.begin(queue)
	var worker sync.WaitGroup
	worker.Go(func() { e.work(ctx, queue) })
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

func (e *events) work(ctx context.Context, queue workqueue.TypedDelayingInterface[objectKey]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if again := e.process(ctx, key); again > 0 {
			queue.AddAfter(key, again)
		}
		queue.Done(key)
	}
}

// process tells one thing of an object, if there is one. It returns after what time
// the object is to be looked at again; 0 when it need not be.
func (e *events) process(ctx context.Context, key objectKey) (again time.Duration) {
	if _, again, due := e.next(key); !due {
		return again
	}
	if e.trouble.wait(ctx) != nil || e.limiter.Wait(ctx) != nil {
		return 0 // ctx is done
	}
	s, again, due := e.next(key)
	if !due {
		return again
	}
	call, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	event, err := e.send(call, s)
	if err != nil && ctx.Err() != nil {
		return 0
	}
	return e.sent(key, s, event, err)
}

// send writes the Event that says it: the last one of its reason again, where that
// is still there and says the same.
func (e *events) send(ctx context.Context, s saying) (*corev1.Event, error) {
	now := time.Now()
	if s.last != nil && s.last.Message == s.message {
		event := again(s.last, now)
		if err := e.sender.repeat(ctx, event); failureOf(err) != gone {
			return event, err
		}
	}
	event := newEvent(s, now, e.instance)
	return event, e.sender.create(ctx, event)
}

// sent notes what became of a saying.
func (e *events) sent(key objectKey, s saying, event *corev1.Event, err error) (again time.Duration) {
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
		o.told(s, event, now)
	case gone, rejected:
		e.trouble.over()
		e.drop(s, failure, err)
		o.told(s, nil, now)
	default:
		e.trouble.add(failure, err)
		again = failure.backoff(o.failures)
		o.failures++
		o.notBefore = now.Add(again)
		return again
	}
	e.mark(key) // there may be more to tell
	return 0
}

// drop notes that the API server will never take a saying. What it is about may be
// gone, or its namespace on the way out: that happens every day.
func (e *events) drop(s saying, f failure, err error) {
	log := e.log.Warn
	if f == gone {
		log = e.log.Debug
	}
	log("the API server does not take an event", "namespace", s.ref.Namespace, "name", s.ref.Name, "reason", s.reason, "err", err)
	e.counter.WithLabelValues("dropped").Inc()
}

// next is what is to be told of an object now, if anything, or after what time that
// may be.
func (e *events) next(key objectKey) (s saying, after time.Duration, due bool) {
	there, wants := standing(e.store, key)
	namespace := e.store.Namespace(key.namespace)
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objects[key.namespace][key.uid]
	switch {
	case o == nil:
		return saying{}, 0, false
	case !there, namespace != nil && namespace.Terminating:
		e.forget(key) // in a namespace that goes no Event can be made
		return saying{}, 0, false
	case !wants:
		o.problems, o.warned = nil, false
	}
	return o.next(time.Now())
}

// behind tells of how many objects there may be something to tell.
func (e *events) behind() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queue == nil {
		return 0
	}
	return e.queue.Len()
}

package report

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// work processes the items of a queue until it is shut down. process returns the delay after which
// to process the item again; 0 for never.
func work[K comparable](ctx context.Context, queue workqueue.TypedDelayingInterface[K], process func(context.Context, K) time.Duration) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if again := process(ctx, key); again > 0 {
			queue.AddAfter(key, again)
		}
		queue.Done(key)
	}
}

// newEventQueue returns a queue of objects that serves namespaces in turn. All Events share
// one rate limit, so in a plain queue a namespace with many problems would delay the Events
// of all others.
func newEventQueue() workqueue.TypedDelayingInterface[objectKey] {
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[objectKey]{
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[objectKey]{
			Queue: &roundRobin{waiting: map[string][]objectKey{}},
		}),
	})
}

// roundRobin returns one object of each namespace in turn. Objects of one namespace keep
// their order.
type roundRobin struct {
	namespaces []string               // namespaces with waiting objects, next first
	waiting    map[string][]objectKey // by namespace, never empty
	count      int
}

var _ workqueue.Queue[objectKey] = (*roundRobin)(nil)

// Touch implements workqueue.Queue.
func (*roundRobin) Touch(objectKey) {}

// Push implements workqueue.Queue.
func (r *roundRobin) Push(key objectKey) {
	if r.waiting[key.namespace] == nil {
		r.namespaces = append(r.namespaces, key.namespace)
	}
	r.waiting[key.namespace] = append(r.waiting[key.namespace], key)
	r.count++
}

// Len implements workqueue.Queue.
func (r *roundRobin) Len() int { return r.count }

// Pop implements workqueue.Queue.
func (r *roundRobin) Pop() objectKey {
	namespace := r.namespaces[0]
	r.namespaces = r.namespaces[1:]
	key, rest := r.waiting[namespace][0], r.waiting[namespace][1:]
	if r.count--; len(rest) == 0 {
		delete(r.waiting, namespace)
	} else {
		r.waiting[namespace] = rest
		r.namespaces = append(r.namespaces, namespace)
	}
	return key
}

package synthapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Resource is a number of objects of one kind.
type Resource[T any] struct {
	api    *API
	kind   Kind[T]
	object func(i int) T

	mu      sync.Mutex
	count   int
	gone    map[int]bool // deleted by Delete
	watches map[chan []byte]struct{}
}

// backlog is the number of events that a slow watch may lag behind.
const backlog = 1 << 12

// Add adds a resource with n objects to an API. object makes the object with a number.
func Add[T any](a *API, k Kind[T], n int, object func(i int) T) *Resource[T] {
	r := &Resource[T]{api: a, kind: k, object: object, count: n, gone: map[int]bool{}, watches: map[chan []byte]struct{}{}}
	a.mux.HandleFunc("GET "+k.Path, r.get)
	return r
}

func (r *Resource[T]) get(w http.ResponseWriter, request *http.Request) {
	q := request.URL.Query()
	if q.Get("watch") != "" {
		r.watch(w, request)
		return
	}
	r.mu.Lock()
	n := r.count
	r.mu.Unlock()
	from, _ := strconv.Atoi(q.Get("continue")) // 0 if there is no token
	to := n
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil {
		to = min(n, from+limit)
	}
	meta := metav1.ListMeta{ResourceVersion: "1"}
	if to < n {
		meta.Continue = strconv.Itoa(to)
	}
	items := make([]T, 0, to-from)
	for i := from; i < to; i++ {
		if !r.isGone(i) {
			items = append(items, r.object(i))
		}
	}
	w.Header().Set("Content-Type", protobufMedia)
	if err := r.api.encoder.Encode(r.kind.List(meta, items), w); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// watch serves the events that are sent from now on.
func (r *Resource[T]) watch(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", protobufMedia+";stream=watch")
	w.WriteHeader(http.StatusOK)
	events := make(chan []byte, backlog)
	r.mu.Lock()
	r.watches[events] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, events)
	}()
	out := http.NewResponseController(w)
	for err := out.Flush(); err == nil; err = out.Flush() {
		select {
		case <-request.Context().Done():
			return
		case e := <-events:
			if _, err := w.Write(e); err != nil {
				return
			}
		}
	}
}

// AwaitWatch waits until there is a watch. Events that are sent before are lost.
func (r *Resource[T]) AwaitWatch(ctx context.Context) error {
	return await(ctx, "a watch of "+r.kind.Path, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.watches) > 0
	})
}

// Modify sends the object with a number, which has changed, to all watches.
func (r *Resource[T]) Modify(i int) error { return r.send(watch.Modified, i, i+1) }

// Delete deletes the object with a number. Its number is not used again.
func (r *Resource[T]) Delete(i int) error {
	r.mu.Lock()
	r.gone[i] = true
	r.mu.Unlock()
	return r.send(watch.Deleted, i, i+1)
}

func (r *Resource[T]) isGone(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[i]
}

// Resize changes the number of objects. The events of all new or deleted objects are sent at once.
func (r *Resource[T]) Resize(n int) error {
	r.mu.Lock()
	before := r.count
	r.count = n
	r.mu.Unlock()
	if n < before {
		return r.send(watch.Deleted, n, before)
	}
	return r.send(watch.Added, before, n)
}

// send sends an event for each object in a range.
func (r *Resource[T]) send(kind watch.EventType, from, to int) error {
	var frames []byte
	for i := from; i < to; i++ {
		frame, err := r.frame(kind, i)
		if err != nil {
			return fmt.Errorf("send an event of %s: %w", r.kind.Path, err)
		}
		frames = append(frames, frame...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watches {
		w <- frames
	}
	return nil
}

// frame returns an event in the form of a watch: its length and a WatchEvent, in protobuf.
func (r *Resource[T]) frame(kind watch.EventType, i int) ([]byte, error) {
	object := r.kind.Object(r.object(i))
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(r.api.nextRevision())
	var raw bytes.Buffer
	if err := r.api.encoder.Encode(object, &raw); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw.Bytes()}}
	body, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

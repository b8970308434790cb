package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// Time limits of following a resource.
const (
	pageTimeout = 30 * time.Second
	openTimeout = 10 * time.Second
	// watchLife is the requested duration of a watch, plus up to 50 %.
	watchLife = 6 * time.Minute
	// grace is how long after its end the API server may close a watch, before the follower
	// closes it.
	grace = 15 * time.Second
	// lively is how long a watch must stay open to count as successful without an event.
	lively = time.Second
	// maxPause is the maximum delay before a retry, plus up to 20 %: the maximum delay until
	// the return of an API server is noticed.
	maxPause = 4 * time.Second
)

// pageSize and maxPage bound the memory for a list before conversion. After a page that was too
// large, the next pages have fewer objects.
const pageSize = 500

// resource is a followed resource.
type resource struct {
	name  string
	group string // "" for the core group
	// selector is a label selector. Objects that do not match it are ignored.
	selector string
	optional bool // see table.optional
}

// list is a list of objects as client-go returns it.
type list interface {
	runtime.Object
	metav1.ListInterface
}

// lister is the part of client-go's typed clients that is used.
type lister[L list] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follower lists and watches one resource, like client-go's Reflector: list, watch from there,
// watch again when a watch ends, and list again when the API server no longer knows the
// revision. A Reflector does not fit for three reasons. It keeps all decoded objects of a list
// before it delivers the first. It lists again whenever opening a watch fails, for example
// without permission. And its delays outlast its context.
type follower[L list, O object, V any] struct {
	resource
	client lister[L]
	table  *table[O, V]
	health *resourceHealth

	at    position
	round int
	pause wait.Backoff
}

// position is how far a follower has read.
type position struct {
	revision  string
	listed    bool // all objects at a revision
	succeeded bool // a watch has succeeded since
}

// run follows the resource until ctx is done. Each round starts with a list.
func (f *follower[L, O, V]) run(ctx context.Context) {
	var round context.Context
	for ctx.Err() == nil {
		if round == nil || round.Err() != nil {
			round, f.round = f.table.rounds.join(ctx)
			f.at = position{}
			f.resetPause()
		}
		err := f.follow(round)
		switch {
		case err == nil || round.Err() != nil:
			continue
		case isLost(err): // not a failure: a list has what was missed
			succeeded := f.at.succeeded
			f.at = position{}
			if succeeded {
				continue
			}
		case f.health.failed(err):
			f.resetPause() // the cause has changed, and may change again soon
		}
		select {
		case <-round.Done():
		case <-time.After(f.pause.Step()):
		}
	}
}

// resetPause resets the delay to a short one. It doubles with each retry.
func (f *follower[L, O, V]) resetPause() {
	f.pause = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: maxPause}
}

// follow lists if necessary, and watches once. It returns nil if the watch succeeded.
func (f *follower[L, O, V]) follow(ctx context.Context) error {
	if !f.at.listed {
		revision, err := f.list(ctx)
		if err != nil {
			return err
		}
		f.at = position{revision: revision, listed: true}
		f.resetPause()
	}
	return f.watch(ctx)
}

// list reads all objects page by page, and puts them into the table in one step. It returns the
// revision of the list.
func (f *follower[L, O, V]) list(ctx context.Context) (string, error) {
	var entries []entry[V]
	for opts := (metav1.ListOptions{Limit: pageSize, LabelSelector: f.selector}); ; {
		page, err := f.page(ctx, opts)
		if isLargePage(err) {
			opts.Limit /= 2
			continue
		}
		if err != nil {
			return "", err
		}
		opts.Limit = min(pageSize, opts.Limit+max(1, opts.Limit/4))
		err = meta.EachListItem(page, func(o runtime.Object) error {
			e, err := f.table.read(o, false)
			entries = append(entries, e)
			return err
		})
		if err != nil {
			return "", err
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			f.table.replace(entries, f.round)
			f.health.listed(len(entries))
			return page.GetResourceVersion(), nil
		}
	}
}

func (f *follower[L, O, V]) page(ctx context.Context, opts metav1.ListOptions) (L, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, errSilent)
	defer cancel()
	asking := ctx
	if opts.Limit > 1 {
		asking = bounded(ctx)
	}
	page, err := f.client.List(asking, opts)
	return page, f.requestError(ctx, "list", err)
}

// watch opens a watch and reads it to its end, which has a deadline.
func (f *follower[L, O, V]) watch(ctx context.Context) error {
	life := watchLife + rand.N(watchLife/2)
	seconds := int64(life.Seconds())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	overdue := time.AfterFunc(openTimeout, func() { cancel(errSilent) })
	defer overdue.Stop()

	w, err := f.client.Watch(ctx, metav1.ListOptions{
		ResourceVersion: f.at.revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds, LabelSelector: f.selector,
	})
	if w != nil {
		defer w.Stop()
	}
	if err := f.requestError(ctx, "watch", err); err != nil {
		return err
	}
	overdue.Reset(life + grace)
	f.health.opened()
	return f.events(ctx, w)
}

// events applies the events of a watch until it ends. A watch succeeded if it delivered an event
// or lasted; then the result is nil, because the next watch follows at once.
func (f *follower[L, O, V]) events(ctx context.Context, w watch.Interface) error {
	succeeded := false
	succeed := func() {
		if !succeeded {
			succeeded, f.at.succeeded = true, true
			f.resetPause()
			f.health.watching()
		}
	}
	lasted := time.NewTimer(lively)
	defer lasted.Stop()
	for {
		select {
		case <-ctx.Done():
			return f.ended(succeeded, context.Cause(ctx))
		case <-lasted.C:
			succeed()
		case event, more := <-w.ResultChan():
			if !more {
				return f.endedSilently(ctx, succeeded)
			}
			if err := f.event(event); err != nil {
				return f.ended(succeeded, err)
			}
			succeed()
		}
	}
}

// event applies one event, and advances the position.
func (f *follower[L, O, V]) event(event watch.Event) error {
	f.health.event(event.Type)
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("read event of %s: %w", f.name, err)
	}
	if event.Type != watch.Bookmark {
		if err := f.table.apply(event.Object, event.Type == watch.Deleted); err != nil {
			return err
		}
	}
	f.at.revision = m.GetResourceVersion()
	return nil
}

func (f *follower[L, O, V]) ended(succeeded bool, err error) error {
	if succeeded && !isLost(err) {
		return nil
	}
	return &requestError{verb: "watch", resource: f.resource, err: err}
}

// endedSilently returns why a watch was closed. client-go hides the error of a connection that
// cannot be opened in time; a list of one object reveals it.
func (f *follower[L, O, V]) endedSilently(ctx context.Context, succeeded bool) error {
	if succeeded || ctx.Err() != nil {
		return nil
	}
	if _, err := f.page(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	return f.ended(succeeded, errClosed)
}

// isLost reports whether the API server does not know the requested revision: not any more, or
// not yet, as after a restored backup.
func isLost(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Errors of requests for which the API server gives no reason.
var (
	errSilent = errors.New("no answer in time")
	errClosed = errors.New("the watch was closed as soon as it was opened")
)

// requestError adds verb and resource to the error of a request, and the reason if it timed out.
func (f *follower[L, O, V]) requestError(ctx context.Context, verb string, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	if err == nil {
		return nil
	}
	return &requestError{verb: verb, resource: f.resource, err: err}
}

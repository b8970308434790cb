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

// How long is waited for what.
const (
	pageTimeout = 30 * time.Second
	openTimeout = 10 * time.Second
	// watchLife is how long a watch is asked for, half as long again at most.
	watchLife = 6 * time.Minute
	// grace is how much later than the API server should have done it a watch is
	// ended here.
	grace = 15 * time.Second
	// lively is how long a watch lasts without a word until it is known not to have
	// failed.
	lively = time.Second
	// maxPause is the longest pause before what failed is tried again, up to a fifth
	// more: so long at most does the return of an API server go unnoticed.
	maxPause = 4 * time.Second
)

// pageSize and maxPage bound what of a list is in memory before it is converted. After
// a page that was too large, the next ones have fewer objects for a while.
const pageSize = 500

// resource is what is followed.
type resource struct {
	name  string
	group string // "" for the core group
	// selector is of labels; objects that it leaves out are not there.
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

// follower follows one resource. It does what client-go's Reflector does: list,
// watch from there, watch on when a watch ends, list anew when the API server no
// longer knows where the watch stood. It is its own because a Reflector holds all
// decoded objects of a list before it hands on the first, lists again whenever
// opening a watch fails (the verb is refused, say), and has pauses that outlive
// its context.
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
	revision string
	listed   bool // all that was there at a revision
	cameOn   bool // a watch did, since
}

// run follows the resource until ctx is done, in each round from a list on.
func (f *follower[L, O, V]) run(ctx context.Context) {
	var round context.Context
	for ctx.Err() == nil {
		if round == nil || round.Err() != nil {
			round, f.round = f.table.rounds.join(ctx)
			f.at = position{}
			f.rested()
		}
		err := f.follow(round)
		switch {
		case err == nil || round.Err() != nil:
			continue
		case isLost(err): // no failure: a list says what was missed
			cameOn := f.at.cameOn
			f.at = position{}
			if cameOn {
				continue
			}
		case f.health.failed(err):
			f.rested() // something has changed, and more may soon
		}
		select {
		case <-round.Done():
		case <-time.After(f.pause.Step()):
		}
	}
}

// rested makes the next pause a short one. Each further one is twice as long.
func (f *follower[L, O, V]) rested() {
	f.pause = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: maxPause}
}

// follow lists if need be, and watches once. It returns nil when that came on.
func (f *follower[L, O, V]) follow(ctx context.Context) error {
	if !f.at.listed {
		revision, err := f.list(ctx)
		if err != nil {
			return err
		}
		f.at = position{revision: revision, listed: true}
		f.rested()
	}
	return f.watch(ctx)
}

// list reads all objects, page by page, and says them in one step. It returns the
// revision at which they were all there.
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
	return page, f.asked(ctx, "list", err)
}

// watch opens a watch and reads it to its end. It ends by itself, at the latest
// when the API server should have ended it and did not.
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
	if err := f.asked(ctx, "watch", err); err != nil {
		return err
	}
	overdue.Reset(life + grace)
	f.health.opened()
	return f.events(ctx, w)
}

// events says what a watch brings, until it ends. It returns nil for a watch that
// came on: it brought news, or lasted. How such a one ends is no failure, as the
// next is opened at once.
func (f *follower[L, O, V]) events(ctx context.Context, w watch.Interface) error {
	cameOn := false
	comesOn := func() {
		if !cameOn {
			cameOn, f.at.cameOn = true, true
			f.rested()
			f.health.watching()
		}
	}
	lasted := time.NewTimer(lively)
	defer lasted.Stop()
	for {
		select {
		case <-ctx.Done():
			return f.ended(cameOn, context.Cause(ctx))
		case <-lasted.C:
			comesOn()
		case event, more := <-w.ResultChan():
			if !more {
				return f.endedSilently(ctx, cameOn)
			}
			if err := f.event(event); err != nil {
				return f.ended(cameOn, err)
			}
			comesOn()
		}
	}
}

// event says one event, and moves on to it.
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

func (f *follower[L, O, V]) ended(cameOn bool, err error) error {
	if cameOn && !isLost(err) {
		return nil
	}
	return &requestError{verb: "watch", resource: f.resource, err: err}
}

// endedSilently is why a watch ended. client-go makes a watch that ends at once of
// a connection that can't be made in time, and keeps the reason to itself; a small
// list brings it out.
func (f *follower[L, O, V]) endedSilently(ctx context.Context, cameOn bool) error {
	if cameOn || ctx.Err() != nil {
		return nil
	}
	if _, err := f.page(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	return f.ended(cameOn, errClosed)
}

// isLost tells whether the API server does not know the revision from which it was
// asked to go on: any more, or yet, as after a restored backup.
func isLost(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Why a request failed where the API server does not say.
var (
	errSilent = errors.New("no answer in time")
	errClosed = errors.New("the watch was closed as soon as it was opened")
)

// asked says of the error of a request what was asked for, and where the request
// was given up here, why.
func (f *follower[L, O, V]) asked(ctx context.Context, verb string, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	if err == nil {
		return nil
	}
	return &requestError{verb: verb, resource: f.resource, err: err}
}

package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Reasons of Events that are not problems.
const (
	Mapped             coe.Reason = "Mapped"             // its problems are solved
	AnnotationRestored coe.Reason = "AnnotationRestored" // someone else had changed it
)

const (
	// grace is the time before a new problem is reported. While a cluster starts, many problems
	// solve themselves.
	grace = time.Second
	// retell is the interval at which a persistent problem is reported again. The API server
	// deletes Events after an hour.
	retell = 30 * time.Minute
	// pace is the average interval between Events about one object, after the first burst
	// Events; and between Events about its annotation.
	pace  = time.Minute
	burst = 10
	// maxMessage is the maximum length of a message (events.k8s.io, "note").
	maxMessage = 1024
)

// object is a pod, a service, a network policy, a namespace or an EgressIP with problems, now or before.
type object struct {
	ref      corev1.ObjectReference
	problems map[coe.Reason]*problem
	once     map[coe.Reason]string        // messages to write once
	series   map[coe.Reason]*corev1.Event // the last Event of a reason
	warned   bool                         // a problem was written, and Mapped not since
	limiter  *rate.Limiter                // for all Events about the object

	failures  int // since the last success
	notBefore time.Time
}

// problem is a problem of an object.
type problem struct {
	message string
	silent  bool
	since   time.Time
	sent    time.Time // time of the last Event; zero: none yet
}

// draft is an Event to write.
type draft struct {
	ref     corev1.ObjectReference
	last    *corev1.Event // the last Event of the reason, or nil
	kind    string        // corev1.EventTypeWarning or EventTypeNormal
	reason  coe.Reason
	message string
}

func newObject(ref corev1.ObjectReference) *object {
	return &object{
		ref:      ref,
		problems: map[coe.Reason]*problem{},
		once:     map[coe.Reason]string{},
		series:   map[coe.Reason]*corev1.Event{},
		limiter:  rate.NewLimiter(rate.Every(pace), burst),
	}
}

// set replaces the problems.
func (o *object) set(now map[coe.Reason]*problem) {
	for reason, p := range now {
		before := o.problems[reason]
		if before == nil || before.silent != p.silent {
			continue
		}
		p.since = before.since
		if before.message == p.message {
			p.sent = before.sent
		}
	}
	o.problems = now
}

// next returns the Event to write about the object now, or the delay after which to ask again;
// 0 for never.
func (o *object) next(now time.Time) (d draft, after time.Duration, due bool) {
	d, at, found := o.first()
	if !found {
		return draft{}, 0, false
	}
	if at.Before(o.notBefore) {
		at = o.notBefore
	}
	if after := at.Sub(now); after > 0 {
		return draft{}, after, false
	}
	if o.limiter.TokensAt(now) < 1 {
		return draft{}, pace, false
	}
	return d, 0, true
}

// first returns the Event that is due first, and when.
func (o *object) first() (d draft, at time.Time, found bool) {
	offer := func(kind string, reason coe.Reason, message string, when time.Time) {
		if !found || when.Before(at) {
			d, at, found = draft{o.ref, o.series[reason], kind, reason, clip(message)}, when, true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(o.once)) {
		var when time.Time
		if last := o.series[reason]; last != nil {
			when = last.LastTimestamp.Add(pace)
		}
		offer(corev1.EventTypeWarning, reason, o.once[reason], when)
	}
	for _, reason := range slices.Sorted(maps.Keys(o.problems)) {
		if p := o.problems[reason]; !p.silent {
			if reason == coe.NotEnforced && !p.sent.IsZero() {
				continue // the owner's choice, which may last for years
			}
			offer(corev1.EventTypeWarning, reason, p.message, p.due())
		}
	}
	if !o.unmapped() && o.warned {
		offer(corev1.EventTypeNormal, Mapped, "the problem is solved: the object is mapped now", time.Time{})
	}
	return d, at, found
}

// due returns the time of the next Event about the problem.
func (p *problem) due() time.Time {
	if p.sent.IsZero() {
		return p.since.Add(grace)
	}
	return p.sent.Add(retell)
}

// newEvent returns the first Event of a draft. Events about objects without a namespace are in the namespace default.
func newEvent(d draft, now time.Time, instance string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(d.ref.Namespace, metav1.NamespaceDefault), Name: util.GenerateEventName(d.ref.Name, now.UnixNano())},
		InvolvedObject:      d.ref,
		Type:                d.kind,
		Reason:              string(d.reason),
		Message:             d.message,
		Source:              corev1.EventSource{Component: component, Host: instance},
		ReportingController: component,
		ReportingInstance:   instance,
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
	}
}

// again returns the repetition of an Event.
func again(last *corev1.Event, now time.Time) *corev1.Event {
	e := last.DeepCopy()
	e.Count++
	e.LastTimestamp = metav1.NewTime(now)
	return e
}

// clip shortens a message to the maximum of an Event.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// sent records that an Event was written, or, if e is nil, that it never can be.
func (o *object) sent(d draft, e *corev1.Event, now time.Time) {
	o.limiter.AllowN(now, 1)
	o.failures, o.notBefore = 0, time.Time{}
	if e != nil {
		o.series[d.reason] = e
	}
	switch d.reason {
	case Mapped:
		o.warned = false
	case AnnotationRestored:
		delete(o.once, d.reason)
	default:
		o.warned = o.warned || e != nil && d.reason != coe.NotEnforced
		if p := o.problems[d.reason]; p != nil && clip(p.message) == d.message {
			p.sent = now
		}
	}
}

// unmapped reports whether a problem keeps the object from being mapped.
func (o *object) unmapped() bool {
	for reason := range o.problems {
		if reason != coe.NotEnforced {
			return true
		}
	}
	return false
}

// idle reports whether there is nothing to write about the object.
func (o *object) idle() bool {
	return len(o.problems)+len(o.once) == 0 && !o.warned
}

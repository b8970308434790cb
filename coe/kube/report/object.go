package report

import (
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

// Reasons of Events that are no problems.
const (
	Mapped             coe.Reason = "Mapped"             // what kept it from being mapped is gone
	AnnotationRestored coe.Reason = "AnnotationRestored" // somebody else had changed it
)

const (
	// grace is how long a problem may heal by itself before it is told: while a
	// cluster comes up, what is needed arrives in any order.
	grace = time.Second
	// retell is when a problem that persists is told again. The API server forgets
	// Events after an hour.
	retell = 30 * time.Minute
	// pace is how often one object is told of, on average, after its first burst
	// Events; and how often its annotation.
	pace  = time.Minute
	burst = 10
	// maxMessage is how long a message may be (events.k8s.io, "note").
	maxMessage = 1024
)

// object is a pod, a service, a network policy or a namespace of which there is, or was, something to tell.
type object struct {
	ref      corev1.ObjectReference
	problems map[coe.Reason]*problem
	once     map[coe.Reason]string        // messages to be told one time
	series   map[coe.Reason]*corev1.Event // the last Event of a reason
	warned   bool                         // and Mapped was not told since
	limiter  *rate.Limiter                // of all that is told of it

	failures  int // since something was told
	notBefore time.Time
}

// problem is what is the matter with an object.
type problem struct {
	message string
	silent  bool
	since   time.Time
	told    time.Time // zero: not yet
}

// saying is an Event to be written.
type saying struct {
	ref     corev1.ObjectReference
	last    *corev1.Event // of the reason; nil when there was none
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
			p.told = before.told
		}
	}
	o.problems = now
}

// next is what is to be told of the object now. If that is nothing, next tells
// after what time it is to be asked again; 0 for not.
func (o *object) next(now time.Time) (s saying, after time.Duration, due bool) {
	s, at, found := o.first()
	if !found {
		return saying{}, 0, false
	}
	if at.Before(o.notBefore) {
		at = o.notBefore
	}
	if after := at.Sub(now); after > 0 {
		return saying{}, after, false
	}
	if o.limiter.TokensAt(now) < 1 {
		return saying{}, pace, false
	}
	return s, 0, true
}

// first is what is to be told next, and when.
func (o *object) first() (s saying, at time.Time, found bool) {
	offer := func(kind string, reason coe.Reason, message string, when time.Time) {
		if !found || when.Before(at) {
			s, at, found = saying{o.ref, o.series[reason], kind, reason, clip(message)}, when, true
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
			if reason == coe.NotEnforced && !p.told.IsZero() {
				continue // a choice of its owner, which may last for years
			}
			offer(corev1.EventTypeWarning, reason, p.message, p.due())
		}
	}
	if !o.unmapped() && o.warned {
		offer(corev1.EventTypeNormal, Mapped, "what kept it from being mapped is gone: it is mapped now", time.Time{})
	}
	return s, at, found
}

// due is when the problem is to be told, again if it was.
func (p *problem) due() time.Time {
	if p.told.IsZero() {
		return p.since.Add(grace)
	}
	return p.told.Add(retell)
}

// newEvent is an Event that says it for the first time.
func newEvent(s saying, now time.Time, instance string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: s.ref.Namespace, Name: util.GenerateEventName(s.ref.Name, now.UnixNano())},
		InvolvedObject:      s.ref,
		Type:                s.kind,
		Reason:              string(s.reason),
		Message:             s.message,
		Source:              corev1.EventSource{Component: component, Host: instance},
		ReportingController: component,
		ReportingInstance:   instance,
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
	}
}

// again is an Event that says once more what an earlier one has said.
func again(last *corev1.Event, now time.Time) *corev1.Event {
	e := last.DeepCopy()
	e.Count++
	e.LastTimestamp = metav1.NewTime(now)
	return e
}

// clip shortens a message to what an Event can hold.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// told notes that something was told, or, with a nil Event, that it never can be.
func (o *object) told(s saying, e *corev1.Event, now time.Time) {
	o.limiter.AllowN(now, 1)
	o.failures, o.notBefore = 0, time.Time{}
	if e != nil {
		o.series[s.reason] = e
	}
	switch s.reason {
	case Mapped:
		o.warned = false
	case AnnotationRestored:
		delete(o.once, s.reason)
	default:
		o.warned = o.warned || e != nil && s.reason != coe.NotEnforced
		if p := o.problems[s.reason]; p != nil && clip(p.message) == s.message {
			p.told = now
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

// idle tells that there is nothing to tell of the object.
func (o *object) idle() bool {
	return len(o.problems)+len(o.once) == 0 && !o.warned
}

package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Status tells how the source fares.
type Status struct {
	// Reachable says that the API server answers.
	Reachable bool
	// Synced says that every resource was listed once, but for an optional one.
	Synced    bool
	Resources []ResourceStatus
}

// ResourceStatus tells how following one resource fares.
type ResourceStatus struct {
	Resource string // as in "pods"
	Synced   bool   // listed once
	Watching bool   // what changes is told of at once
	// Since is when Watching turned, or following began.
	Since time.Time
	// Problem is what keeps the resource from being followed, and what to do; empty
	// while nothing does.
	Problem string
	// Restarts counts how often a watch was opened after another had ended. An API
	// server ends each after some minutes.
	Restarts int
}

// patience is how long a problem lasts before it is logged. An API server that
// starts answers for a moment that nobody has rights.
const patience = 2 * time.Second

// health is how the source fares. It logs when that has turned, and not what is
// tried meanwhile.
type health struct {
	log     *slog.Logger
	metrics *metrics

	mu        sync.Mutex
	resources []*resourceHealth
}

// resourceHealth is how following one resource fares.
type resourceHealth struct {
	*health
	resource resource
	watches  int
	problem  problem   // none while it fares well
	since    time.Time // there is a problem of its kind
	told     bool      // it was logged
	status   ResourceStatus
}

func newHealth(log *slog.Logger, m *metrics) *health {
	return &health{log: log, metrics: m}
}

// of adds a resource.
func (h *health) of(r resource) *resourceHealth {
	rh := &resourceHealth{health: h, resource: r, status: ResourceStatus{Resource: r.name, Since: time.Now()}}
	h.resources = append(h.resources, rh)
	h.metrics.add(r.name)
	return rh
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{Reachable: true, Synced: true}
	for _, r := range h.resources {
		s.Resources = append(s.Resources, r.status)
		if r.resource.optional {
			continue
		}
		s.Synced = s.Synced && r.status.Synced
		s.Reachable = s.Reachable && r.problem.kind != unreachable && (r.status.Synced || r.problem.kind != none)
	}
	return s
}

// listed notes that the resource was listed.
func (r *resourceHealth) listed(objects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Synced {
		r.log.Info("listed anew", "resource", r.resource.name, "objects", objects)
	} else {
		r.log.Info("listed", "resource", r.resource.name, "objects", objects)
	}
	r.status.Synced = true
}

// opened notes that a watch was opened. Whether it comes on is not known yet.
func (r *resourceHealth) opened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches++
	if r.watches > 1 {
		r.status.Restarts++
		r.metrics.restarts.WithLabelValues(r.resource.name).Inc()
	}
}

// event counts an event.
func (r *resourceHealth) event(kind watch.EventType) {
	r.metrics.eventsOf(r.resource.name, kind).Inc()
}

// watching notes that the resource is followed.
func (r *resourceHealth) watching() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(true)
	was, told := r.problem.kind, r.told
	r.problem, r.told, r.status.Problem = problem{}, false, ""
	switch {
	case !told || was.shared() && r.othersTold(was):
	case was.shared():
		r.log.Info("kubernetes is followed again")
	default:
		r.log.Info("kubernetes is followed again", "resource", r.resource.name)
	}
}

// failed notes that the resource can't be followed now, and tells whether for
// another reason than before.
func (r *resourceHealth) failed(err error) (turned bool) {
	p := explain(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(false)
	turned = p.kind != r.problem.kind
	if turned {
		r.since, r.told = time.Now(), false
	}
	r.problem, r.status.Problem = p, p.text
	if !r.told && time.Since(r.since) >= patience {
		r.tell(p)
	}
	return turned
}

// tell logs a problem, once where all resources share it.
func (r *resourceHealth) tell(p problem) {
	r.told = true
	if p.kind.shared() && r.othersTold(p.kind) {
		return
	}
	level := slog.LevelWarn
	if p.kind.needsPerson() {
		level = slog.LevelError
	}
	r.log.Log(context.Background(), level, "kubernetes can't be followed; trying again", "resource", r.resource.name, "err", p.text)
}

// turn notes whether the resource is watched.
func (r *resourceHealth) turn(watching bool) {
	if r.status.Watching != watching {
		r.status.Watching, r.status.Since = watching, time.Now()
	}
	r.metrics.connected.WithLabelValues(r.resource.name).Set(oneIf(watching))
}

// othersTold tells whether another resource has a problem of the kind that was
// logged.
func (r *resourceHealth) othersTold(kind problemKind) bool {
	return slices.ContainsFunc(r.resources, func(o *resourceHealth) bool {
		return o != r && o.problem.kind == kind && o.told
	})
}

package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Status is the state of a Watcher.
type Status struct {
	// Reachable is true if the API server answers.
	Reachable bool
	// Synced is true if every resource was listed, except optional ones.
	Synced    bool
	Resources []ResourceStatus
}

// ResourceStatus is the state of one resource.
type ResourceStatus struct {
	Resource string // as in "pods"
	Synced   bool   // listed once
	Watching bool   // a watch is open
	// Since is when Watching changed, or the Watcher started.
	Since time.Time
	// Problem is why the resource cannot be followed, and what to do; empty if it can.
	Problem string
	// Restarts counts watches that were opened after another watch. An API server ends each
	// watch after some minutes.
	Restarts int
}

// patience is how long a problem must last before it is logged. An API server that starts
// denies all requests for a moment.
const patience = 2 * time.Second

// health is the state of all resources. It logs changes of state, not retries.
type health struct {
	log     *slog.Logger
	metrics *metrics

	mu        sync.Mutex
	resources []*resourceHealth
}

// resourceHealth is the state of one resource.
type resourceHealth struct {
	*health
	resource resource
	watches  int
	problem  problem   // zero if there is none
	since    time.Time // start of this kind of problem
	logged   bool      // it was logged
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

// listed records that the resource was listed.
func (r *resourceHealth) listed(objects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Synced {
		r.log.Info("listed again", "resource", r.resource.name, "objects", objects)
	} else {
		r.log.Info("listed", "resource", r.resource.name, "objects", objects)
	}
	r.status.Synced = true
}

// opened records that a watch was opened. It may still fail.
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

// watching records that the watch has succeeded.
func (r *resourceHealth) watching() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setWatching(true)
	was, logged := r.problem.kind, r.logged
	r.problem, r.logged, r.status.Problem = problem{}, false, ""
	switch {
	case !logged || was.shared() && r.othersLogged(was):
	case was.shared():
		r.log.Info("watching Kubernetes again")
	default:
		r.log.Info("watching Kubernetes again", "resource", r.resource.name)
	}
}

// failed records that the resource cannot be followed, and reports whether the kind of problem
// has changed.
func (r *resourceHealth) failed(err error) (changed bool) {
	p := explain(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setWatching(false)
	changed = p.kind != r.problem.kind
	if changed {
		r.since, r.logged = time.Now(), false
	}
	r.problem, r.status.Problem = p, p.text
	if !r.logged && time.Since(r.since) >= patience {
		r.logProblem(p)
	}
	return changed
}

// logProblem logs a problem, once if all resources share it.
func (r *resourceHealth) logProblem(p problem) {
	r.logged = true
	if p.kind.shared() && r.othersLogged(p.kind) {
		return
	}
	level := slog.LevelWarn
	if p.kind.needsPerson() {
		level = slog.LevelError
	}
	r.log.Log(context.Background(), level, "cannot watch Kubernetes; retrying", "resource", r.resource.name, "err", p.text)
}

// setWatching records whether the resource is watched.
func (r *resourceHealth) setWatching(watching bool) {
	if r.status.Watching != watching {
		r.status.Watching, r.status.Since = watching, time.Now()
	}
	r.metrics.connected.WithLabelValues(r.resource.name).Set(oneIf(watching))
}

// othersLogged reports whether the same kind of problem was logged for another resource.
func (r *resourceHealth) othersLogged(kind problemKind) bool {
	return slices.ContainsFunc(r.resources, func(o *resourceHealth) bool {
		return o != r && o.problem.kind == kind && o.logged
	})
}

// Package report tells Kubernetes what the bridge knows of its pods: one
// annotation a pod, which says what interfaces and addresses it has, and Events,
// which say why a pod or a service can't be mapped and what to do. Both are for
// people and for other tools. Nothing of the bridge waits for them or reads them
// back, but an annotation that somebody else has changed is put back.
//
// It writes what the Store says, and knows neither how that was chosen nor how it
// reached the Store. Only the bridge that leads runs a Reporter.
package report

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// component is who the API server is told that writes.
const component = "coe-bridge"

// Config says how much is written, and how fast.
type Config struct {
	// AnnotateQPS is how many annotations are written in a second; 0: none are, and
	// those that are there stay; +Inf: as many as the API server takes.
	AnnotateQPS float64
	// Burst is how many are written at once after a rest. Default a second's.
	Burst int
	// Workers is how many annotations are under way at a time. Default 16.
	Workers int
	// EventQPS is how many Events are written in a second. Default 20.
	EventQPS float64
	// Timeout bounds one request. Default 10 s.
	Timeout time.Duration
	// MTU is what annotations say of interfaces; 0: nothing.
	MTU int
}

func (c *Config) setDefaults() {
	if c.Burst == 0 {
		c.Burst = max(1, int(min(c.AnnotateQPS, 1<<20)))
	}
	if c.Workers == 0 {
		c.Workers = 16
	}
	if c.EventQPS == 0 {
		c.EventQPS = 20
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
}

// Reporter reports pods and services to Kubernetes while Run runs. It may be told
// of them at any time.
type Reporter struct {
	annotator *annotator
	events    *events
	log       *slog.Logger
}

// New makes a Reporter that writes with clients of the given configuration, whose
// limits of requests do not count.
func New(cfg Config, api *rest.Config, store *coe.Store, r prometheus.Registerer, log *slog.Logger) (*Reporter, error) {
	if !(cfg.AnnotateQPS >= 0) {
		return nil, fmt.Errorf("annotate %v pods a second: give 0 for none, inf for no limit, or how many", cfg.AnnotateQPS)
	}
	cfg.setDefaults()
	c, err := newClient(api)
	if err != nil {
		return nil, fmt.Errorf("make client for annotations and events: %w", err)
	}
	return newReporter(cfg, c, c, store, r, log), nil
}

func newReporter(cfg Config, p patcher, s sender, store *coe.Store, r prometheus.Registerer, log *slog.Logger) *Reporter {
	e := newEvents(cfg, s, store, log)
	a := newAnnotator(cfg, p, store, e.restored, log)
	register(r, a, e)
	return &Reporter{annotator: a, events: e, log: log}
}

// Run writes until ctx is done: first what is not as the Store has it, then what
// changes. It may be run again.
func (r *Reporter) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(r.log.Handler())) // what client-go has to tell
	var parts sync.WaitGroup
	parts.Go(func() { r.annotator.run(ctx) })
	parts.Go(func() { r.events.run(ctx) })
	parts.Wait()
}

// Seen tells what the API server says of a pod, after the Store was told of it.
// It is what a kube.Source is to call.
func (r *Reporter) Seen(p kube.PodSeen) { r.annotator.seen(p) }

// Leased tells that leases of these pods have changed in the Store.
func (r *Reporter) Leased(uids ...string) { r.annotator.leased(uids...) }

// Problems tells all that can't be mapped, or is rejected, in a namespace now.
func (r *Reporter) Problems(namespace string, all []coe.Problem) {
	r.events.problems(namespace, all)
	for _, p := range all {
		if p.Kind == kindPod && p.Reason != coe.Waiting && p.Reason != coe.NotEnforced {
			r.annotator.leased(p.UID) // it may be refused
		}
	}
}

// Troubles say, for people, what keeps the API server from taking what is
// reported, and what to do; none while it takes it.
func (r *Reporter) Troubles() []string {
	var all []string
	for _, t := range []*trouble{r.annotator.trouble, r.events.trouble} {
		if m := t.message(); m != "" {
			all = append(all, m)
		}
	}
	return all
}

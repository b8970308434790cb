// Package report reports the state of pods to Kubernetes: one annotation per pod, with its
// interfaces and addresses, a condition of pods that have it as readiness gate, and Events about pods and services that cannot be mapped, with the
// reason and the fix. They are for people and other tools. The bridge neither waits for them
// nor reads them, but restores an annotation that someone else has changed.
//
// The package reports what the Store has, and does not know how that was chosen. Only the
// leader runs a Reporter.
package report

import (
	"cmp"
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
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// component is the name of the bridge as a client of the API server.
const component = "coe-bridge"

// Config limits what is written, and how fast.
type Config struct {
	// AnnotateQPS is the maximum number of annotations per second. 0 disables annotations, and
	// existing ones stay; +Inf means no limit.
	AnnotateQPS float64
	// Burst is the maximum number of annotations at once. Default: the annotations of one second.
	Burst int
	// Workers is the number of concurrent annotation requests. Default 16.
	Workers int
	// EventQPS is the maximum number of Events per second. Default 20.
	EventQPS float64
	// Timeout bounds one request. Default 10 s.
	Timeout time.Duration
	// MTU is the MTU of interfaces in annotations; 0 leaves it out.
	MTU int
}

func (c *Config) setDefaults() {
	c.Burst = cmp.Or(c.Burst, max(1, int(min(c.AnnotateQPS, 1<<20))))
	c.Workers = cmp.Or(c.Workers, 16)
	c.EventQPS = cmp.Or(c.EventQPS, 20)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
}

// Reporter reports pods and services to Kubernetes while Run runs. Its other methods may be
// called at any time, concurrently.
type Reporter struct {
	annotator *annotator
	events    *events
	log       *slog.Logger
}

// New creates a Reporter for an API server. It ignores the request limits of api.
func New(cfg Config, api *rest.Config, store *state.Store, r prometheus.Registerer, log *slog.Logger) (*Reporter, error) {
	if !(cfg.AnnotateQPS >= 0) {
		return nil, fmt.Errorf("invalid limit of %v annotations per second: use 0 for none, inf for no limit, or a positive number", cfg.AnnotateQPS)
	}
	cfg.setDefaults()
	c, err := newClient(api)
	if err != nil {
		return nil, fmt.Errorf("create the client for annotations and events: %w", err)
	}
	return newReporter(cfg, c, c, store, r, log), nil
}

func newReporter(cfg Config, p patcher, s sender, store *state.Store, r prometheus.Registerer, log *slog.Logger) *Reporter {
	e := newEvents(cfg, s, store, log)
	a := newAnnotator(cfg, p, store, e.restored, log)
	register(r, a, e)
	return &Reporter{annotator: a, events: e, log: log}
}

// Run writes until ctx is done: first what differs from the Store, then changes. It may be
// called again afterwards.
func (r *Reporter) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(r.log.Handler())) // for messages of client-go
	var parts sync.WaitGroup
	parts.Go(func() { r.annotator.run(ctx) })
	parts.Go(func() { r.events.run(ctx) })
	parts.Wait()
}

// Seen reports the state of a pod at the API server, after the Store was updated. It fits
// kube.Config.Observe.
func (r *Reporter) Seen(p kube.PodSeen) { r.annotator.seen(p) }

// Leased reports that leases of pods have changed in the Store.
func (r *Reporter) Leased(uids ...string) { r.annotator.leased(uids...) }

// Confirmed reports whether the backend has confirmed all interfaces of a pod.
func (r *Reporter) Confirmed(uid string, confirmed bool) { r.annotator.confirm(uid, confirmed) }

// Problems reports all current problems of a namespace.
func (r *Reporter) Problems(namespace string, all []coe.Problem) {
	r.events.problems(namespace, all)
	for _, p := range all {
		if p.Kind == kindPod && p.Reason != coe.Waiting && p.Reason != coe.NotEnforced {
			r.annotator.leased(p.UID) // it may be refused
		}
	}
}

// Troubles returns the reasons why the API server rejects annotations or Events, and what to do;
// none while it accepts them.
func (r *Reporter) Troubles() []string {
	var all []string
	for _, t := range []*trouble{r.annotator.trouble, r.events.trouble} {
		if m := t.message(); m != "" {
			all = append(all, m)
		}
	}
	return all
}

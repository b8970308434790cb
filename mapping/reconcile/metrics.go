package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Metrics are the loop's, one set for all backends of a process.
type Metrics struct {
	registerer prometheus.Registerer
	calls      *prometheus.HistogramVec
	changes    *prometheus.CounterVec
	batches    *prometheus.HistogramVec
	rests      *prometheus.CounterVec
}

// NewMetrics registers the loop's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		registerer: r,
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "coe_bridge_backend_call_duration_seconds",
			Help:    "Duration of calls to the backend, by call (read, write, observe) and result (ok, error).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"backend", "call", "result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_backend_changes_total",
			Help: "Changes that the backend has taken, by kind and verb (create, update, delete).",
		}, []string{"backend", "kind", "verb"}),
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "coe_bridge_batch_scopes",
			Help:    "Scopes that were compared and written together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"backend"}),
		rests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_backend_rest_seconds_total",
			Help: "Time after writes in which nothing more is written, because changes come fast or, with OVN, because ovn-northd is slow.",
		}, []string{"backend"}),
	}
	r.MustRegister(m.calls, m.changes, m.batches, m.rests)
	return m
}

func (m *Metrics) of(backend string) *metrics {
	return &metrics{m: m, backend: backend, batch: m.batches.WithLabelValues(backend), rest: m.rests.WithLabelValues(backend)}
}

// observe registers what is read off a loop at the time of a scrape.
func (m *Metrics) observe(l *Loop) {
	labels := prometheus.Labels{"backend": l.peer.Name}
	gauge := func(name, help string, value func(Status) float64) {
		m.registerer.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return value(l.status()) }))
	}
	gauge("coe_bridge_in_sync", "1 if the backend has everything that is wanted, else 0.", func(s Status) float64 {
		return oneIf(s.InSync)
	})
	gauge("coe_bridge_backend_up", "1 if the backend answered its last call, else 0.", func(s Status) float64 {
		return oneIf(s.Peer.OK)
	})
	gauge("coe_bridge_scopes_behind", "Scopes whose wanted model is not in the backend yet.", func(s Status) float64 {
		n := 0.0
		for _, one := range s.Scopes {
			n += oneIf(!one.InSync)
		}
		return n
	})
	gauge("coe_bridge_oldest_behind_seconds", "Age of the oldest change that is not in the backend yet.", oldest)
	gauge("coe_bridge_problems", "Objects that cannot be mapped, or that the backend rejects.", func(s Status) float64 {
		return float64(s.count(func(p coe.Problem) bool { return p.Reason != coe.NotEnforced }))
	})
	gauge("coe_bridge_not_enforced", "Objects with settings that are accepted and not enforced.", func(s Status) float64 {
		return float64(s.count(func(p coe.Problem) bool { return p.Reason == coe.NotEnforced }))
	})
}

// count returns the number of problems for which is returns true.
func (s *Status) count(is func(coe.Problem) bool) (n int) {
	for i := range s.Scopes {
		for _, p := range s.Scopes[i].Problems {
			if is(p) {
				n++
			}
		}
	}
	return n
}

func oldest(s Status) float64 {
	var age time.Duration
	for _, one := range s.Scopes {
		if !one.Behind.IsZero() {
			age = max(age, time.Since(one.Behind))
		}
	}
	return age.Seconds()
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// metrics are the metrics of one backend.
type metrics struct {
	m       *Metrics
	backend string
	batch   prometheus.Observer
	rest    prometheus.Counter
}

func (m *metrics) observe(call string, begun time.Time, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.m.calls.WithLabelValues(m.backend, call, result).Observe(time.Since(begun).Seconds())
}

func (m *metrics) changed(changes []netvirt.Change) {
	type label struct {
		kind netvirt.Kind
		verb string
	}
	counts := map[label]int{}
	for _, c := range changes {
		counts[label{c.Key().Kind, c.Verb()}]++
	}
	for l, n := range counts {
		m.m.changes.WithLabelValues(m.backend, l.kind.String(), l.verb).Add(float64(n))
	}
}

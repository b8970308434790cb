package report

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type annotatorMetrics struct {
	patches *prometheus.CounterVec
	lag     prometheus.Histogram
}

func newAnnotatorMetrics() annotatorMetrics {
	return annotatorMetrics{
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_annotation_patches_total",
			Help: "Patches of pod annotations, by result (ok, gone, rejected, forbidden, unauthorized, unavailable).",
		}, []string{"result"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "coe_bridge_annotation_lag_seconds",
			Help:    "Time from a change of a pod's lease or annotation until the annotation is correct.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18),
		}),
	}
}

func newEventsCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coe_bridge_events_total",
		Help: "Kubernetes Events, by result: sent, or dropped because the API server rejects them.",
	}, []string{"result"})
}

// register registers the metrics of both parts.
func register(r prometheus.Registerer, a *annotator, e *events) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	r.MustRegister(a.metrics.patches, a.metrics.lag, e.counter)
	gauge("coe_bridge_annotations_behind", "Pods whose annotation is not yet known to be correct.", func() float64 {
		n, _ := a.behind()
		return float64(n)
	})
	gauge("coe_bridge_annotations_oldest_behind_seconds", "Age of the oldest change that is not yet in an annotation.", func() float64 {
		_, oldest := a.behind()
		if oldest.IsZero() {
			return 0
		}
		return time.Since(oldest).Seconds()
	})
	gauge("coe_bridge_events_behind", "Objects for which an Event may have to be written.", func() float64 {
		return float64(e.behind())
	})
}

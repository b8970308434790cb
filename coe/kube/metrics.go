package kube

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"
)

type metrics struct {
	connected *prometheus.GaugeVec
	restarts  *prometheus.CounterVec
	events    *prometheus.CounterVec
}

// newMetrics creates the metrics, and registers them if r is not nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_kubernetes_connected",
			Help: "1 while a resource of the API server is watched, otherwise 0.",
		}, []string{"resource"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_kubernetes_watch_restarts_total",
			Help: "Watches that were opened after another watch, by resource.",
		}, []string{"resource"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_kubernetes_events_total",
			Help: "Events received from watches, by resource and type (added, modified, deleted, bookmark, error).",
		}, []string{"resource", "type"}),
	}
	if r != nil {
		r.MustRegister(m.connected, m.restarts, m.events)
	}
	return m
}

// add initialises the series of a resource.
func (m *metrics) add(resource string) {
	m.connected.WithLabelValues(resource)
	m.restarts.WithLabelValues(resource)
	for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		m.eventsOf(resource, kind)
	}
}

// eventsOf returns the counter of a resource's events of one type.
func (m *metrics) eventsOf(resource string, kind watch.EventType) prometheus.Counter {
	return m.events.WithLabelValues(resource, strings.ToLower(string(kind)))
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

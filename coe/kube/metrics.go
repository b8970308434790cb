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

// newMetrics registers the source's metrics, if anybody takes them.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_kubernetes_connected",
			Help: "1 while a resource of the API server is watched, else 0.",
		}, []string{"resource"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_kubernetes_watch_restarts_total",
			Help: "Watches opened after another had ended, by resource.",
		}, []string{"resource"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_kubernetes_events_total",
			Help: "Events that watches brought, by resource and type (added, modified, deleted, bookmark, error).",
		}, []string{"resource", "type"}),
	}
	if r != nil {
		r.MustRegister(m.connected, m.restarts, m.events)
	}
	return m
}

// add makes a resource's series there are from the start.
func (m *metrics) add(resource string) {
	m.connected.WithLabelValues(resource)
	m.restarts.WithLabelValues(resource)
	for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		m.eventsOf(resource, kind)
	}
}

// eventsOf counts a resource's events of one type.
func (m *metrics) eventsOf(resource string, kind watch.EventType) prometheus.Counter {
	return m.events.WithLabelValues(resource, strings.ToLower(string(kind)))
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

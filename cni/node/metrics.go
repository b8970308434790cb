package node

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	joined  prometheus.Gauge
	changes prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		joined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_node_joined", Help: "Whether the node has its own place in the network of the pods: 1 if so.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_agent_node_changes_total",
			Help: "Times that something of the node's place was made or mended: link, addresses, routes, rules, forwarding, port.",
		}),
	}
	registry.MustRegister(m.joined, m.changes)
	return m
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

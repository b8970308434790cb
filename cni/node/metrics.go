package node

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	joined    prometheus.Gauge
	unreached prometheus.Gauge
	changes   prometheus.Counter

	egressWays, egressOwned prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		joined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_node_joined", Help: "1 if the node itself is connected to the pod network, otherwise 0.",
		}),
		unreached: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_node_unreached_pods",
			Help: "Pods on this node that it does not reach in isolated namespaces: their address is not unique, in no pool, or of another family. The log names them.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_agent_node_changes_total",
			Help: "Parts of the node's own connection that were created or repaired: link, addresses, routes, rules, forwarding, port. Node ports of services and host ports do not count.",
		}),
		egressWays: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_egress_links", Help: "EgressIPs for which the node has a link: it translates to their addresses, or prepares to.",
		}),
		egressOwned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_egress_addresses", Help: "Egress addresses that the NICs of the node have: it holds these EgressIPs.",
		}),
	}
	registry.MustRegister(m.joined, m.unreached, m.changes, m.egressWays, m.egressOwned)
	return m
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

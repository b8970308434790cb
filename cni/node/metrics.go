package node

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	joined    prometheus.Gauge
	unreached prometheus.Gauge
	changes   prometheus.Counter
	ports     prometheus.Gauge
	ownPorts  prometheus.Gauge
	hostPorts prometheus.Gauge
	// unreadable counts entries of host ports.
	unreadable prometheus.Gauge

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
		ports: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_node_ports", Help: "Node ports of services on which the node answers.",
		}),
		ownPorts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_own_ports",
			Help: "Ports of services to which the node leads only its own programs, by the address that they ask: cluster addresses with internalTrafficPolicy Local, and addresses of nodes with externalTrafficPolicy Local.",
		}),
		hostPorts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_host_ports", Help: "Host ports of pods on which the node answers.",
		}),
		unreadable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_host_ports_unreadable",
			Help: "Entries of host ports in the switch that cannot be read. The node does not answer on these ports. The log names them.",
		}),
		egressWays: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_egress_links", Help: "EgressIPs for which the node has a link: it translates to their addresses, or prepares to.",
		}),
		egressOwned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_agent_egress_addresses", Help: "Egress addresses that the NICs of the node have: it holds these EgressIPs.",
		}),
	}
	registry.MustRegister(m.joined, m.unreached, m.changes, m.ports, m.ownPorts, m.hostPorts, m.unreadable, m.egressWays, m.egressOwned)
	return m
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

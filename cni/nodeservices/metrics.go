package nodeservices

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ports     prometheus.Gauge
	ownPorts  prometheus.Gauge
	hostPorts prometheus.Gauge
	// unreadable counts entries of host ports.
	unreadable prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
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
	}
	registry.MustRegister(m.ports, m.ownPorts, m.hostPorts, m.unreadable)
	return m
}

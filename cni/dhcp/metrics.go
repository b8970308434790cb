package dhcp

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ answers, ignored *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer, links func() float64) metrics {
	m := metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_agent_dhcp_answers_total", Help: "With OpenDaylight: answers to DHCP requests of pods, by type: OFFER, ACK, NAK.",
		}, []string{"type"}),
		ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_agent_dhcp_ignored_total", Help: "With OpenDaylight: DHCP requests of pods that got no answer, by reason.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.answers, m.ignored, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "coe_agent_dhcp_links", Help: "With OpenDaylight: links of pods on which the agent answers DHCP requests.",
	}, links))
	return m
}

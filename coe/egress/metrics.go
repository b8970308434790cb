package egress

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Metrics are the metrics of a Keeper.
type Metrics struct {
	ips   *prometheus.GaugeVec
	moves *prometheus.CounterVec
	last  prometheus.Gauge
}

// The reasons of moves.
const (
	movePlanned, moveFailover = "planned", "failover"
)

// NewMetrics registers the metrics. They are there without EgressIPs too.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		ips: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_egress_ips", Help: "EgressIPs, by state: held by a node; moving to another one; waiting: no living node holds the address, so its pods do not leave.",
		}, []string{"state"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_egress_moves_total", Help: "EgressIPs that this leader has moved to another node, by reason: planned, or failover after the node died.",
		}, []string{"reason"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_bridge_egress_last_move_timestamp_seconds", Help: "Time of the last move of an EgressIP by this leader; 0 without one.",
		}),
	}
	registry.MustRegister(m.ips, m.moves, m.last)
	m.hold(nil, nil)
	m.moves.WithLabelValues(movePlanned)
	m.moves.WithLabelValues(moveFailover)
	return m
}

// hold notes the EgressIPs. One whose holder is dead waits for another one.
func (m *Metrics) hold(all []*coe.EgressIP, dead func(netip.Addr) bool) {
	counts := map[string]int{coe.EgressHeld: 0, coe.EgressMoving: 0, coe.EgressWaiting: 0}
	for _, e := range all {
		state := e.State()
		if dead(e.Host()) {
			state = coe.EgressWaiting
		}
		counts[state]++
	}
	for state, n := range counts {
		m.ips.WithLabelValues(state).Set(float64(n))
	}
}

// moved counts a move.
func (m *Metrics) moved(dead bool) {
	reason := movePlanned
	if dead {
		reason = moveFailover
	}
	m.moves.WithLabelValues(reason).Inc()
	m.last.Set(float64(time.Now().UnixMilli()) / 1000)
}

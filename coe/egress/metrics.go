package egress

import (
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

// The values of labels.
const (
	stateHeld, stateMoving, stateWaiting = "held", "moving", "waiting"
	movePlanned, moveFailover            = "planned", "failover"
)

// NewMetrics registers the metrics. They are there without EgressIPs too.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		ips: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coe_bridge_egress_ips", Help: "EgressIPs, by state: held by a node, moving to another one, or waiting for a node, or a living one (its pods do not leave).",
		}, []string{"state"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coe_bridge_egress_moves_total", Help: "EgressIPs that this leader has moved to another node, by reason: planned, or failover after the node died.",
		}, []string{"reason"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coe_bridge_egress_last_move_timestamp_seconds", Help: "Time of the last move of an EgressIP by this leader; 0 without one.",
		}),
	}
	registry.MustRegister(m.ips, m.moves, m.last)
	m.hold(&decision{facts: &facts{}})
	m.moves.WithLabelValues(movePlanned)
	m.moves.WithLabelValues(moveFailover)
	return m
}

// hold notes the EgressIPs of a decision. One whose holder is dead waits for another one.
func (m *Metrics) hold(d *decision) {
	counts := map[string]int{stateHeld: 0, stateMoving: 0, stateWaiting: 0}
	for _, e := range d.EgressIPs {
		state := State(e)
		if d.peers[e.Host()].dead(d.now) {
			state = stateWaiting
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

// State returns the state of an EgressIP, for people: held, moving or waiting.
func State(e *coe.EgressIP) string {
	switch {
	case e.Active == 0:
		return stateWaiting
	case e.Owner == e.Active && !e.Hosts[2-e.Active].IsValid():
		return stateHeld
	}
	return stateMoving
}

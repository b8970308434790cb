package agent

import (
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
)

// durations are the upper ends of what times are sorted into, in seconds.
var durations = []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

type metrics struct {
	calls *prometheus.HistogramVec
	steps *prometheus.HistogramVec
	swept prometheus.Counter
	// unreadable is set by each sweep.
	unreadable prometheus.Gauge
}

func newMetrics(cfg Config) *metrics {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coe_agent_call_seconds", Help: "Time that calls of the CNI plugin took, by command and code of the answer; 0 is success.", Buckets: durations,
		}, []string{"command", "code"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coe_agent_step_seconds", Help: "Time that the steps of calls took: record waits for the bridge, network for the switch's controller.", Buckets: durations,
		}, []string{"step"}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_agent_swept_total", Help: "Leftovers that were removed: ports, links and pods.",
		}),
	}
	m.unreadable = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "coe_agent_notes_unreadable", Help: "Notes in the state directory that the last sweep could not read.",
	})
	cfg.Registry.MustRegister(m.calls, m.steps, m.swept, m.unreadable,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_interfaces", Help: "Interfaces of pods that the bridge has told of on this node.",
		}, func() float64 { return float64(cfg.Uplink.Count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_bridge_connected", Help: "Whether the agent follows the bridge: 1 if so.",
		}, func() float64 { return number(cfg.Uplink.Standing().Connected) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_switch_ready", Help: "Whether ports can be added to the switch: 1 if so.",
		}, func() float64 { return number(cfg.Switch.Ready() == nil) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_switch_managed", Help: "Whether OpenDaylight programs the switch, where that is to: 1 if so. With OVN always 1.",
		}, func() float64 { return number(cfg.Switch.Managed() == nil) }),
	)
	return m
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (m *metrics) called(command string, err *types.Error, took time.Duration) {
	code := "0"
	if err != nil {
		code = strconv.FormatUint(uint64(err.Code), 10)
	}
	m.calls.WithLabelValues(command, code).Observe(took.Seconds())
}

// stepped begins a step, and returns how it ends: then it tells how long it took.
func (m *metrics) stepped(name string) func() time.Duration {
	begun := time.Now()
	return func() time.Duration {
		took := time.Since(begun)
		m.steps.WithLabelValues(name).Observe(took.Seconds())
		return took
	}
}

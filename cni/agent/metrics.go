package agent

import (
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
)

// durations are the bucket limits of the histograms, in seconds.
var durations = []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

type metrics struct {
	calls *prometheus.HistogramVec
	steps *prometheus.HistogramVec
	flows prometheus.Histogram
	swept prometheus.Counter
	// unreadable is set by each sweep.
	unreadable prometheus.Gauge
}

func newMetrics(cfg Config) *metrics {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coe_agent_call_seconds", Help: "Duration of CNI calls, by command and error code; code 0 is success.", Buckets: durations,
		}, []string{"command", "code"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coe_agent_step_seconds", Help: "Duration of the steps of CNI calls. Step record waits for the bridge, step network for the network's controller, and on OpenDaylight step flows, a part of it, for flows of the switch.", Buckets: durations,
		}, []string{"step"}),
		flows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "coe_agent_flows_seconds", Help: "With OVN: time from the request for a new port until ovn-controller has installed its flows (ovn-installed-ts of the interface).", Buckets: durations,
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coe_agent_swept_total", Help: "Leftover ports, links and pods that were removed.",
		}),
	}
	m.unreadable = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "coe_agent_notes_unreadable", Help: "Notes in the state directory that the last sweep could not read.",
	})
	cfg.Registry.MustRegister(m.calls, m.steps, m.flows, m.swept, m.unreadable,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_interfaces", Help: "Pod interfaces on this node that the bridge has reported.",
		}, func() float64 { return float64(cfg.Uplink.Count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_bridge_connected", Help: "1 if the agent follows the bridge, otherwise 0. With OpenDaylight, it does not follow a bridge that serves OVN first.",
		}, func() float64 { return number(cfg.Uplink.Status().Connected) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_switch_ready", Help: "1 if ports can be added to the switch, otherwise 0.",
		}, func() float64 { return number(cfg.Switch.Ready() == nil) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coe_agent_switch_managed", Help: "1 if OpenDaylight programs the switch, otherwise 0; always 1 with OVN.",
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

package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
)

var (
	podsMetric = prometheus.NewDesc("coe_bridge_pods",
		"Interfaces of pods that have passed a stage: source (pods with a network), address, written, confirmed.",
		[]string{"stage"}, nil)
	poolMetric = prometheus.NewDesc("coe_bridge_pool_addresses",
		"Addresses of a pool: size (all), given (in use), resting (reserved after their pod is gone).",
		[]string{"network", "subnet", "state"}, nil)
)

// census counts pods by stage, and addresses of pools, at each scrape.
type census struct{ *Bridge }

// Describe implements prometheus.Collector.
func (c census) Describe(out chan<- *prometheus.Desc) {
	out <- podsMetric
	out <- poolMetric
}

// Collect implements prometheus.Collector.
func (c census) Collect(out chan<- prometheus.Metric) {
	counted := c.store.Census()
	for stage, n := range map[trace.Stage]int{
		trace.Source:    counted.Pods,
		trace.Address:   counted.Leased,
		trace.Written:   c.role.Load().loop.Count(netvirt.KindInterface),
		trace.Confirmed: c.hub.Count(),
	} {
		out <- prometheus.MustNewConstMetric(podsMetric, prometheus.GaugeValue, float64(n), string(stage))
	}
	pools := c.allPools().pools
	for _, p := range pools {
		key := coe.PoolKey{Network: p.Network, Subnet: p.Subnet}
		given := counted.Given[key]
		for _, a := range counted.Services {
			if p.Network == coe.ServicePool && p.Subnet.Contains(a) {
				given++
			}
		}
		for state, n := range map[string]float64{
			"size": float64(p.Size()), "given": float64(given), "resting": float64(counted.Resting[key]),
		} {
			out <- prometheus.MustNewConstMetric(poolMetric, prometheus.GaugeValue, n, p.Network, p.Subnet.String(), state)
		}
	}
}

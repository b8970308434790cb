package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/trace"
)

var (
	podsMetric = prometheus.NewDesc("coe_bridge_pods",
		"Interfaces of pods that have passed a stage: source (pods with a network), address, written, confirmed; with OVN also translated, bound (both with --ovn-sb) and installed.",
		[]string{"stage"}, nil)
	poolMetric = prometheus.NewDesc("coe_bridge_pool_addresses",
		"Addresses of a pool: size (all), given (in use), resting (reserved after their pod is gone).",
		[]string{"network", "subnet", "state"}, nil)
	blocksMetric = prometheus.NewDesc("coe_bridge_pool_blocks",
		"Blocks of a pool that are in use.", []string{"network", "subnet"}, nil)
	fitMetric = prometheus.NewDesc("coe_bridge_pool_pods_fit",
		"Pods that fit a pool before the first one is refused, if all nodes and namespaces of today get pods in turn: an estimate.",
		[]string{"network", "subnet"}, nil)
)

// census counts pods by stage, and addresses of pools, at each scrape.
type census struct{ *Bridge }

// Describe implements prometheus.Collector.
func (c census) Describe(out chan<- *prometheus.Desc) {
	out <- podsMetric
	out <- poolMetric
	out <- blocksMetric
	out <- fitMetric
}

// Collect implements prometheus.Collector.
func (c census) Collect(out chan<- prometheus.Metric) {
	counted := c.store.Census()
	stages := map[trace.Stage]int{
		trace.Source:    counted.Pods,
		trace.Address:   counted.Leased,
		trace.Written:   c.role.Load().loop.Count(netvirt.KindInterface),
		trace.Confirmed: c.hub.Count(),
	}
	c.ports.count(stages)
	for stage, n := range stages {
		out <- prometheus.MustNewConstMetric(podsMetric, prometheus.GaugeValue, float64(n), string(stage))
	}
	for _, p := range c.poolUse(counted) {
		size := dhcppool.Pool{Network: p.Network, Subnet: p.Subnet, From: p.From, To: p.To, Gateway: p.Gateway}.Size()
		gauge := func(of *prometheus.Desc, n int64, labels ...string) {
			out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(n), append([]string{p.Network, p.Subnet.String()}, labels...)...)
		}
		gauge(poolMetric, size, "size")
		gauge(poolMetric, int64(p.Given), "given")
		gauge(poolMetric, int64(p.Resting), "resting")
		gauge(blocksMetric, int64(p.Blocks))
		if p.Fit != nil {
			gauge(fitMetric, *p.Fit)
		}
	}
}

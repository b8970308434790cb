package bridge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// serverStates asks each server of OVN's databases for its state at each scrape.
type serverStates []*servers.List

// serversTimeout bounds the questions of a scrape, which are asked at the same time.
const serversTimeout = 2 * time.Second

var (
	serverLabels    = []string{"database", "endpoint"}
	serverUp        = prometheus.NewDesc("coe_bridge_ovn_server_up", "With OVN: 1 if a database server answers, else 0.", serverLabels, nil)
	serverLeader    = prometheus.NewDesc("coe_bridge_ovn_server_leader", "With OVN: 1 if the server leads its cluster, or has none, else 0.", serverLabels, nil)
	serverConnected = prometheus.NewDesc("coe_bridge_ovn_server_connected", "With OVN: 1 if the server reaches a majority of its cluster, or has none, else 0.", serverLabels, nil)
	serverIndex     = prometheus.NewDesc("coe_bridge_ovn_server_log_index", "With OVN: number of the last entry of the cluster's log that the server has; 0 without a cluster.", serverLabels, nil)
)

// Describe implements prometheus.Collector.
func (s serverStates) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serverUp, serverLeader, serverConnected, serverIndex} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s serverStates) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), serversTimeout)
	defer cancel()
	for _, one := range servers.States(ctx, s...) {
		gauge := func(d *prometheus.Desc, n float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, one.Database, one.Endpoint)
		}
		if one.Err != nil {
			gauge(serverUp, 0)
			continue
		}
		gauge(serverUp, 1)
		gauge(serverLeader, number(one.Leader))
		gauge(serverConnected, number(one.Connected))
		gauge(serverIndex, float64(one.Index))
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

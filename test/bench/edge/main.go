// Command benchedge measures how clients outside a cluster reach services by node ports, and how pods leave it by egress
// addresses, and prints the figures with their bounds. The cluster is real: kubelets, API server, OVN, and coe-bridge as its guide
// installs it. kube-proxy in nftables mode runs on the same nodes for the same pods, and alternates with
// coe-bridge, so that changes of the machine's speed affect both. The measurement clusterip, which make bench-odl makes, is of pods on
// nodes that OpenDaylight programs.
//
// It needs root, the Debian packages of test/lab/kubelab, nft, and the Go toolchain. It builds Kubernetes
// into a cache.
package main

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

// measurements in the order of the table.
var measurements = []figures.Measurement[*cluster]{
	{Name: "egress", Measure: measureEgress},
	{Name: "requests", Measure: onCluster(measureRequests)},
	{Name: "change", Measure: onCluster(measureChange)},
	{Name: "flap", Measure: onCluster(measureFlap)},
	{Name: "clusterip", Measure: onOpenDaylight(measureClusterIP), Named: true},
}

func main() {
	figures.Main("benchedge", measurements, func(ctx context.Context) (*cluster, func() error, error) {
		c, err := newCluster(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		return c, c.Close, nil
	})
}

package kubernetes

import (
	"testing"

	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// TestOneThingAtATime makes single changes in a small cluster, whose services have both address
// families, and checks each result in detail.
func TestOneThingAtATime(t *testing.T) {
	w := newWorld(t, kubetest.Config{ControllerManager: true, ServiceCIDRs: serviceCIDRs}, 3, 2)
	t.Run("with a pool", func(t *testing.T) {
		b := w.serve(t)
		w.awaitExact(t, b, converge)
		for _, test := range []struct {
			name string
			run  func(*testing.T, *world, running)
		}{
			{"service of the API server", testServiceOfAPIServer},
			{"services", testServices},
			{"pods of a service", testPodsOfService},
			{"pod without a node", testNoNode},
			{"annotation tampered with", testAnnotation},
			{"pools that overlap", testPostedOverlap},
			{"beside RESTCONF", testBesideRESTCONF},
		} {
			t.Run(test.name, func(t *testing.T) { test.run(t, w, b) })
		}
	})
	t.Run("pool exhausted", func(t *testing.T) { testExhausted(t, w) })
	t.Run("nodes' podCIDRs", func(t *testing.T) { testNodePools(t, w) })
}

// Package kubernetes proves the Kubernetes source on a real API server on the one
// side and a real northbound database on the other.
package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/test/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/kube"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

func TestFirst(t *testing.T) {
	c := kubetest.ForTest(t, kubetest.Config{ControllerManager: true})
	nb := ovsdb.Start(t)
	_, err := c.MakeNodes(t.Context(), 3)
	require.NoError(t, err)
	_, err = c.MakeNamespaces(t.Context(), 2)
	require.NoError(t, err)
	load := kubetest.PodLoad{Count: 20, Namespaces: 2, Nodes: 3}
	_, err = c.MakePods(t.Context(), load)
	require.NoError(t, err)
	b := bridgetest.Start(t, bridgetest.OVN(nb.Endpoint()), func(cfg *bridge.Config) {
		pool, err := dhcppool.Parse("10.11.0.0/16")
		require.NoError(t, err)
		cfg.Pools = []dhcppool.Pool{pool}
		api, err := kube.Connect(c.Kubeconfig(), "test", cfg.Log)
		require.NoError(t, err)
		cfg.Kubernetes = bridge.KubernetesConfig{API: api, AnnotateQPS: 100}
	})
	time.Sleep(3 * time.Second)
	_, s := b.Do("GET", "/restconf/operational/coe-status:status", "")
	t.Log(s)
	out, err := c.Kubectl(t.Context(), "get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.annotations}{\"\\n\"}{end}")
	t.Log(out, err)
	_, s = b.Do("GET", "/restconf/operational/coe-agent:interfaces", "")
	t.Log(s[:800])
	_, s = b.Do("GET", "/restconf/config/pod:coe", "")
	t.Log(s[:300])
}

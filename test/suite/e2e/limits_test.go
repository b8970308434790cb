package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

func startMemory(t *testing.T, options ...bridgetest.Option) rest {
	t.Parallel()
	return rest{bridgetest.Start(t, options...).Client()}
}

// numbered returns pods in one namespace on one node, named "pod-1" and so on.
func numbered(namespace string, n int) []aPod {
	pods := make([]aPod, n)
	for i := range pods {
		pods[i] = aPod{uid: uid("a", i+1), name: fmt.Sprintf("pod-%d", i+1), namespace: namespace, node: loadNodes[0]}
	}
	return pods
}

// small is a pool with addresses for two pods.
func small() addressPool {
	return addressPool{network: "default", subnet: "10.42.0.0/24", from: "10.42.0.2", to: "10.42.0.3", gateway: "10.42.0.1"}
}

func TestPoolExhausted(t *testing.T) {
	for _, c := range []struct {
		name  string
		heal  func(*testing.T, rest, []aPod)
		after time.Duration // the least duration until the refused pod is served
		left  []string      // problems that stay
	}{
		{"pool enlarged", func(t *testing.T, r rest, _ []aPod) {
			larger := small()
			larger.to = "10.42.0.6"
			r.putPool(t, larger)
		}, 0, []string{"default PoolNearlyFull"}},
		{"another subnet added", func(t *testing.T, r rest, _ []aPod) {
			more := addressPool{subnet: "10.43.0.0/24"}.body()["network"].([]object)[0]["allocation-pool"]
			r.change(t, http.MethodPost, poolPath("default"), object{"allocation-pool": more})
		}, 0, nil},
		{"a pool of the namespace", func(t *testing.T, r rest, _ []aPod) {
			r.putPool(t, addressPool{network: "web", subnet: "10.44.0.0/24"})
		}, 0, []string{"default PoolNearlyFull"}},
		{"a pod deleted", func(t *testing.T, r rest, pods []aPod) { r.deletePods(t, pods[0]) }, time.Second, []string{"default PoolNearlyFull"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startMemory(t)
			r.putPool(t, small())
			pods := numbered("web", 3)
			r.putPods(t, pods...)
			r.awaitProblems(t, converge, "default PoolNearlyFull", "pod-3 PoolExhausted")
			r.awaitSync(t, converge)
			require.Len(t, r.living(t), 2)

			begun := time.Now()
			c.heal(t, r, pods)
			r.awaitProblems(t, converge, c.left...)
			require.GreaterOrEqual(t, time.Since(begun), c.after, "before its rest was over")
			require.Contains(t, r.living(t), pods[2].uid)
			r.awaitSync(t, converge)
			requireConfirmed(t, r)
		})
	}
}

func TestSmallPoolForManyNamespaces(t *testing.T) {
	r := startMemory(t)
	r.putPool(t, addressPool{network: "default", subnet: "10.42.7.0/24", gateway: "10.42.7.1"})
	for i := range 30 {
		r.putPods(t, aPod{uid: uid("a", i), name: "pod", namespace: fmt.Sprintf("ns-%d", i), node: loadNodes[0]})
	}
	r.requireServed(t, 30, netip.MustParsePrefix("10.42.7.0/24"), "default PoolNearlyFull")
}

// TestSamplePool serves two nodes from the pool of the specification.
func TestSamplePool(t *testing.T) {
	r := startMemory(t)
	r.change(t, http.MethodPost, "dhcp_allocation_pool:dhcp_allocation_pool/", `{
  "dhcp_allocation_pool:network": [
     {
        "dhcp_allocation_pool:allocation-pool": [
          {
            "dhcp_allocation_pool:subnet": "192.168.10.0/24",
            "dhcp_allocation_pool:allocate-to": "192.168.10.50",
            "dhcp_allocation_pool:gateway": "192.168.10.2",
            "dhcp_allocation_pool:allocate-from": "192.168.10.3"
           }
        ],
        "dhcp_allocation_pool:network-id": "pod-namespace"
      }
    ]
  }`)
	for i := range 10 {
		r.putPods(t, aPod{uid: uid("a", i), name: fmt.Sprintf("pod-%d", i), namespace: "pod-namespace", node: loadNodes[i%2]})
	}
	r.requireServed(t, 10, netip.MustParsePrefix("192.168.10.0/24"))
	for _, l := range r.living(t) {
		require.GreaterOrEqual(t, l.Addresses[0].Compare(netip.MustParseAddr("192.168.10.3")), 0)
		require.LessOrEqual(t, l.Addresses[0].Compare(netip.MustParseAddr("192.168.10.50")), 0)
	}
}

// requireServed requires that n pods have different addresses of the prefix, and that there are exactly these problems.
func (r rest) requireServed(t *testing.T, pods int, prefix netip.Prefix, problems ...string) {
	t.Helper()
	r.awaitSync(t, converge)
	r.awaitProblems(t, converge, problems...)
	living := r.living(t)
	require.Len(t, living, pods)
	seen := map[netip.Addr]bool{}
	for _, l := range living {
		require.Len(t, l.Addresses, 1)
		require.True(t, prefix.Contains(l.Addresses[0]), "%s of %s", l.Addresses[0], prefix)
		require.False(t, seen[l.Addresses[0]], "%s twice", l.Addresses[0])
		seen[l.Addresses[0]] = true
	}
	requireConfirmed(t, r)
}

// TestRivals posts two pods of which only one can be served, and then deletes the first one.
func TestRivals(t *testing.T) {
	first := aPod{uid: uid("a", 1), name: "first", namespace: "web", node: loadNodes[0], address: "10.11.2.28"}
	for _, c := range []struct {
		name    string
		rival   aPod
		problem string
		options []bridgetest.Option
	}{
		{"one name", aPod{name: "first", namespace: "web", address: "10.11.2.29"}, "first NameTaken", nil},
		{"one address, one namespace", aPod{name: "rival", namespace: "web", address: "10.11.2.28"}, "rival AddressTaken", nil},
		{"one address, two namespaces", aPod{name: "rival", namespace: "shop", address: "10.11.2.28"}, "rival AddressTaken", nil},
		{"one address, one namespace, isolated", aPod{name: "rival", namespace: "web", address: "10.11.2.28"}, "rival AddressTaken", []bridgetest.Option{isolated}},
		{"one address, two namespaces, isolated", aPod{name: "rival", namespace: "shop", address: "10.11.2.28"}, "", []bridgetest.Option{isolated}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startMemory(t, c.options...)
			c.rival.uid, c.rival.node = uid("a", 2), loadNodes[1]
			r.putPods(t, first)
			r.awaitSync(t, converge)
			r.putPods(t, c.rival)
			if c.problem == "" {
				r.awaitSync(t, converge)
				r.awaitProblems(t, converge)
				require.Len(t, r.living(t), 2)
				return
			}
			r.awaitProblems(t, converge, c.problem)
			require.Contains(t, r.living(t), first.uid)
			require.NotContains(t, r.living(t), c.rival.uid)
			r.deletePods(t, first)
			r.awaitProblems(t, converge)
			r.awaitSync(t, converge)
			require.Equal(t, c.rival.address, r.living(t)[c.rival.uid].Addresses[0].String())
			require.NotContains(t, r.living(t), first.uid)
			requireConfirmed(t, r)
		})
	}
}

func isolated(c *bridge.Config) { c.Mapping.Isolation = mapping.IsolationNamespace }

package agentstream

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const networks = `{"nodes":"100.96.0.0/16","pods":["10.42.0.0/16"],"services":["10.96.0.0/12"],"no-masquerade":["10.0.0.0/8"]}`

// hears returns the names and contents of a node's next events.
func hears(t *testing.T, h *Hub, node string) (take func() []string) {
	s := open(t, h, node)
	return func() (all []string) {
		for _, e := range s.Take() {
			all = append(all, e.Name+string(e.Content))
		}
		return all
	}
}

// A node gets its own place and the networks behind it when they change. Other nodes do not.
func TestNodes(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":1}`), "chosen/networks/": []byte(networks),
		CompleteRecord: []byte("x"),
	}})
	place := `{"operation":"put","node":"192.168.33.11","name":"node:192.168.33.11:management","mac-address":"0a:58:64:60:00:02",` +
		`"address":"100.96.0.2","prefix-length":16,"gateway":"100.96.0.1","service-address":"100.96.0.3","edge-address":"100.96.255.254","services-by":"network",` +
		`"pod-network":["10.42.0.0/16"],"service-network":["10.96.0.0/12"],"no-masquerade":["10.0.0.0/8"]}`
	require.Equal(t, []string{"coe-agent:snapshot-begin{}", "coe-agent:node-changed" + place, "coe-agent:snapshot-complete{}"}, one())
	require.Len(t, two(), 2)
	judge(t, "node-changed", []byte(place))

	h.Apply(Batch{Revision: 2, Put: map[string][]byte{"chosen/node/" + node2: []byte(`{"node":"` + node2 + `","number":2}`)}})
	require.Empty(t, one())
	require.Contains(t, two()[0], `"address":"100.96.0.4"`)
	require.Equal(t, []string{node1, node2}, h.Keys())

	h.Apply(Batch{Revision: 3, Put: map[string][]byte{"chosen/networks/": []byte(`{"nodes":"100.96.0.0/16"}`)}})
	require.NotContains(t, one()[0], "10.42")
	require.NotContains(t, two()[0], "10.96.0.0")

	h.Apply(Batch{Revision: 4, Put: map[string][]byte{"chosen/networks/": []byte("{"), "chosen/node/" + node2: []byte("{")}})
	require.Empty(t, one(), "an unreadable record changes nothing")

	for _, bad := range []string{"{}", "null", `{"nodes":"fd00::/64"}`, `{"nodes":"100.96.0.0/31"}`} {
		h.Apply(Batch{Revision: 4, Put: map[string][]byte{"chosen/networks/": []byte(bad)}})
		require.Empty(t, one(), bad)
	}
	h.Apply(Batch{Revision: 4, Put: map[string][]byte{"chosen/networks/": []byte(`{"nodes":"100.96.0.0/16"}`)}})
	require.Empty(t, one(), "a record affects its node only")
	require.Empty(t, two(), "the node keeps its former place")

	h.Apply(Batch{Revision: 5, Put: map[string][]byte{"chosen/networks/": []byte(networks)}, Delete: []string{"chosen/node/" + node2}})
	require.Equal(t, []string{"coe-agent:node-changed" + place}, one())
	gone := `{"operation":"deleted","node":"192.168.33.12"}`
	require.Equal(t, []string{"coe-agent:node-changed" + gone}, two())
	judge(t, "node-changed", []byte(gone))

	h.Apply(Batch{Revision: 6, Snapshot: true, Put: map[string][]byte{CompleteRecord: []byte("x")}})
	require.Equal(t, []string{"coe-agent:snapshot-begin{}", "coe-agent:snapshot-complete{}"}, one())
}

// A node that leads its pods to services gets the names of its ports in their namespaces.
func TestNodesThatBalance(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":1}`),
		"chosen/networks/":     []byte(`{"nodes":"100.96.0.0/16","nodes-balance":true}`), CompleteRecord: []byte("x"),
	}})
	place := strings.TrimPrefix(one()[1], "coe-agent:node-changed")
	require.Contains(t, place, `"way-out":{"name":"node:192.168.33.11:port","mac-address":"0a:58:c0:a8:21:0b"}`)
	judge(t, "node-changed", []byte(place))
}

// A node gets its IPv6 addresses if the cluster has a range for them.
func TestNodesWithIPv6(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":1}`),
		"chosen/networks/":     []byte(`{"nodes":"100.96.0.0/16","nodes-ipv6":"fd00:96::/64","no-masquerade":["2001:db8::/32"]}`), CompleteRecord: []byte("x"),
	}})
	place := one()[1]
	require.Contains(t, place, `"ipv6":{"address":"fd00:96::2","prefix-length":64,"gateway":"fd00:96::1","service-address":"fd00:96::3","edge-address":"fd00:96::ffff:fffe"}`)
	judge(t, "node-changed", []byte(strings.TrimPrefix(place, "coe-agent:node-changed")))
	h.Apply(Batch{Revision: 2, Put: map[string][]byte{"chosen/networks/": []byte(`{"nodes":"100.96.0.0/16","nodes-ipv6":"100.97.0.0/16"}`)}})
	require.Empty(t, one(), "an unusable record changes nothing")
	h.Apply(Batch{Revision: 3, Put: map[string][]byte{"chosen/networks/": []byte(networks)}})
	require.NotContains(t, one()[0], "ipv6")
}

// While pods may have host ports, nodes know which, and the addresses of all nodes.
func TestHostPorts(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":1}`), "chosen/networks/": []byte(networks), CompleteRecord: []byte("x"),
	}})
	one()
	h.Apply(Batch{Revision: 2, Put: map[string][]byte{"chosen/networks/": []byte(`{"nodes":"100.96.0.0/16","host-ports":["80-80","8000-8100"]}`)}})
	got := one()
	require.Len(t, got, 2)
	require.Contains(t, got[0], `"host-port-range":["80-80","8000-8100"]`)
	judge(t, "node-changed", []byte(strings.TrimPrefix(got[0], "coe-agent:node-changed")))
	require.Equal(t, `coe-agent:nodes-changed{"node":["192.168.33.11"]}`, got[1])
	h.Apply(Batch{Revision: 3, Put: map[string][]byte{"chosen/networks/": []byte(networks)}})
	got = one()
	require.NotContains(t, got[0], "host-port")
	require.Equal(t, `coe-agent:nodes-changed{"node":[]}`, got[1])
}

// While a node has a number of a release that gave nodes two addresses, nodes whose edge address belongs to
// another node have none.
func TestNodesWithoutAnEdgeAddress(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":4}`), "chosen/node/" + node2: []byte(`{"node":"` + node2 + `","number":6}`),
		"chosen/networks/": []byte(`{"nodes":"100.96.0.0/28"}`), CompleteRecord: []byte("x"),
	}})
	require.NotContains(t, one()[1], "edge-address")
	require.NotContains(t, two()[1], "edge-address")
	h.Apply(Batch{Revision: 2, Delete: []string{"chosen/node/" + node2}})
	require.Contains(t, one()[0], `"edge-address":"100.96.0.11"`)
}

// A record with a number outside of the range counts for no edge address, and its node has no place.
func TestNodesWithNumbersOutsideOfTheRange(t *testing.T) {
	h := newHub()
	one, two := hears(t, h, node1), hears(t, h, node2)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":1}`), "chosen/node/" + node2: []byte(`{"node":"` + node2 + `","number":7}`),
		"chosen/networks/": []byte(`{"nodes":"100.96.0.0/28"}`), CompleteRecord: []byte("x"),
	}})
	require.Contains(t, one()[1], `"edge-address":"100.96.0.14"`)
	require.Equal(t, []string{"coe-agent:snapshot-begin{}", "coe-agent:snapshot-complete{}"}, two())
}

// A follower with the ID of a release whose records had other contents gets all of them again.
func TestIDsOfAFormerFormat(t *testing.T) {
	h := newHub()
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{CompleteRecord: []byte("x"), HistoryRecord: []byte("a")}})
	s, ok := h.Open(node1, "1@x.a")
	require.True(t, ok)
	require.Len(t, s.Take(), 2)
	s, ok = h.Open(node1, "1@x~"+format+".a")
	require.True(t, ok)
	require.Empty(t, s.Take())
}

// If namespaces are isolated, a node learns what its ports have in common. It needs no number.
func TestNodesInIsolatedNamespaces(t *testing.T) {
	h := newHub()
	one := hears(t, h, node1)
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":0,"owner":"one"}`),
		"chosen/networks/":     []byte(`{"nodes":"","isolated":true,"pods":["10.42.0.0/16"],"services":["10.96.0.0/12"]}`),
		CompleteRecord:         []byte("x"),
	}})
	place := `{"operation":"put","node":"192.168.33.11","isolated":true,"name":"node:192.168.33.11:port",` +
		`"mac-address":"0a:58:c0:a8:21:0b","address":"192.168.33.11","ipv6":{"address":"fd63:6f65:6272::c0a8:210b"},"services-by":"network","pod-network":["10.42.0.0/16"]}`
	require.Equal(t, []string{"coe-agent:snapshot-begin{}", "coe-agent:node-changed" + place, "coe-agent:snapshot-complete{}"}, one())
	judge(t, "node-changed", []byte(place))

	h.Apply(Batch{Revision: 2, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":3,"owner":"one"}`),
		"chosen/networks/":     []byte(`{"nodes":"100.96.0.0/16","isolated":true,"nodes-balance":true,"services":["10.96.0.0/12"]}`),
	}})
	place = `{"operation":"put","node":"192.168.33.11","isolated":true,"name":"node:192.168.33.11:port","mac-address":"0a:58:c0:a8:21:0b",` +
		`"address":"192.168.33.11","gateway":"100.96.0.1","edge-address":"100.96.0.6","ipv6":{"address":"fd63:6f65:6272::c0a8:210b"},` +
		`"way-out":{"name":"node:192.168.33.11:port","mac-address":"0a:58:c0:a8:21:0b"},"services-by":"node","service-network":["10.96.0.0/12"]}`
	require.Equal(t, []string{"coe-agent:node-changed" + place}, one(), "it leads its pods to services")
	judge(t, "node-changed", []byte(place))

	h.Apply(Batch{Revision: 3, Put: map[string][]byte{
		"chosen/node/" + node1: []byte(`{"node":"` + node1 + `","number":0,"owner":"one"}`), "chosen/networks/": []byte(networks),
	}})
	require.Contains(t, one()[0], `"operation":"deleted"`, "without a number it has no management port")
}

package agentstream

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// A record that cannot be read, nor its copy, changes nothing for its EgressIP, and other EgressIPs move on.
func TestDamagedEgressRecords(t *testing.T) {
	node, next := netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("192.168.33.12")
	record := func(name, number, host string) []byte {
		return []byte(`{"name":"` + name + `","number":` + number + `,"address":"192.0.2.` + number + `","hosts":["` + host + `",""],"active":1,"owner":1}`)
	}
	candidates := []byte(`{"secret":"c2VjcmV0","port":9177,"nodes":["` + node.String() + `","` + next.String() + `"]}`)
	h := &Hub{}
	put := func(name string, value []byte) { h.egress.record("egress/"+name, value) }
	put("_candidates", candidates)
	put("first", record("first", "1", node.String()))
	put("second", record("second", "2", node.String()))
	require.Len(t, h.tellEgress(nil), 2)
	has := func(of netip.Addr) string { return string(h.egress.told[of.String()]) }
	require.Contains(t, has(node), "192.0.2.1")

	put("first", []byte("{"))
	put("_candidates", []byte("{"))
	require.Empty(t, h.tellEgress(nil))
	put("second", record("second", "2", next.String()))
	var changed []stream.Change
	require.Len(t, h.tellEgress(changed), 2)
	require.Contains(t, has(node), "192.0.2.1")
	require.NotContains(t, has(node), "192.0.2.2")
	require.Contains(t, has(next), "192.0.2.2")
	put("first", nil)
	h.tellEgress(nil)
	require.NotContains(t, has(node), "192.0.2.1")
}

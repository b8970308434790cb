package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Two pods of a namespace are on one node and one on another. A rule lets in a peer group of two
// prefixes and a pod, on two ports.
func TestCost(t *testing.T) {
	require.Equal(t, Cost{}, costOf(mapped{}), "without policies nothing is counted")

	m := netvirt.Model{}
	put := func(objects ...netvirt.Object) {
		for _, o := range objects {
			m[o.Key()] = o
		}
	}
	put(netvirt.ACL{Name: "deny", Namespace: "shop", Isolates: netvirt.Ingress}, netvirt.ACL{Name: "db", Namespace: "shop"},
		netvirt.ACE{ACL: "db", Name: "1", Namespace: "shop", Direction: netvirt.Ingress, Family: netvirt.IPv4, Remote: "peers", Ports: "tcp:80,tcp:81"},
		netvirt.RemoteGroup{Name: "peers", Prefixes: "192.0.2.0/25,198.51.100.0/24,fd00::/64"})
	for n, node := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"} {
		name := fmt.Sprint("shop:", n)
		acl := netvirt.InterfaceACL{Interface: name, Namespace: "shop", SecurityGroups: "db,deny"}
		if n == 2 {
			acl.RemoteGroups = "peers"
		}
		put(acl, netvirt.ELANInterface{Name: name, Namespace: "shop", ELAN: node + ":shop"},
			netvirt.Adjacency{Interface: name, Namespace: "shop", Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})})
	}
	// On the first node: 3 ACLs that isolate 2 ports; 2 ports, 3 addresses and 2 numbers of the rule.
	require.Equal(t, Cost{ACLs: 4, LogicalFlows: 48, OpenFlow: 6 + 7, Node: netip.MustParseAddr("192.0.2.1")}, costOf(mapped{model: m}))

	put(netvirt.ACL{Name: "deny", Namespace: "shop", Isolates: netvirt.Egress, Withholds: "tcp:30000-32767,udp:30000-32767"})
	// One more ACL, for 2 ports and with 2 ranges.
	require.Equal(t, Cost{ACLs: 5, LogicalFlows: 50, OpenFlow: 6 + 7 + 2 + 2, Node: netip.MustParseAddr("192.0.2.1")}, costOf(mapped{model: m}))
}

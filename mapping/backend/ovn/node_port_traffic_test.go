package ovn_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// isolatedNode is a node's port in a namespace of livePods.
type isolatedNode struct {
	netvirt.NodePort
	ns   string
	host int
}

// nodePortsOfLive returns the ports of both hosts. The nodes have an IPv4 address.
func nodePortsOfLive(m netvirt.Model) (all []isolatedNode) {
	for _, k := range m.Keys() {
		s, ok := m[k].(netvirt.Subnet)
		if !ok || !s.Gateway.Is4() {
			continue
		}
		node, ns, _ := netvirt.ParseELANName(s.ELAN)
		if n := len(all); n > 0 && all[n-1].ELAN == s.ELAN {
			continue
		}
		host := int(node.As4()[3])
		all = append(all, isolatedNode{ns: ns, host: host, NodePort: netvirt.NodePort{
			ELAN: s.ELAN, Network: s.Prefix, VPN: s.VPN, Address: node, MAC: netvirt.NodePortMAC(node), Chassis: fmt.Sprintf("host%d", host),
		}})
	}
	return all
}

// TestNodePortTraffic: in isolated namespaces a node and its own pods reach each other, also if
// policies allow nothing else. Pods of other nodes do not reach it.
func TestNodePortTraffic(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1", "host2")
	b := withLayout(t, lab, ovn.LayoutELAN)
	m := liveModel(true)
	nodes := nodePortsOfLive(m)
	require.Len(t, nodes, 4)
	for _, n := range nodes {
		m.Add(n.NodePort)
	}
	write(t, b, m)
	for i, p := range livePods {
		p.plug(t, lab, i)
		require.NoError(t, lab.Serve(p.iface(), open8080, http.HandlerFunc(echo)))
	}
	for _, n := range nodes {
		n.plug(t, lab)
	}
	check := func() {
		require.NoError(t, lab.Sync(t.Context()))
		var refused sync.WaitGroup
		defer refused.Wait()
		for _, n := range nodes {
			for _, p := range livePods {
				if netip.MustParseAddr(p.address).Is6() {
					continue
				}
				if p.host == n.host && p.ns == n.ns {
					require.Equal(t, p.name, page(t, lab, n.asPod(), netip.AddrPortFrom(netip.MustParseAddr(p.address), open8080)), "%s to %s", n.Name(), p.iface())
					reaches := func() bool { return connect(t.Context(), lab, p.iface(), n.Address.String(), open8080) == nil }
					require.Eventually(t, reaches, patience.Patience, 100*time.Millisecond, "%s to its node %s", p.iface(), n.Name())
				} else {
					refused.Go(func() {
						assert.Error(t, connect(t.Context(), lab, n.Name(), p.address, open8080), "%s to %s", n.Name(), p.iface())
					})
				}
			}
		}
		refused.Wait()
		require.False(t, t.Failed())
	}
	check()

	// Policies isolate all pods of namespace a. The mapping allows the own node then.
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		m.Add(netvirt.ACL{Name: "a:" + string(d), Namespace: "a", Isolates: d})
	}
	for host := 1; host <= 2; host++ {
		node := netip.AddrFrom4([4]byte{192, 168, 0, byte(host)})
		group := netvirt.RemoteGroup{Name: fmt.Sprint("node-", host), Prefixes: netvirt.NewPrefixList(netip.PrefixFrom(node, 32))}
		acl := netvirt.ACL{Name: fmt.Sprint("a:node-", host), Namespace: "a"}
		m.Add(group, acl)
		for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
			m.Add(netvirt.ACE{ACL: acl.Name, Namespace: "a", Name: string(d), Direction: d, Family: netvirt.IPv4, Remote: group.Name})
		}
		for _, p := range livePods {
			if p.ns == "a" && p.host == host {
				m.Add(netvirt.InterfaceACL{Interface: p.iface(), Namespace: "a", SecurityGroups: netvirt.NewNameList("a:ingress", "a:egress", acl.Name)})
			}
		}
	}
	write(t, b, m)
	check()
	require.Error(t, connect(t.Context(), lab, livePods[aBlock].iface(), livePods[aSecond].address, open8080), "the policies are in force")
}

// asPod is the namespace that stands for the node behind its port.
func (n isolatedNode) asPod() livePod {
	return livePod{ns: "node", name: n.Name()[len("node:"):], host: n.host}
}

// plug attaches the node's port. The node routes all addresses to it directly, as the agent does
// with the addresses of its pods.
func (n isolatedNode) plug(t *testing.T, lab *ovnhost.Lab) {
	t.Helper()
	mac, err := net.ParseMAC(n.MAC)
	require.NoError(t, err)
	require.NoError(t, lab.Plug(t.Context(), ovnhost.Pod{
		Host: n.Chassis, Name: n.Name(), PortName: "node-" + n.ns, MAC: mac, Address: netip.PrefixFrom(n.Address, 32),
	}))
	for _, to := range []string{"10.0.0.0/8", "172.16.0.0/12"} {
		_, err := lab.Exec(t.Context(), n.Name(), "ip", "route", "add", to, "dev", "eth0", "src", n.Address.String())
		require.NoError(t, err)
	}
	require.NoError(t, lab.Serve(n.Name(), open8080, http.HandlerFunc(echo)))
}

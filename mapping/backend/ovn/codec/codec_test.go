package codec

import (
	"cmp"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var testCodec = Codec{Owner: "owner", Layout: LayoutELAN}

func TestTransitPair(t *testing.T) {
	cases := map[string]struct{ rd, transit, vpn, vpnMAC, vpnIPv6 string }{
		"first":       {"100:2", "100.64.0.9", "100.64.0.10", "0a:58:64:40:00:0a", "fe80::858:64ff:fe40:a"},
		"last":        {"100:524287", "100.95.255.253", "100.95.255.254", "0a:58:64:5f:ff:fe", "fe80::858:64ff:fe5f:fffe"},
		"repeated":    {"100:524288", "100.64.0.1", "100.64.0.2", "0a:58:64:40:00:02", "fe80::858:64ff:fe40:2"},
		"not numbers": {"x", "100.72.24.37", "100.72.24.38", "0a:58:64:48:18:26", "fe80::858:64ff:fe48:1826"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pair := transitPair(netvirt.VPNInstance{Name: "v", RouteDistinguisher: c.rd})
			require.Equal(t, c.transit, pair.transit.ipv4.String())
			require.Equal(t, c.vpn, pair.vpn.ipv4.String())
			require.Equal(t, c.vpnMAC, pair.vpn.mac)
			require.Equal(t, c.vpnIPv6, pair.vpn.ipv6.String())
		})
	}
}

// TestPodRows: a pod is encoded to this row.
func TestPodRows(t *testing.T) {
	const name, elan = "default:busybox1", "192.168.33.12:default"
	address, network := netip.MustParseAddr("10.11.2.28"), netip.MustParsePrefix("10.11.2.0/24")
	m := netvirt.Model{}
	m.Add(
		netvirt.Interface{
			Name: name, Namespace: "default", Pod: "busybox1", PodUID: "pod-uid", UID: "pod-uid", ParentInterface: netvirt.PortName(name, "pod-uid"), DHCP: true,
		},
		netvirt.ELANInterface{Name: name, Namespace: "default", ELAN: elan, Chassis: "node1"},
		netvirt.MACEntry{Interface: name, Namespace: "default", MAC: "0a:58:0a:0b:02:1c", Address: address},
		netvirt.VPNInterface{Name: name, Namespace: "default", VPN: "default"},
		netvirt.Adjacency{
			Interface: name, Namespace: "default", Address: address, MAC: "0a:58:0a:0b:02:1c",
			ELAN: elan, Network: network, Gateway: netip.MustParseAddr("10.11.2.1"),
		},
	)
	k := netvirt.Key{Kind: netvirt.KindInterface, Name: name}
	set := testCodec.Encode(k, m, func(k netvirt.Key) netvirt.Object { return m[k] })
	dhcp := testCodec.dhcpUUID(elan, network)
	uuid := testCodec.UUID(nb.LogicalSwitchPortTable, k, "")
	addresses := []string{"0a:58:0a:0b:02:1c 10.11.2.28"}
	require.Len(t, set.Rows, 1)
	require.Equal(t, &nb.LogicalSwitchPort{
		UUID: uuid, Name: name, Addresses: addresses, PortSecurity: addresses, Dhcpv4Options: &dhcp,
		Options: map[string]string{"iface-id-ver": "pod-uid", "requested-chassis": "node1"},
		ExternalIDs: map[string]string{
			"coe-bridge/owner": "owner", "coe-bridge/kind": "interface", "coe-bridge/name": name,
			"coe-bridge/namespace": "default", "coe-bridge/dhcp": "true",
			"coe-bridge/adjacency/10.11.2.28": "0a:58:0a:0b:02:1c 10.11.2.0/24 10.11.2.1 " + elan,
		},
	}, set.Rows[0].Value)
	want := Northbound.NewRowSet()
	want.Link(nb.LogicalSwitchTable, testCodec.switchUUID(elan), "ports", uuid)
	require.Equal(t, want.Links, set.Links)

	without := m[k].(netvirt.Interface)
	without.DHCP = false
	m.Add(without)
	row := testCodec.Encode(k, m, func(k netvirt.Key) netvirt.Object { return m[k] }).Rows[0].Value.(*nb.LogicalSwitchPort)
	require.Nil(t, row.Dhcpv4Options, "without DHCP")
}

// TestPlacesOfServices: a service has a load balancer for each distinct set of endpoints, and one for
// clients elsewhere. Nodes with these endpoints share it.
func TestPlacesOfServices(t *testing.T) {
	node := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	vip := netip.MustParseAddrPort("10.96.0.1:80")
	here, there := netvirt.EndpointList("10.0.0.1:80"), netvirt.EndpointList("10.0.0.2:80")
	both := netvirt.EndpointList("10.0.0.1:80,10.0.0.2:80")
	service := netvirt.Service{UID: "s", Namespace: "a", Name: "web"}
	at := netvirt.ServiceVIP{Service: "s", Namespace: "a", Protocol: netvirt.TCP, VIP: vip, Endpoints: both}
	k := service.Key()
	m := netvirt.Model{}
	m.Add(service, at, netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}, netvirt.VPNInstance{Name: "a", Namespace: "a", Transit: netvirt.CommonRouteTarget})
	for n := range byte(5) {
		m.Add(netvirt.Node{Address: node(n)})
	}
	encode := func() (reject map[string]string, groups map[string][]string) {
		group := netvirt.Model{}
		group.Add(m[k], m[at.Key()])
		set := testCodec.Encode(k, group, func(k netvirt.Key) netvirt.Object { return m[k] })
		reject, groups = map[string]string{}, map[string][]string{}
		roles := map[string]string{}
		for _, r := range set.Rows {
			lb := r.Value.(*nb.LoadBalancer)
			role := lb.ExternalIDs[identity.IDRole]
			roles[lb.UUID], reject[role+" to "+cmp.Or(lb.Vips["10.96.0.1:80"], "nothing")] = role, lb.Options["reject"]
		}
		names := map[string]string{
			testCodec.balancersUUID(transitKey(netvirt.CommonRouteTarget)): "transit", testCodec.balancersUUID(vpnKey("a")): "vpn",
			testCodec.elsewhereUUID(transitKey(netvirt.CommonRouteTarget)): "elsewhere",
		}
		for n := range byte(5) {
			names[testCodec.balancersUUID(netvirt.Node{Address: node(n)}.Key())] = node(n).String()
		}
		for _, l := range set.Links {
			groups[roles[l.Child]] = append(groups[roles[l.Child]], names[l.Parent])
		}
		return reject, groups
	}
	reject, groups := encode()
	require.Equal(t, map[string]string{"tcp to " + string(both): "true"}, reject)
	require.Equal(t, map[string][]string{"tcp": {"transit", "vpn"}}, groups)

	service.Places = netvirt.NewPlaceList([]netip.Addr{node(0), node(3)}, []netip.Addr{node(1)}, []netip.Addr{node(2)}, []netip.Addr{node(4)})
	at.Near = netvirt.NewNearList(here, there, "", both)
	m.Add(service, at)
	reject, groups = encode()
	require.Equal(t, map[string]string{
		"tcp to " + string(both): "true", "tcp/192.0.2.0 to " + string(here): "true", "tcp/192.0.2.1 to " + string(there): "true", "tcp/192.0.2.2 to nothing": "false",
	}, reject)
	require.Equal(t, map[string][]string{
		"tcp":           {"elsewhere", "192.0.2.4"},
		"tcp/192.0.2.0": {"192.0.2.0", "192.0.2.3"}, "tcp/192.0.2.1": {"192.0.2.1"}, "tcp/192.0.2.2": {"192.0.2.2"},
	}, groups)
}

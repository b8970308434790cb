package codec

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// FuzzPortIDs: the row of a port holds its objects, also if they differ from what its other columns imply. The row of an earlier
// release, with all pairs, holds the same objects, and is renewed to this row.
func FuzzPortIDs(f *testing.F) {
	const name, elan, mac = "default:web", "192.168.33.12:default", "0a:58:0a:0b:02:1c"
	f.Add(name, "default", "web", "pod-uid", "pod-uid", netvirt.PortName(name, "pod-uid"), "default", elan, "node1", mac, mac, byte(0))
	f.Add(name+":i-uid", "default", "web", "pod-uid", "i-uid", netvirt.PortName(name+":i-uid", "pod-uid"), "default", elan, "", mac, mac, byte(1))
	f.Add("no colon", "", "a pod", "", "uid", "", "a vpn", "an elan", "a node", "", mac, byte(2))
	f.Add(name, "other", "db", "x", "", "tap", "", elan, "node1", mac, "other mac", byte(3))
	f.Add(name, "default", "web", "pod-uid", "pod-uid", netvirt.PortName(name, "pod-uid"), "default", elan, "node1", mac, mac, byte(128))
	f.Add("::", "", "", "", "", "", "", "", "", mac, "", byte(5))
	f.Fuzz(func(t *testing.T, name, namespace, pod, podUID, uid, parent, vpn, elan, chassis, mac, otherMAC string, how byte) {
		mac, otherMAC = strings.ReplaceAll(mac, " ", ""), strings.ReplaceAll(otherMAC, " ", "")
		m := netvirt.Model{}
		m.Add(
			netvirt.Interface{Name: name, Namespace: namespace, Pod: pod, PodUID: podUID, UID: uid, ParentInterface: parent, DHCP: how&1 != 0},
			netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan, Chassis: chassis},
		)
		if vpn != "" {
			m.Add(netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: vpn})
		}
		for i, address := range []string{"10.11.2.28", "fd00::28", "10.11.2.29"} {
			a := netip.MustParseAddr(address)
			if how&(2<<i) == 0 && otherMAC != "" {
				m.Add(netvirt.MACEntry{Interface: name, Namespace: namespace, MAC: otherMAC, Address: a})
			}
			if how&(16<<i) == 0 {
				m.Add(netvirt.Adjacency{
					Interface: name, Namespace: namespace, Address: a, MAC: mac, ELAN: strings.Repeat(elan, i%2+1),
					Network: []netip.Prefix{netip.PrefixFrom(a, 8), netip.PrefixFrom(a.Next(), a.BitLen())}[how>>7], Gateway: a.Next(),
				})
			}
		}
		k := netvirt.Key{Kind: netvirt.KindInterface, Name: name}
		rows := testCodec.Encode(k, m, func(netvirt.Key) netvirt.Object { return nil }).Rows
		row := rows[slices.IndexFunc(rows, func(r ovsdb.Row) bool { return r.Table.Name == nb.LogicalSwitchPortTable })]
		decoded := func(r ovsdb.Row) netvirt.Model {
			all := netvirt.Model{}
			all.Add(testCodec.Decode(k, r)...)
			return all
		}
		require.Equal(t, m, decoded(row))
		_, ok := testCodec.Renewed(k, row)
		require.False(t, ok, "a row of this release")
		if name == "" || pod == "" || pod != impliedByPort(k, row.Value.(*nb.LogicalSwitchPort))[idPod] {
			return // no earlier release has written it
		}
		p, _ := newPort(m)
		earlier := *row.Value.(*nb.LogicalSwitchPort)
		earlier.ExternalIDs = testCodec.portIDs(k, p)
		earlier.Options = maps.Clone(earlier.Options)
		delete(earlier.Options, optionUnasked)
		now, ok := testCodec.Renewed(k, ovsdb.Row{Table: row.Table, Value: &earlier})
		require.True(t, ok)
		if noneIsMissing := !slices.Contains(slices.Collect(maps.Values(row.ExternalIDs())), ""); noneIsMissing {
			require.Equal(t, m, decoded(ovsdb.Row{Table: row.Table, Value: &earlier}))
			require.Equal(t, row, now)
		}
	})
}

// TestHoldingRows: in LayoutNode the row of an elan-instance or a subnet has only the pairs that are not implied. The row of an earlier release,
// with all pairs, holds the same object.
func TestHoldingRows(t *testing.T) {
	c := Codec{Owner: "owner", Layout: LayoutNode}
	const elan = "192.168.33.12:default"
	block := netvirt.Subnet{ELAN: elan, VPN: "default", Prefix: netip.MustParsePrefix("fd00::/64"), Gateway: netip.MustParseAddr("fd00::1"), LeaseTime: 3600}
	gateway := netvirt.Subnet{ELAN: elan, VPN: "default", Prefix: netip.MustParsePrefix("10.11.2.1/32"), Gateway: netip.MustParseAddr("10.11.2.1")}
	vxlan := netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000}
	flat := netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentFlat}
	for name, want := range map[string]struct {
		object netvirt.Object
		all    map[string]string
		pairs  []string
	}{
		"gateway":         {gateway, c.subnetIDs(gateway.Key(), gateway), []string{idVPN, "default"}},
		"block with DHCP": {block, c.subnetIDs(block.Key(), block), []string{idVPN, "default", idGateway, "fd00::1", idLease, "3600"}},
		"VXLAN":           {vxlan, c.elanIDs(vxlan.Key(), vxlan), []string{idVNI, "70000"}},
		"FLAT":            {flat, c.elanIDs(flat.Key(), flat), []string{idSegment, string(netvirt.SegmentFlat), idVNI, "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := want.object.Key()
			m := netvirt.Model{}
			m.Add(want.object)
			row := c.Encode(k, m, func(netvirt.Key) netvirt.Object { return nil }).Rows[0]
			require.Equal(t, c.Mark(k, "", want.pairs...), row.ExternalIDs())
			require.Equal(t, []netvirt.Object{want.object}, c.Decode(k, row))
			_, ok := c.Renewed(k, row)
			require.False(t, ok)

			earlier := *row.Value.(*nb.DHCPOptions)
			earlier.ExternalIDs = want.all
			former := ovsdb.Row{Table: row.Table, Value: &earlier}
			require.Equal(t, []netvirt.Object{want.object}, c.Decode(k, former))
			now, ok := c.Renewed(k, former)
			require.Equal(t, name != "FLAT", ok)
			if ok {
				require.Equal(t, row, now)
			}
		})
	}
}

// TestFormerGroups: the Port_Groups of elan-instances and vpn-instances from before decision 90 hold the object, so it stays in its namespace.
func TestFormerGroups(t *testing.T) {
	c := Codec{Owner: "owner", Layout: LayoutNode}
	vpn := netvirt.VPNInstance{Name: "ns", Namespace: "ns", RouteDistinguisher: "1:1", Transit: netvirt.CommonRouteTarget}
	elan := netvirt.ELANInstance{Name: "192.168.33.11:ns", SegmentType: netvirt.SegmentVXLAN, SegmentationID: 7}
	for o, ids := range map[netvirt.Object]map[string]string{vpn: c.vpnIDs(vpn.Key(), vpn), elan: c.elanIDs(elan.Key(), elan)} {
		row := ovsdb.Row{Table: Northbound.Table(nb.PortGroupTable), Value: &nb.PortGroup{UUID: c.UUID(nb.PortGroupTable, o.Key(), ""), ExternalIDs: ids}}
		head, ours := c.Marked(row)
		require.True(t, ours)
		require.Equal(t, o.Key(), head)
		require.Equal(t, []netvirt.Object{o}, c.Decode(head, row))
	}
}

package ovn_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// An elan-instance on a physical network has a port to it, under the name that the agent of its node knows, and reads back as it
// was written.
func TestLocalnetRows(t *testing.T) {
	node := netip.MustParseAddr("fd00::1")
	m := netvirt.Model{}
	elan := netvirt.ELANInstance{
		Name: netvirt.ELANName(node, "plant"), SegmentType: netvirt.SegmentVLAN, SegmentationID: 100, PhysicalNetwork: "cable",
		Subnets: netvirt.NewPrefixList(netip.MustParsePrefix("10.50.0.0/24"), netip.MustParsePrefix("fd50::/64")),
	}
	m.Add(elan)
	tagged, err := preview.New(m, ovn.LayoutELAN)
	require.NoError(t, err)
	var port preview.Row
	var acls []string
	for _, r := range tagged.Rows() {
		switch r.Table {
		case "Logical_Switch_Port":
			port = r
		case "ACL":
			acls = append(acls, fmt.Sprintf("%v %v %v", r.Columns["priority"], r.Columns["action"], r.Columns["match"]))
		}
	}
	require.Equal(t, "fd00::1:plant/localnet", port.Name)
	require.Equal(t, "localnet", port.Columns["type"])
	require.Equal(t, 100, port.Columns["tag"])
	require.Equal(t, map[string]string{"network_name": ovs.Physical{Node: node}.NameOf("cable")}, port.Columns["options"])
	require.ElementsMatch(t, []string{
		`2 allow inport == "fd00::1:plant/localnet" && (arp.tpa == 10.50.0.0/24 || (ip4.src == 10.50.0.0/24 && ip4.dst == 10.50.0.0/24)` +
			` || (ip6.src == {fd50::/64, fe80::/10, ::} && ip6.dst == {fd50::/64, fe80::/10, ff02::1:ff00:0/104}))`,
		`1 drop inport == "fd00::1:plant/localnet" && (arp || ip)`,
	}, acls)

	elan.SegmentType, elan.SegmentationID, elan.Subnets = netvirt.SegmentFlat, 0, netvirt.NewPrefixList(netip.MustParsePrefix("10.50.0.0/24"))
	m.Add(elan)
	flat, err := preview.New(m, ovn.LayoutELAN)
	require.NoError(t, err)
	for _, r := range flat.Rows() {
		require.NotContains(t, r.Columns, "tag")
		if r.Table == "ACL" && r.Columns["action"] == "allow" {
			require.NotContains(t, r.Columns["match"], "ip6")
		}
	}
}

// TestLocalnetChanges: an elan-instance gets a physical network, another VLAN, and none again. Its pod keeps its port, and nothing
// is left.
func TestLocalnetChanges(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			server := ovsdb.Start(t)
			b := open(t, server, func(c *ovn.Config) { c.Layout = layout })
			overlay := withHost("pod", "0a:58:ac:10:00:05")
			if layout == ovn.LayoutNode {
				overlay = withGateways(overlay)
			}
			with := func(segment netvirt.SegmentType, tag uint32) netvirt.Model {
				attached := maps.Clone(overlay)
				attached.Add(netvirt.ELANInstance{
					Name: "192.0.2.1:a", SegmentType: segment, SegmentationID: tag, PhysicalNetwork: "cable", Subnets: "10.50.0.0/24,fd50::/64",
				})
				return attached
			}
			port := func(column string) string {
				return strings.TrimSpace(server.NBCtl(t, "get", "Logical_Switch_Port", "192.0.2.1:a/localnet", column))
			}
			write(t, b, overlay)
			before := server.Dump(t, tables...)
			pod := server.NBCtl(t, "get", "Logical_Switch_Port", "a:pod", "_uuid")
			vlan, flat := with(netvirt.SegmentVLAN, 100), with(netvirt.SegmentFlat, 0)
			write(t, b, vlan)
			require.Equal(t, "100", port("tag"))
			require.Contains(t, server.NBCtl(t, "lsp-list", "192.0.2.1:a"), "(a:pod)")
			server.NBCtl(t, "set", "Logical_Switch_Port", "192.0.2.1:a/localnet", "tag=7")
			write(t, b, vlan)
			require.Equal(t, "100", port("tag"))
			write(t, b, flat)
			require.Equal(t, "[]", port("tag"))
			require.Equal(t, pod, server.NBCtl(t, "get", "Logical_Switch_Port", "a:pod", "_uuid"))
			write(t, b, overlay)
			require.Equal(t, before, server.Dump(t, tables...))
		})
	}
}

func model(objects ...netvirt.Object) netvirt.Model {
	m := netvirt.Model{}
	m.Add(objects...)
	return m
}

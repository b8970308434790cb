package codec

import (
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// priorityOutside is the priority of the ACL for packets from a physical network.
const priorityOutside = 1

// The sources and the destinations of packets by which IPv6 neighbours find each other, beside addresses of their network (RFC 4861).
const (
	neighbours6  = "fe80::/10, ::"
	neighboursTo = "fe80::/10, ff02::1:ff00:0/104"
)

// localnet adds the port by which a switch reaches its physical network. The network has another name on each node, so only
// ovn-controller on the node of the elan-instance knows a bridge for it. The other nodes send packets for the pods through a
// tunnel. If they had a bridge too, they would send these packets to the physical network, where nobody can tell them from
// packets of machines (decision 79).
//
// Only packets between addresses of the subnets come in: a machine could otherwise pretend to be a node, which policies allow,
// or use the gateway of the pods as a way to other namespaces.
func (c Codec) localnet(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance) {
	node, _, err := netvirt.ParseELANName(o.Name)
	if err != nil {
		return
	}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, roleLocalnet), Name: o.Name + "/" + roleLocalnet, Type: "localnet",
		Addresses: []string{"unknown"}, Options: map[string]string{"network_name": netvirt.PhysicalNetworkName(o.PhysicalNetwork, node)},
		ExternalIDs: c.mark(k, roleLocalnet),
	}
	if o.SegmentType == netvirt.SegmentVLAN {
		tag := int(o.SegmentationID)
		lsp.Tag = &tag
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.Name), "ports", lsp.UUID)
	acl := &nb.ACL{
		UUID: c.uuid(nb.ACLTable, k, roleLocalnet), Direction: nb.ACLDirectionFromLport, Priority: priorityOutside, Action: nb.ACLActionDrop,
		Match: fmt.Sprintf("inport == %q && (%s)", lsp.Name, outsideOf(o.Subnets)), ExternalIDs: c.mark(k, roleLocalnet),
	}
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.Name), "acls", acl.UUID)
}

// outsideOf returns a match for packets that are not between addresses of the subnets, at most one of each family.
func outsideOf(subnets netvirt.PrefixList) string {
	four, six := "arp || ip4", "ip6"
	for _, s := range subnets.All() {
		if s.Addr().Is4() {
			four = fmt.Sprintf("arp.tpa != %s || ip4.src != %s || ip4.dst != %s", s, s, s)
		} else {
			six = fmt.Sprintf("ip6.src != {%s, %s} || ip6.dst != {%s, %s}", s, neighbours6, s, neighboursTo)
		}
	}
	return strings.Join([]string{four, six}, " || ")
}

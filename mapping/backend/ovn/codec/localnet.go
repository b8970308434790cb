package codec

import (
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// The priorities of the ACLs for packets from a physical network. There are two, because a match that negates two sets of IPv6
// prefixes becomes 110,000 OpenFlow flows on each node.
const (
	priorityOutside = 1
	priorityInside  = 2
)

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
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, roleLocalnet), Name: localnetPort(o), Type: "localnet",
		Addresses: []string{"unknown"}, Options: map[string]string{"network_name": netvirt.PhysicalNetworkName(o.PhysicalNetwork, node)},
		ExternalIDs: c.Mark(k, roleLocalnet),
	}
	if o.SegmentType == netvirt.SegmentVLAN {
		tag := int(o.SegmentationID)
		lsp.Tag = &tag
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.Name), "ports", lsp.UUID)
	if match := insideOf(o.Subnets); match != "" {
		c.fromMachines(set, k, o, roleInside, priorityInside, nb.ACLActionAllow, match)
	}
	c.fromMachines(set, k, o, roleLocalnet, priorityOutside, nb.ACLActionDrop, "(arp || ip)")
}

// fromMachines adds an ACL for packets that come in from the physical network of an elan-instance.
func (c Codec) fromMachines(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, role string, priority int, action, match string) {
	acl := &nb.ACL{
		UUID: c.UUID(nb.ACLTable, k, role), Direction: nb.ACLDirectionFromLport, Priority: priority, Action: action,
		Match: fmt.Sprintf("inport == %q && %s", localnetPort(o), match), ExternalIDs: c.Mark(k, role),
	}
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.Name), "acls", acl.UUID)
}

// localnetPort is the name of the port by which an elan-instance reaches its physical network.
func localnetPort(o netvirt.ELANInstance) string { return o.Name + "/" + roleLocalnet }

// insideOf returns a match for packets between addresses of the subnets, at most one of each family; empty if there is none.
func insideOf(subnets netvirt.PrefixList) string {
	var all []string
	for _, s := range subnets.All() {
		if s.Addr().Is4() {
			all = append(all, fmt.Sprintf("arp.tpa == %s || (ip4.src == %s && ip4.dst == %s)", s, s, s))
		} else {
			all = append(all, fmt.Sprintf("(ip6.src == {%s, %s} && ip6.dst == {%s, %s})", s, neighbours6, s, neighboursTo))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, " || ") + ")"
}

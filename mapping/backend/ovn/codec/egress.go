package codec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Roles of rows of an egress IP. A port, and the policy that leads to it, have the number of the port in their role.
const (
	roleEgress     = "egress"
	roleEgressPort = "port"
)

// linkLocal4 stays on the node of the pod: it has the metadata of a cloud and caches of name servers.
var linkLocal4 = netip.MustParsePrefix("169.254.0.0/16")

func egressSwitch(number uint16) string { return "egress:" + strconv.Itoa(int(number)) }

// encodeEgressIP adds a switch behind the transit with the ports of the nodes that have a port, and policies for traffic of
// the selected pods. They match the same traffic as the policies of the nodes (see leave), and have precedence. One
// drops it, always. Above it, a policy for each port reroutes to the port: that of the second port above that of the
// first one, which is there whenever traffic leaves. So a move adds or removes the policy of the second port, and no packet
// finds none of them. IPv6 traffic of the pods does not leave: it would have the address of a node.
func (c Codec) encodeEgressIP(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := objects[k].(netvirt.EgressIP)
	if !ok {
		return
	}
	selected := fmt.Sprintf("%s && ip4.src == $%s && ip4.dst != %s", goesOut(o.Network), acl.AddressSetName(c.Owner, o.Group, netvirt.IPv4), linkLocal4)
	c.policy(set, k, o.Transit, &nb.LogicalRouterPolicy{
		Priority: priorityNoEgress, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.Mark(k, roleEgress), Match: selected,
	})
	if network, ok := look(nodeNetworkKey(o.Network)).(netvirt.NodeNetwork); ok && network.PrefixIPv6.IsValid() {
		c.policy(set, k, o.Transit, &nb.LogicalRouterPolicy{
			Priority: priorityNoEgress, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.Mark(k, roleIn(roleEgress, network.PrefixIPv6.Addr())),
			Match: fmt.Sprintf("%s && ip6.src == $%s", goesOut(o.Network), acl.AddressSetName(c.Owner, o.Group, netvirt.IPv6)),
		})
	}
	ids := []string{
		idGroup, o.Group, idNetwork, o.Network.String(), idTransit, o.Transit, idNumber, strconv.Itoa(int(o.Number)), idActive, strconv.Itoa(int(o.Active)),
	}
	switchUUID := c.UUID(nb.LogicalSwitchTable, k, "")
	for i, host := range o.Hosts {
		if !host.Node.IsValid() {
			continue
		}
		number := strconv.Itoa(i + 1)
		ids = append(ids, idHost+number, host.Node.String()+" "+host.Chassis)
		lsp := &nb.LogicalSwitchPort{
			UUID: c.UUID(nb.LogicalSwitchPortTable, k, roleEgressPort+number), Name: netvirt.EgressPortName(o.Number, i),
			Addresses:   []string{netvirt.EgressMAC(o.Number, i) + " " + netvirt.EgressNextHop(o.Number, i).String()},
			Options:     map[string]string{"requested-chassis": host.Chassis},
			ExternalIDs: c.Mark(k, roleEgressPort+number),
		}
		set.Add(lsp)
		set.Link(nb.LogicalSwitchTable, switchUUID, "ports", lsp.UUID)
		if int(o.Active) > i {
			c.policy(set, k, o.Transit, &nb.LogicalRouterPolicy{
				Priority: priorityEgress - len(o.Hosts)*int(o.Number) + i, Action: nb.LogicalRouterPolicyActionReroute, Match: selected,
				Nexthops: []string{netvirt.EgressNextHop(o.Number, i).String()}, ExternalIDs: c.Mark(k, roleEgressPort+number),
			})
		}
	}
	name := egressSwitch(o.Number)
	c.routerPort(set, k, roleEgress, c.routerUUID(transitKey(o.Transit)), "router:"+name, netvirt.EgressLink(o.Number))
	lsp := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, ""), Name: "switch:" + name, Type: "router",
		Addresses: []string{"router"}, Options: map[string]string{"router-port": "router:" + name}, ExternalIDs: c.Mark(k, ""),
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, switchUUID, "ports", lsp.UUID)
	set.Add(&nb.LogicalSwitch{UUID: switchUUID, Name: name, ExternalIDs: c.Mark(k, "", ids...)})
}

// decodeEgressIP decodes the switch of encodeEgressIP.
func decodeEgressIP(k netvirt.Key, s *nb.LogicalSwitch) []netvirt.Object {
	ids := s.ExternalIDs
	network, _ := netip.ParsePrefix(ids[idNetwork])
	number, _ := strconv.ParseUint(ids[idNumber], 10, 16)
	active, _ := strconv.ParseUint(ids[idActive], 10, 8)
	o := netvirt.EgressIP{
		Name: k.Name, Group: ids[idGroup], Network: network, Transit: ids[idTransit], Number: uint16(number), Active: uint8(active),
	}
	for i := range o.Hosts {
		node, chassis, _ := strings.Cut(ids[idHost+strconv.Itoa(i+1)], " ")
		o.Hosts[i].Node, _ = netip.ParseAddr(node)
		o.Hosts[i].Chassis = chassis
	}
	return []netvirt.Object{o}
}

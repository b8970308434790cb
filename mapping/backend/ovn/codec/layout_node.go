package codec

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// byNode is LayoutNode. A gateway of a node is a port of the transit's router with the MAC address that the gateway has in
// LayoutELAN: running pods know that address, and lose no packet when the layout changes. All gateways of a node are in its
// Node: several elan-instances of a node may have pods behind one gateway, and a row has one owner.
type byNode struct{ Codec }

func nodeSwitch(node netip.Addr) string { return "node:" + node.String() }

func nodeSwitchPort(node, gateway netip.Addr) string {
	return "switch:" + nodeSwitch(node) + "/" + gateway.String()
}

func nodeRouterPort(node, gateway netip.Addr) string {
	return "router:" + nodeSwitch(node) + "/" + gateway.String()
}

// transitOptions: the router asks for the MAC addresses of other routers. Otherwise ovn-northd would make two logical flows for
// each pair of gateways of a node.
func (byNode) transitOptions() map[string]string {
	return map[string]string{"dynamic_neigh_routers": "true"}
}

// node adds the switch of the pods of a node, and its gateways on the transit's router. Pods reach the services of all
// namespaces. A node without a host name is one that no source reports: services have no places there.
func (c byNode) node(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Node, look Lookup) {
	transit := transitKey(netvirt.CommonRouteTarget)
	joined := look(transit) != nil
	s := &nb.LogicalSwitch{
		UUID: c.UUID(nb.LogicalSwitchTable, k, ""), Name: nodeSwitch(o.Address),
		ExternalIDs: c.Mark(k, "", idAddress, o.Address.String(), idHostName, o.HostName, idChassis, o.Chassis, idGateway, string(o.Gateways)),
	}
	if joined {
		place := c.balancersUUID(k)
		if o.HostName == "" {
			place = c.elsewhereUUID(transit)
		}
		s.LoadBalancerGroup = []string{c.balancersUUID(transit), place}
	}
	set.Add(s)
	if !joined {
		return
	}
	gateways := o.Gateways.Addresses()
	for _, gateway := range gateways {
		c.nodeGateway(set, k, o, gateway)
	}
	for _, subnet := range o.Gateways.Networks() {
		if !subnet.IsSingleIP() {
			c.wayOutByGateway(set, k, roleWayOut+" "+subnet.String(), o.Address, subnet, look)
		}
	}
	if len(gateways) > 0 {
		c.wayOutByNode(set, k, o.Address, gateways, look)
	}
}

// nodeGateway adds a gateway of a node: a port of the transit's router, behind a port of the node's switch.
func (c byNode) nodeGateway(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Node, gateway netip.Addr) {
	role := gateway.String()
	port := &nb.LogicalRouterPort{
		UUID: c.UUID(nb.LogicalRouterPortTable, k, role), Name: nodeRouterPort(o.Address, gateway), MAC: gatewayMAC(gateway).String(),
		Networks: o.Gateways.WithAddress(gateway), ExternalIDs: c.Mark(k, role),
	}
	if network := o.Gateways.Around(gateway, gateway.Next()); gateway.Is6() && network.IsValid() {
		port.Ipv6RaConfigs = raConfigs()
	}
	if o.Chassis != "" {
		c.bindGateway(set, k, port, o.Chassis)
	}
	set.Add(port)
	set.Link(nb.LogicalRouterTable, c.routerUUID(transitKey(netvirt.CommonRouteTarget)), "ports", port.UUID)
	c.switchPort(set, k, role, nodeSwitchPort(o.Address, gateway), port.Name, c.UUID(nb.LogicalSwitchTable, k, ""))
}

// bindGateway makes a gateway a distributed gateway port on the chassis of its node: OVN sends packets to its pods there first. Then
// ovn-controller computes the flows of the switch of a node on that node alone.
func (c byNode) bindGateway(set *ovsdb.RowSet, k netvirt.Key, port *nb.LogicalRouterPort, chassis string) {
	at := &nb.GatewayChassis{
		UUID: c.UUID(nb.GatewayChassisTable, k, port.ExternalIDs[identity.IDRole]), Name: port.Name, ChassisName: chassis, ExternalIDs: port.ExternalIDs,
	}
	port.GatewayChassis = []string{at.UUID}
	set.Add(at)
}

// wayOutByGateway adds the policy by which traffic from pods of a node leaves the network by the gateway on the node, if
// there is one.
func (c byNode) wayOutByGateway(set *ovsdb.RowSet, k netvirt.Key, role string, node netip.Addr, pods netip.Prefix, look Lookup) {
	if gateway, ok := look(netvirt.GatewayKey(node)).(netvirt.Gateway); ok && gateway.Translates(pods) {
		c.byGateway(set, k, role+"/"+roleGateway, priorityGateway, gateway, pods)
	}
}

// wayOutByNode adds the policies by which traffic from the pods of a node, which comes in by its gateways, leaves the
// network by the node, if it has a management port. Traffic to some destinations leaves by the node whatever gateways of
// OVN there are.
func (c byNode) wayOutByNode(set *ovsdb.RowSet, k netvirt.Key, node netip.Addr, gateways []netip.Addr, look Lookup) {
	port, ok := look(netvirt.ManagementPort{Node: node}.Key()).(netvirt.ManagementPort)
	if !ok {
		return
	}
	network, ok := look(nodeNetworkKey(port.Network)).(netvirt.NodeNetwork)
	if !ok {
		return
	}
	for _, a := range port.Families() {
		role := roleIn(roleWayOut, a.Address)
		var inports []string
		for _, gateway := range gateways {
			if gateway.Is4() == a.Address.Is4() {
				inports = append(inports, strconv.Quote(nodeRouterPort(node, gateway)))
			}
		}
		if len(inports) == 0 {
			continue
		}
		match := "inport == {" + strings.Join(inports, ", ") + "} && " + familyOf(a.Address)
		c.leave(set, k, role, network.Transit, priorityWayOut, port.Network, a.Address, match)
		c.onNode(set, k, role, network, a.Address, match)
	}
}

// decodeNodeSwitch decodes the external_ids of the switch of node.
func (c Codec) decodeNodeSwitch(ids map[string]string) []netvirt.Object {
	address, err := netip.ParseAddr(ids[idAddress])
	gateways, ok := netvirt.ParseGatewayList(ids[idGateway])
	if c.Layout != LayoutNode || err != nil || !ok {
		return nil
	}
	return []netvirt.Object{netvirt.Node{Address: address, HostName: ids[idHostName], Chassis: ids[idChassis], Gateways: gateways}}
}

// elan adds the row that holds an elan-instance, or its switch if it has a physical network.
func (c byNode) elan(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, look Lookup) {
	if o.PhysicalNetwork != "" {
		c.elanSwitch(set, k, o, look)
		return
	}
	set.Add(c.holding(k, c.elanIDs(k, o)))
}

// vpn adds the row that holds a vpn-instance.
func (c byNode) vpn(set *ovsdb.RowSet, k netvirt.Key, o netvirt.VPNInstance) {
	set.Add(c.holding(k, c.vpnIDs(k, o)))
}

// holding returns a row that holds an object in its external_ids, and has no other effect: ovn-northd does not look at DHCP_Options
// that no port names.
func (c byNode) holding(k netvirt.Key, ids map[string]string) *nb.DHCPOptions {
	abridge(ids, impliedByHead(k))
	return &nb.DHCPOptions{UUID: c.UUID(nb.DHCPOptionsTable, k, ""), ExternalIDs: ids}
}

// impliedByHead returns the pairs that the row of holding does not have in its external_ids. The name of a subnet implies some. An elan-instance is
// usually of VXLAN, and a subnet without DHCP.
func impliedByHead(k netvirt.Key) map[string]string {
	switch k.Kind {
	case netvirt.KindELANInstance:
		return map[string]string{idSegment: string(netvirt.SegmentVXLAN)}
	case netvirt.KindSubnet:
		elan, prefix, _ := identity.ParseSubnetName(k.Name)
		implied := map[string]string{idELAN: elan, idPrefix: prefix.String(), idLease: "0"}
		if prefix.IsSingleIP() {
			implied[idGateway] = prefix.Addr().String()
		}
		return implied
	}
	return map[string]string{}
}

// hasSwitch reports whether an elan-instance has a switch of its own. The pods of other namespaces on the switch of its node
// would be attached to its physical network too.
func hasSwitch(elan string, look Lookup) bool {
	o, ok := look(elanKey(elan)).(netvirt.ELANInstance)
	return ok && o.PhysicalNetwork != ""
}

// subnet adds the row that holds a subnet. If pods have DHCP, it has their options. The gateway is in a row of its node, unless the
// elan-instance has a switch of its own.
func (c byNode) subnet(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, look Lookup) {
	row := c.holding(k, c.subnetIDs(k, o))
	if o.LeaseTime != 0 {
		row.Cidr, row.Options = c.cidr(o, look).String(), dhcpOptions(o)
	}
	set.Add(row)
	if hasSwitch(o.ELAN, look) {
		c.gatewayOfSwitch(set, k, o, look)
	}
}

// cidr returns the network for which DHCP serves the pods of a subnet: the block behind the gateway, if the subnet is the gateway alone.
func (c byNode) cidr(o netvirt.Subnet, look Lookup) netip.Prefix {
	if o.Prefix.IsSingleIP() && !hasSwitch(o.ELAN, look) {
		if block := c.behind(o.ELAN, o.Gateway, o.Gateway, look); block.IsValid() {
			return block
		}
	}
	return o.Prefix
}

// gatewayOfSwitch adds the gateway of a subnet of an elan-instance with a switch of its own, and the way out of its pods.
func (c byNode) gatewayOfSwitch(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, look Lookup) {
	transit := transitKey(netvirt.CommonRouteTarget)
	if look(transit) == nil {
		return
	}
	c.gateway(set, k, o, transit, c.Mark(k, ""))
	if vpn, ok := lookVPN(look, o.VPN); ok && !o.Prefix.IsSingleIP() {
		c.wayOut(set, k, roleWayOut, vpn, o.ELAN, o.Prefix, look)
	}
}

// decodeDHCPOptions decodes the row of elan, vpn or subnet of LayoutNode. The rows of LayoutELAN hold no object.
func decodeDHCPOptions(head netvirt.Key, row *nb.DHCPOptions) []netvirt.Object {
	ids := impliedByHead(head)
	maps.Copy(ids, row.ExternalIDs)
	switch {
	case head.Kind == netvirt.KindELANInstance:
		return decodeELAN(head, ids)
	case head.Kind == netvirt.KindVPNInstance:
		return decodeVPN(head, ids)
	case ids[idVPN] == "":
		return nil
	}
	return decodeSubnet(ids)
}

// switchOf returns the switch of the port's node, if the gateways of the port are there, or the switch of its elan-instance.
func (c byNode) switchOf(p port, look Lookup) (string, bool) {
	if hasSwitch(p.elan.ELAN, look) {
		return c.switchUUID(p.elan.ELAN), true
	}
	address, _, err := netvirt.ParseELANName(p.elan.ELAN)
	if err != nil {
		return "", false
	}
	node, ok := look(netvirt.Node{Address: address}.Key()).(netvirt.Node)
	if !ok {
		return "", false
	}
	gateways := node.Gateways.Addresses()
	for _, a := range p.adjacencies {
		if !slices.Contains(gateways, a.Gateway) {
			return "", false
		}
	}
	return c.UUID(nb.LogicalSwitchTable, node.Key(), ""), true
}

// network returns the network of the address: if its subnet is the gateway alone, the block behind the gateway, which the
// elan-instances of the node share.
func (c byNode) network(a netvirt.Adjacency, look Lookup) netip.Prefix {
	if !a.Network.Contains(a.Address) && !hasSwitch(a.ELAN, look) {
		if block := c.behind(a.ELAN, a.Gateway, a.Address, look); block.IsValid() {
			return block
		}
	}
	return a.Network
}

// behind returns the network of a gateway of the node of an elan-instance that contains an address; invalid if there is
// none.
func (byNode) behind(elan string, gateway, address netip.Addr, look Lookup) netip.Prefix {
	at, _, err := netvirt.ParseELANName(elan)
	node, ok := look(netvirt.Node{Address: at}.Key()).(netvirt.Node)
	if err != nil || !ok {
		return netip.Prefix{}
	}
	return node.Gateways.Around(gateway, address)
}

// host adds the route of the transit's router, which also needs the MAC address.
func (c byNode) host(set *ovsdb.RowSet, k netvirt.Key, p port, a netvirt.Adjacency, look Lookup) {
	node, _, err := netvirt.ParseELANName(a.ELAN)
	transit := transitKey(netvirt.CommonRouteTarget)
	if err != nil || look(transit) == nil {
		return
	}
	role := roleHost + a.Address.String()
	via, own := nodeRouterPort(node, a.Gateway), hasSwitch(a.ELAN, look)
	if own {
		via = gatewayPort(a.ELAN, a.Network)
	}
	c.route(set, k, role, c.routerUUID(transit), single(a.Address), a.Address, via)
	c.bindMAC(set, k, via, a.Address, a.MAC)
	if vpn, ok := lookVPN(look, p.vpn.VPN); own && ok {
		c.wayOut(set, k, roleWayOut+" "+role, vpn, a.ELAN, single(a.Address), look)
	} else if !own {
		c.wayOutByGateway(set, k, roleWayOut+" "+role, node, single(a.Address), look)
	}
}

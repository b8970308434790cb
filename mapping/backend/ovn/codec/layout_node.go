package codec

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// byNode is LayoutNode. A port of the transit's router is the gateway of all subnets of a node, so a further subnet is a
// network of that port. All networks of a node are in its Node: several elan-instances of a node may have pods of one
// subnet, and a row has one owner.
type byNode struct{ Codec }

func nodeSwitch(node netip.Addr) string     { return "node:" + node.String() }
func nodeSwitchPort(node netip.Addr) string { return "switch:node:" + node.String() }
func nodeRouterPort(node netip.Addr) string { return "router:node:" + node.String() }

// node adds the switch of the pods of a node, and its port on the transit's router. That port cannot be without a
// network, so it waits for the first subnet. Pods reach the services of all namespaces. A node without a host name is one
// that no source reports: services have no places there.
func (c byNode) node(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Node, look Lookup) {
	transit := transitKey(netvirt.CommonRouteTarget)
	joined := look(transit) != nil
	s := &nb.LogicalSwitch{UUID: c.uuid(nb.LogicalSwitchTable, k, ""), Name: nodeSwitch(o.Address), ExternalIDs: c.mark(k, "")}
	if joined {
		place := c.balancersUUID(k)
		if o.HostName == "" {
			place = c.elsewhereUUID(transit)
		}
		s.LoadBalancerGroup = []string{c.balancersUUID(transit), place}
	}
	set.Add(s)
	lsp := c.switchPort(set, k, nodeSwitchPort(o.Address), nodeRouterPort(o.Address), s.UUID)
	for key, value := range map[string]string{idAddress: o.Address.String(), idHostName: o.HostName, idGateway: string(o.Gateways)} {
		if value != "" {
			lsp.ExternalIDs[key] = value
		}
	}
	if !joined || o.Gateways == "" {
		return
	}
	port := &nb.LogicalRouterPort{
		UUID: c.uuid(nb.LogicalRouterPortTable, k, ""), Name: nodeRouterPort(o.Address), MAC: gatewayMAC(o.Address).String(),
		Networks: o.Gateways.Strings(), ExternalIDs: c.mark(k, ""),
	}
	if strings.Contains(string(o.Gateways), ":") {
		port.Ipv6RaConfigs = raConfigs()
	}
	set.Add(port)
	set.Link(nb.LogicalRouterTable, c.routerUUID(transit), "ports", port.UUID)
	for _, subnet := range o.Gateways.Networks() {
		if !subnet.IsSingleIP() {
			c.wayOutByGateway(set, k, roleWayOut+" "+subnet.String(), o.Address, subnet, look)
		}
	}
	c.wayOutByNode(set, k, o.Address, look)
}

// wayOutByGateway adds the policy by which traffic from pods of a node leaves the network by the gateway on the node, if
// there is one.
func (c byNode) wayOutByGateway(set *ovsdb.RowSet, k netvirt.Key, role string, node netip.Addr, pods netip.Prefix, look Lookup) {
	if gateway, ok := look(netvirt.GatewayKey(node)).(netvirt.Gateway); ok && gateway.Translates(pods) {
		c.byGateway(set, k, role+"/"+roleGateway, priorityGateway, gateway, pods)
	}
}

// wayOutByNode adds the policies by which traffic from the pods of a node leaves the network by the node, if it has a
// management port. Traffic to some destinations leaves by the node whatever gateways there are.
func (c byNode) wayOutByNode(set *ovsdb.RowSet, k netvirt.Key, node netip.Addr, look Lookup) {
	port, ok := look(netvirt.ManagementPort{Node: node}.Key()).(netvirt.ManagementPort)
	if !ok {
		return
	}
	network, ok := look(nodeNetworkKey(port.Network)).(netvirt.NodeNetwork)
	if !ok {
		return
	}
	for _, a := range port.Families() {
		role := roleWayOut
		if a.Address.Is6() {
			role = roleWayOut6
		}
		match := "inport == " + strconv.Quote(nodeRouterPort(node)) + " && " + familyOf(a.Address)
		c.leave(set, k, role, network.Transit, priorityWayOut, port.Network, a.Address, match)
		if network.OnNode != "" && a.Address.Is4() {
			c.leave(set, k, role+"/"+roleOnNode, network.Transit, priorityOnNode, port.Network, a.Address, match+" && ip4.dst == "+anyOf(network.OnNode))
		}
	}
}

// decodeNodeSwitch decodes the switch port of node.
func (c Codec) decodeNodeSwitch(lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := lsp.ExternalIDs
	address, err := netip.ParseAddr(ids[idAddress])
	gateways, ok := netvirt.ParseGatewayList(ids[idGateway])
	if c.Layout != LayoutNode || err != nil || !ok {
		return nil
	}
	return []netvirt.Object{netvirt.Node{Address: address, HostName: ids[idHostName], Gateways: gateways}}
}

// elan adds the group that stands for an elan-instance.
func (c byNode) elan(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, _ Lookup) {
	set.Add(&nb.PortGroup{UUID: c.uuid(nb.PortGroupTable, k, ""), Name: c.matchName("/elan/" + o.Name), ExternalIDs: c.elanIDs(k, o)})
}

// vpn adds the group that stands for a vpn-instance.
func (c byNode) vpn(set *ovsdb.RowSet, k netvirt.Key, o netvirt.VPNInstance) {
	set.Add(&nb.PortGroup{UUID: c.uuid(nb.PortGroupTable, k, ""), Name: c.matchName("/vpn/" + o.Name), ExternalIDs: c.vpnIDs(k, o)})
}

// subnet adds the DHCP options of the subnet's pods. They also hold its fields: its gateway is in a row of its node.
func (c byNode) subnet(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Subnet, _ Lookup) {
	row := c.dhcpOptions(k, o)
	row.ExternalIDs = c.subnetIDs(k, o)
	set.Add(row)
}

// decodeDHCPOptions decodes the row of subnet. In LayoutELAN these rows hold no object.
func decodeDHCPOptions(row *nb.DHCPOptions) []netvirt.Object {
	if row.ExternalIDs[idELAN] == "" {
		return nil
	}
	return decodeSubnet(row.ExternalIDs)
}

// switchOf returns the switch of the port's node, if the gateways of the port are there.
func (c byNode) switchOf(p port, look Lookup) (string, bool) {
	address, _, err := netvirt.ParseELANName(p.elan.ELAN)
	if err != nil {
		return "", false
	}
	node, ok := look(netvirt.Node{Address: address}.Key()).(netvirt.Node)
	if !ok {
		return "", false
	}
	for _, a := range p.adjacencies {
		if !node.Gateways.Has(a.Gateway, a.Network) {
			return "", false
		}
	}
	return c.uuid(nb.LogicalSwitchTable, node.Key(), ""), true
}

// host adds the route of the transit's router, which also needs the MAC address.
func (c byNode) host(set *ovsdb.RowSet, k netvirt.Key, _ port, a netvirt.Adjacency, look Lookup) {
	node, _, err := netvirt.ParseELANName(a.ELAN)
	transit := transitKey(netvirt.CommonRouteTarget)
	if err != nil || look(transit) == nil {
		return
	}
	role := roleHost + a.Address.String()
	c.route(set, k, role, c.routerUUID(transit), single(a.Address), a.Address, nodeRouterPort(node))
	c.bindMAC(set, k, role, nodeRouterPort(node), a.Address, a.MAC)
	c.wayOutByGateway(set, k, roleWayOut+" "+role, node, single(a.Address), look)
}

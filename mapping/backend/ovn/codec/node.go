package codec

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Roles of rows of nodes.
const (
	roleNodes  = "nodes"   // the transit's port to a node network
	roleWayOut = "way-out" // for traffic that leaves the network
	roleNoWay  = "no-way"  // drops traffic that cannot leave by its node
	roleNode   = "node"    // for traffic to the node's own address
	roleSecond = "second"  // for traffic of gateways to the node's second address
	roleOnNode = "on-node" // for traffic of pods that takes the node although a gateway leads other traffic
)

// roleIn returns the role of the row for the family of an address, of a group that has a row for each.
func roleIn(role string, family netip.Addr) string {
	if family.Is6() {
		return role + "-ipv6"
	}
	return role
}

// Priorities of policies on the transit: a way out has precedence, and an egress address before it. EgressIPs have
// priorities below priorityEgress, by their number.
const (
	priorityNoWay    = 1
	priorityWayOut   = 100
	priorityGateway  = 101
	priorityOnNode   = 300 // above priorityPinned
	priorityNoEgress = 20_000
	priorityEgress   = 30_000
)

func nodesPort(network netip.Prefix) string { return "router:nodes:" + network.String() }
func wayOutPort(network netip.Prefix) string {
	return "router:nodes:" + roleWayOut + "/" + network.String()
}
func nodesSwitch(network netip.Prefix) string { return "nodes:" + network.String() }

// The two ends of a link with nothing at the far end: the transit's default route leads
// there. Only the transit has the link. OVN gives the near end a link-local IPv6 address.
var (
	wayOutNear    = netip.MustParsePrefix("169.254.0.1/30")
	wayOutFar     = netip.MustParseAddr("169.254.0.2")
	wayOutFarIPv6 = linkLocal(gatewayMAC(wayOutFar))
)

// encodeNode adds the group of the load balancers whose endpoints depend on where the client is, for
// the pods of a node. The table has no external_ids, so the group's name holds the node.
func (c Codec) encodeNode(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	if o, ok := objects[k].(netvirt.Node); ok {
		set.Add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(k), Name: c.NodeBalancerGroup() + o.Address.String() + "/" + o.HostName})
		c.arrangement().node(set, k, o, look)
	}
}

// decodeNode decodes the group of encodeNode. In LayoutNode another row holds the node.
func (c Codec) decodeNode(group *nb.LoadBalancerGroup) []netvirt.Object {
	o, ok := c.ParseNodeBalancerGroup(group.Name)
	if !ok || c.Layout == LayoutNode {
		return nil
	}
	return []netvirt.Object{o}
}

// encodeNodeNetwork adds the switch of the nodes' management ports, behind a port of the
// transit's router. Nodes reach the same services as pods: the services of all namespaces that
// share the transit. All nodes share the switch, so where they are does not count.
//
// The transit's default route leads to a port with nothing behind it. Policies match
// that port and reroute the traffic to the node of its pod (see wayOut); other traffic
// is dropped. Source routes cannot replace the policies: a route with a long source
// prefix takes precedence over a route with a shorter destination prefix.
func (c Codec) encodeNodeNetwork(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := objects[k].(netvirt.NodeNetwork)
	if !ok {
		return
	}
	transit := transitKey(o.Transit)
	gateways := []netip.Prefix{netip.PrefixFrom(o.Gateway, o.Prefix.Bits())}
	ids := []string{idPrefix, o.Prefix.String(), idGateway, o.Gateway.String(), idTransit, o.Transit, idOneWay, flag(o.OneWay), idOnNode, string(o.OnNode), idLinks, string(o.GatewayLinks)}
	if o.PrefixIPv6.IsValid() {
		gateways = append(gateways, netip.PrefixFrom(o.GatewayIPv6, o.PrefixIPv6.Bits()))
		ids = append(ids, idPrefix6, o.PrefixIPv6.String(), idGateway6, o.GatewayIPv6.String())
		c.route(set, k, roleIn(roleWayOut, wayOutFarIPv6), c.routerUUID(transit), netip.PrefixFrom(netip.IPv6Unspecified(), 0), wayOutFarIPv6, wayOutPort(o.Prefix))
	}
	c.routerPort(set, k, roleNodes, c.routerUUID(transit), nodesPort(o.Prefix), gateways...)
	c.routerPort(set, k, roleWayOut, c.routerUUID(transit), wayOutPort(o.Prefix), wayOutNear)
	c.route(set, k, roleWayOut, c.routerUUID(transit), netip.PrefixFrom(netip.IPv4Unspecified(), 0), wayOutFar, wayOutPort(o.Prefix))
	c.policy(set, k, o.Transit, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, Match: goesOut(o.Prefix), ExternalIDs: c.Mark(k, roleNoWay),
	})
	lsp := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, ""), Name: "switch:nodes:" + o.Prefix.String(), Type: "router",
		Addresses: []string{"router"}, Options: map[string]string{"router-port": nodesPort(o.Prefix)}, ExternalIDs: c.Mark(k, ""),
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.nodesUUID(o.Prefix), "ports", lsp.UUID)
	set.Add(&nb.LogicalSwitch{
		UUID: c.nodesUUID(o.Prefix), Name: nodesSwitch(o.Prefix), LoadBalancerGroup: []string{c.balancersUUID(transit), c.elsewhereUUID(transit)},
		ExternalIDs: c.Mark(k, "", ids...),
	})
	if o.OneWay {
		c.passing(set, k, o)
	}
}

// flag returns a text that is empty if is is not set.
func flag(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// passing makes the switch track only connections that nodes begin: only these can be to services. Packets between pods
// and addresses outside the network just pass, and may pass in one direction only: pods of an EgressIP leave by another
// switch, and answers come in here. The errors of a node about such packets pass too (RFC 792: unreachable, time exceeded,
// parameter problem).
func (c Codec) passing(set *ovsdb.RowSet, head netvirt.Key, o netvirt.NodeNetwork) {
	for _, acl := range []*nb.ACL{
		{Direction: nb.ACLDirectionToLport, Match: "ip4.dst != " + o.Prefix.String()},
		{Direction: nb.ACLDirectionFromLport, Match: "ip4.src != " + o.Prefix.String() + " || icmp4.type == {3, 11, 12}"},
	} {
		c.stateless(set, head, o.Prefix, acl)
	}
}

// stateless adds an ACL whose packets the switch does not track.
func (c Codec) stateless(set *ovsdb.RowSet, head netvirt.Key, network netip.Prefix, acl *nb.ACL) {
	acl.UUID, acl.ExternalIDs = c.UUID(nb.ACLTable, head, acl.Direction), c.Mark(head, acl.Direction)
	acl.Priority, acl.Action = 1, nb.ACLActionAllowStateless
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.nodesUUID(network), "acls", acl.UUID)
}

func (c Codec) nodesUUID(network netip.Prefix) string {
	return c.UUID(nb.LogicalSwitchTable, nodeNetworkKey(network), "")
}

// routerPort adds a port with addresses to a router. Its MAC address is that of the first one.
func (c Codec) routerPort(set *ovsdb.RowSet, head netvirt.Key, role, router, name string, at ...netip.Prefix) {
	port := &nb.LogicalRouterPort{
		UUID: c.UUID(nb.LogicalRouterPortTable, head, role), Name: name, MAC: gatewayMAC(at[0].Addr()).String(),
		ExternalIDs: c.Mark(head, role),
	}
	for _, a := range at {
		port.Networks = append(port.Networks, a.String())
	}
	set.Add(port)
	set.Link(nb.LogicalRouterTable, router, "ports", port.UUID)
}

// policy adds a policy to a transit. The role is in the policy's external_ids.
func (c Codec) policy(set *ovsdb.RowSet, head netvirt.Key, transit string, p *nb.LogicalRouterPolicy) {
	c.policyOf(set, c.routerUUID(transitKey(transit)), head, p)
}

// policyOf adds a policy to a router, like policy.
func (c Codec) policyOf(set *ovsdb.RowSet, router string, head netvirt.Key, p *nb.LogicalRouterPolicy) {
	p.UUID = c.UUID(nb.LogicalRouterPolicyTable, head, p.ExternalIDs[identity.IDRole])
	set.Add(p)
	set.Link(nb.LogicalRouterTable, router, "policies", p.UUID)
}

// goesOut matches traffic that takes the transit's default route.
func goesOut(network netip.Prefix) string { return fmt.Sprintf("outport == %q", wayOutPort(network)) }

// encodeManagementPort adds the port that the node itself is plugged into. Traffic to
// the node's address is routed to this port and needs no address translation. Its second address is reported by the node itself, so
// only gateways reach it here, which lead to it because it is an endpoint. If the
// node uses a service with an endpoint outside the network, the answers come back here.
func (c Codec) encodeManagementPort(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := objects[k].(netvirt.ManagementPort)
	if !ok {
		return
	}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, ""), Name: o.Name(), Options: map[string]string{},
		ExternalIDs: c.Mark(k, "", idNetwork, o.Network.String(), idAddress, o.Address.String(),
			idServiceIP, o.ServiceAddress.String(), idMAC, o.MAC, idChassis, o.Chassis),
	}
	if o.EdgeAddress.IsValid() {
		lsp.ExternalIDs[idEdgeIP] = o.EdgeAddress.String()
	}
	if o.IPv6.Address.IsValid() {
		lsp.ExternalIDs[idAddress6], lsp.ExternalIDs[idServiceIP6] = o.IPv6.Address.String(), o.IPv6.Service.String()
		if o.IPv6.Edge.IsValid() {
			lsp.ExternalIDs[idEdgeIP6] = o.IPv6.Edge.String()
		}
	}
	if o.Second.IsValid() {
		lsp.ExternalIDs[idSecond] = o.Second.String()
	}
	addresses := o.MAC
	for _, a := range o.Families() {
		addresses += " " + a.Address.String() + " " + texts(a.Sources(), " ")
	}
	lsp.Addresses = []string{addresses}
	if o.Chassis != "" {
		lsp.Options["requested-chassis"] = o.Chassis
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.nodesUUID(o.Network), "ports", lsp.UUID)
	c.untracked(set, k, o)
	network, ok := look(nodeNetworkKey(o.Network)).(netvirt.NodeNetwork)
	if !ok {
		return
	}
	for _, a := range o.Families() {
		if o.Node.Is4() == a.Address.Is4() {
			c.route(set, k, roleNode, c.routerUUID(transitKey(network.Transit)), single(o.Node), a.Address, nodesPort(o.Network))
		}
		c.leave(set, k, roleIn(roleWayOut, a.Address), network.Transit, priorityOnNode, o.Network, a.Address, familyOf(a.Address)+".src == "+sources(a))
		if from := network.GatewayLinks.In(a.Address); from != "" && o.Second.IsValid() && o.Second.Is4() == a.Address.Is4() {
			family := familyOf(a.Address)
			c.leave(set, k, roleSecond, network.Transit, priorityOnNode, o.Network, a.Address, fmt.Sprintf("%s.src == %s && %s.dst == %s", family, anyOf(from), family, o.Second))
		}
	}
}

// sources returns the addresses of a port that the node does not have, for a match.
func sources(a netvirt.NodeAddresses) string { return "{" + texts(a.Sources(), ", ") + "}" }

// matchSources returns a match for packets whose source or destination, as field says, is an address of a port that the
// node does not have.
func matchSources(o netvirt.ManagementPort, field string) string {
	match := fmt.Sprintf("ip4.%s == %s", field, sources(o.Families()[0]))
	if o.IPv6.Address.IsValid() {
		match = fmt.Sprintf("(%s || ip6.%s == %s)", match, field, sources(o.IPv6))
	}
	return match
}

// familyOf returns OVN's word for the family of an address.
func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "ip4"
	}
	return "ip6"
}

func texts(all []netip.Addr, separator string) string {
	list := make([]string, len(all))
	for i, a := range all {
		list[i] = a.String()
	}
	return strings.Join(list, separator)
}

// untracked makes the switch track a connection once if a node connects to a service
// whose endpoint is the node itself or is behind the node. The request leaves by the port
// that it came in by, and so does the answer, but there is one connection table for both
// directions. So a request is not tracked on its way out, nor an answer on its way in.
func (c Codec) untracked(set *ovsdb.RowSet, head netvirt.Key, o netvirt.ManagementPort) {
	for _, acl := range []*nb.ACL{
		{Direction: nb.ACLDirectionToLport, Match: fmt.Sprintf("outport == %q && %s", o.Name(), matchSources(o, "src"))},
		{Direction: nb.ACLDirectionFromLport, Match: fmt.Sprintf("inport == %q && %s", o.Name(), matchSources(o, "dst"))},
	} {
		c.stateless(set, head, o.Network, acl)
	}
}

// encodeNodePort adds the port that the node itself is plugged into, on the switch of its
// elan-instance. Pods reach it through a gateway of that switch. The gateway has no address
// of the node's network, so it needs the MAC address too.
func (c Codec) encodeNodePort(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := objects[k].(netvirt.NodePort)
	if !ok {
		return
	}
	addresses := []string{o.MAC}
	for _, a := range o.Addresses() {
		addresses[0] += " " + a.Address.String()
	}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, ""), Name: o.Name(), Options: map[string]string{},
		Addresses: addresses, PortSecurity: addresses,
		ExternalIDs: c.Mark(k, "", idVPN, o.VPN, idAddress, o.Address.String(), idMAC, o.MAC, idChassis, o.Chassis),
	}
	if o.Network.IsValid() {
		lsp.ExternalIDs[idNetwork] = o.Network.String()
	}
	if o.NetworkIPv6.IsValid() {
		lsp.ExternalIDs[idAddress6], lsp.ExternalIDs[idPrefix6] = o.IPv6.String(), o.NetworkIPv6.String()
	}
	if o.Edge.IsValid() { // of a backend whose nodes balance, which writes here too
		lsp.ExternalIDs[idEdgeIP], lsp.ExternalIDs[idGateway] = o.Edge.String(), o.EdgeGateway.String()
	}
	if o.Chassis != "" {
		lsp.Options["requested-chassis"] = o.Chassis
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.ELAN), "ports", lsp.UUID)
	for _, a := range o.Addresses() {
		role, via := roleNode, gatewayPort(o.ELAN, a.Network)
		if a.Address == o.IPv6 {
			role = roleIn(roleNode, a.Address)
		}
		c.route(set, k, role, c.routerUUID(vpnKey(o.VPN)), single(a.Address), a.Address, via)
		c.bindMAC(set, k, via, a.Address, o.MAC)
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// wayOut adds the policies by which traffic from pods of an elan-instance leaves the network: by the node, if it has
// a management port, and with precedence by the gateway on the node, if there is one. Traffic to some destinations
// leaves by the node whatever gateways there are.
func (c Codec) wayOut(set *ovsdb.RowSet, head netvirt.Key, role string, vpn netvirt.VPNInstance, elan string, from netip.Prefix, look Lookup) {
	node, _, err := netvirt.ParseELANName(elan)
	if err != nil || vpn.Transit == "" {
		return
	}
	if gateway, ok := look(netvirt.GatewayKey(node)).(netvirt.Gateway); ok && gateway.Translates(from) {
		c.byGateway(set, head, role+"/"+roleGateway, priorityGateway, gateway, from)
	}
	port, ok := look(netvirt.ManagementPort{Node: node}.Key()).(netvirt.ManagementPort)
	if !ok {
		return
	}
	for _, a := range port.Families() {
		if a.Address.Is4() != from.Addr().Is4() {
			continue
		}
		match := fmt.Sprintf("%s.src == %s", familyOf(a.Address), from)
		c.leave(set, head, role, vpn.Transit, priorityWayOut, port.Network, a.Address, match)
		if network, ok := look(nodeNetworkKey(port.Network)).(netvirt.NodeNetwork); ok {
			c.onNode(set, head, role, network, a.Address, match)
		}
	}
}

// onNode adds the policy by which traffic of pods that matches takes their node to some destinations, whatever gateways there
// are.
func (c Codec) onNode(set *ovsdb.RowSet, head netvirt.Key, role string, network netvirt.NodeNetwork, by netip.Addr, match string) {
	if to := network.OnNode.In(by); to != "" {
		match = fmt.Sprintf("%s && %s.dst == %s", match, familyOf(by), anyOf(to))
		c.leave(set, head, role+"/"+roleOnNode, network.Transit, priorityOnNode, network.Prefix, by, match)
	}
}

// leave adds the policy that reroutes traffic that matches and goes out to an address of a management port.
func (c Codec) leave(set *ovsdb.RowSet, head netvirt.Key, role, transit string, priority int, network netip.Prefix, by netip.Addr, match string) {
	c.policy(set, head, transit, &nb.LogicalRouterPolicy{
		Priority: priority, Action: nb.LogicalRouterPolicyActionReroute, Nexthops: []string{by.String()},
		Match: fmt.Sprintf("%s && %s", goesOut(network), match), ExternalIDs: c.Mark(head, role),
	})
}

// decodeNodeNetwork decodes the switch of encodeNodeNetwork.
func decodeNodeNetwork(s *nb.LogicalSwitch) []netvirt.Object {
	prefix, _ := netip.ParsePrefix(s.ExternalIDs[idPrefix])
	gateway, _ := netip.ParseAddr(s.ExternalIDs[idGateway])
	prefix6, _ := netip.ParsePrefix(s.ExternalIDs[idPrefix6])
	gateway6, _ := netip.ParseAddr(s.ExternalIDs[idGateway6])
	onNode, _ := netvirt.ParsePrefixList(s.ExternalIDs[idOnNode])
	links, _ := netvirt.ParsePrefixList(s.ExternalIDs[idLinks])
	return []netvirt.Object{netvirt.NodeNetwork{
		Prefix: prefix, Gateway: gateway, PrefixIPv6: prefix6, GatewayIPv6: gateway6,
		Transit: s.ExternalIDs[idTransit], OneWay: s.ExternalIDs[idOneWay] != "", OnNode: onNode, GatewayLinks: links,
	}}
}

// decodeManagementPort decodes the port of encodeManagementPort.
func decodeManagementPort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := lsp.ExternalIDs
	node, _ := netip.ParseAddr(k.Name)
	network, _ := netip.ParsePrefix(ids[idNetwork])
	address, _ := netip.ParseAddr(ids[idAddress])
	service, _ := netip.ParseAddr(ids[idServiceIP])
	edge, _ := netip.ParseAddr(ids[idEdgeIP])
	var six netvirt.NodeAddresses
	six.Address, _ = netip.ParseAddr(ids[idAddress6])
	six.Service, _ = netip.ParseAddr(ids[idServiceIP6])
	six.Edge, _ = netip.ParseAddr(ids[idEdgeIP6])
	second, _ := netip.ParseAddr(ids[idSecond])
	return []netvirt.Object{netvirt.ManagementPort{
		Node: node, Network: network, Address: address, ServiceAddress: service, EdgeAddress: edge, IPv6: six, Second: second,
		MAC: ids[idMAC], Chassis: ids[idChassis],
	}}
}

// decodeNodePort decodes the port of encodeNodePort.
func decodeNodePort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := lsp.ExternalIDs
	network, _ := netip.ParsePrefix(ids[idNetwork])
	address, _ := netip.ParseAddr(ids[idAddress])
	address6, _ := netip.ParseAddr(ids[idAddress6])
	network6, _ := netip.ParsePrefix(ids[idPrefix6])
	edge, _ := netip.ParseAddr(ids[idEdgeIP])
	gateway, _ := netip.ParseAddr(ids[idGateway])
	return []netvirt.Object{netvirt.NodePort{
		ELAN: k.Name, Network: network, VPN: ids[idVPN], Address: address, IPv6: address6, NetworkIPv6: network6, Edge: edge, EdgeGateway: gateway,
		MAC: ids[idMAC], Chassis: ids[idChassis],
	}}
}

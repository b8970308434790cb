package codec

import (
	"fmt"
	"net/netip"
	"strings"

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
	roleOnNode = "on-node" // for traffic of pods that takes the node although a gateway leads other traffic
)

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
// there. Only the transit has the link.
var (
	wayOutNear = netip.MustParsePrefix("169.254.0.1/30")
	wayOutFar  = netip.MustParseAddr("169.254.0.2")
)

// encodeNode adds the group of the load balancers whose endpoints depend on where the client is, for
// the pods of a node. The table has no external_ids, so the group's name holds the node.
func (c Codec) encodeNode(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	if o, ok := head[netvirt.Node](objects, k); ok {
		set.Add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(k), Name: c.nodeGroup() + o.Address.String() + "/" + o.HostName})
	}
}

// nodeGroup returns what the names of the groups of nodes begin with.
func (c Codec) nodeGroup() string { return c.Owner + "/node/" }

// parseNodeGroup returns the node of a group that encodeNode has named.
func (c Codec) parseNodeGroup(name string) (o netvirt.Node, ok bool) {
	text, found := strings.CutPrefix(name, c.nodeGroup())
	address, host, split := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	return netvirt.Node{Address: a, HostName: host}, found && split && err == nil
}

// decodeNode decodes the group of encodeNode.
func (c Codec) decodeNode(group *nb.LoadBalancerGroup) []netvirt.Object {
	o, ok := c.parseNodeGroup(group.Name)
	if !ok {
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
	o, ok := head[netvirt.NodeNetwork](objects, k)
	if !ok {
		return
	}
	transit := transitKey(o.Transit)
	c.routerPort(set, k, roleNodes, c.routerUUID(transit), nodesPort(o.Prefix), netip.PrefixFrom(o.Gateway, o.Prefix.Bits()))
	c.routerPort(set, k, roleWayOut, c.routerUUID(transit), wayOutPort(o.Prefix), wayOutNear)
	c.route(set, k, roleWayOut, c.routerUUID(transit), netip.PrefixFrom(netip.IPv4Unspecified(), 0), wayOutFar, wayOutPort(o.Prefix))
	c.policy(set, k, o.Transit, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, Match: goesOut(o.Prefix), ExternalIDs: c.mark(k, roleNoWay),
	})
	lsp := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, ""), Name: "switch:nodes:" + o.Prefix.String(), Type: "router",
		Addresses: []string{"router"}, Options: map[string]string{"router-port": nodesPort(o.Prefix)}, ExternalIDs: c.mark(k, ""),
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.nodesUUID(o.Prefix), "ports", lsp.UUID)
	set.Add(&nb.LogicalSwitch{
		UUID: c.nodesUUID(o.Prefix), Name: nodesSwitch(o.Prefix), LoadBalancerGroup: []string{c.balancersUUID(transit), c.elsewhereUUID(transit)},
		ExternalIDs: c.mark(k, "", idPrefix, o.Prefix.String(), idGateway, o.Gateway.String(), idTransit, o.Transit, idOneWay, flag(o.OneWay),
			idOnNode, string(o.OnNode)),
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
	acl.UUID, acl.ExternalIDs = c.uuid(nb.ACLTable, head, acl.Direction), c.mark(head, acl.Direction)
	acl.Priority, acl.Action = 1, nb.ACLActionAllowStateless
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.nodesUUID(network), "acls", acl.UUID)
}

func (c Codec) nodesUUID(network netip.Prefix) string {
	return c.uuid(nb.LogicalSwitchTable, nodeNetworkKey(network), "")
}

// routerPort adds a port with an address to a router.
func (c Codec) routerPort(set *ovsdb.RowSet, head netvirt.Key, role, router, name string, at netip.Prefix) {
	port := &nb.LogicalRouterPort{
		UUID: c.uuid(nb.LogicalRouterPortTable, head, role), Name: name, MAC: gatewayMAC(at.Addr()).String(),
		Networks: []string{at.String()}, ExternalIDs: c.mark(head, role),
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
	p.UUID = c.uuid(nb.LogicalRouterPolicyTable, head, p.ExternalIDs[IDRole])
	set.Add(p)
	set.Link(nb.LogicalRouterTable, router, "policies", p.UUID)
}

// goesOut matches traffic that takes the transit's default route.
func goesOut(network netip.Prefix) string { return fmt.Sprintf("outport == %q", wayOutPort(network)) }

// encodeManagementPort adds the port that the node itself is plugged into. Traffic to
// the node's address is routed to this port and needs no address translation. If the
// node uses a service with an endpoint outside the network, the answers come back here.
func (c Codec) encodeManagementPort(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := head[netvirt.ManagementPort](objects, k)
	if !ok {
		return
	}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, ""), Name: o.Name(), Options: map[string]string{},
		Addresses: []string{fmt.Sprintf("%s %s %s", o.MAC, o.Address, texts(o.Sources(), " "))},
		ExternalIDs: c.mark(k, "", idNetwork, o.Network.String(), idAddress, o.Address.String(),
			idServiceIP, o.ServiceAddress.String(), idMAC, o.MAC, idChassis, o.Chassis),
	}
	if o.EdgeAddress.IsValid() {
		lsp.ExternalIDs[idEdgeIP] = o.EdgeAddress.String()
	}
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
	if o.Node.Is4() == o.Address.Is4() {
		c.route(set, k, roleNode, c.routerUUID(transitKey(network.Transit)), single(o.Node), o.Address, nodesPort(o.Network))
	}
	c.leave(set, k, roleWayOut, network.Transit, priorityOnNode, o, "ip4.src == "+sources(o))
}

// sources returns the port's addresses that the node does not have, for a match.
func sources(o netvirt.ManagementPort) string { return "{" + texts(o.Sources(), ", ") + "}" }

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
		{Direction: nb.ACLDirectionToLport, Match: fmt.Sprintf("outport == %q && ip4.src == %s", o.Name(), sources(o))},
		{Direction: nb.ACLDirectionFromLport, Match: fmt.Sprintf("inport == %q && ip4.dst == %s", o.Name(), sources(o))},
	} {
		c.stateless(set, head, o.Network, acl)
	}
}

// encodeNodePort adds the port that the node itself is plugged into, on the switch of its
// elan-instance. Pods reach it through a gateway of that switch. The gateway has no address
// of the node's network, so it needs the MAC address too.
func (c Codec) encodeNodePort(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := head[netvirt.NodePort](objects, k)
	if !ok {
		return
	}
	addresses := []string{o.MAC + " " + o.Address.String()}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, ""), Name: o.Name(), Options: map[string]string{},
		Addresses: addresses, PortSecurity: addresses,
		ExternalIDs: c.mark(k, "", idNetwork, o.Network.String(), idVPN, o.VPN, idAddress, o.Address.String(), idMAC, o.MAC, idChassis, o.Chassis),
	}
	if o.Chassis != "" {
		lsp.Options["requested-chassis"] = o.Chassis
	}
	set.Add(lsp)
	set.Link(nb.LogicalSwitchTable, c.switchUUID(o.ELAN), "ports", lsp.UUID)
	via := gatewayPort(o.ELAN, o.Network)
	c.route(set, k, roleNode, c.routerUUID(vpnKey(o.VPN)), single(o.Address), o.Address, via)
	c.bindMAC(set, k, roleNode, via, o.Address, o.MAC)
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
	if ok && port.Address.Is4() == from.Addr().Is4() {
		c.leave(set, head, role, vpn.Transit, priorityWayOut, port, "ip4.src == "+from.String())
		if network, ok := look(nodeNetworkKey(port.Network)).(netvirt.NodeNetwork); ok && network.OnNode != "" {
			c.leave(set, head, role+"/"+roleOnNode, vpn.Transit, priorityOnNode, port, fmt.Sprintf("ip4.src == %s && ip4.dst == %s", from, anyOf(network.OnNode)))
		}
	}
}

// leave adds the policy that reroutes traffic that matches and goes out to a management port.
func (c Codec) leave(set *ovsdb.RowSet, head netvirt.Key, role, transit string, priority int, by netvirt.ManagementPort, match string) {
	c.policy(set, head, transit, &nb.LogicalRouterPolicy{
		Priority: priority, Action: nb.LogicalRouterPolicyActionReroute, Nexthops: []string{by.Address.String()},
		Match: fmt.Sprintf("%s && %s", goesOut(by.Network), match), ExternalIDs: c.mark(head, role),
	})
}

// decodeNodeNetwork decodes the switch of encodeNodeNetwork.
func decodeNodeNetwork(s *nb.LogicalSwitch) []netvirt.Object {
	prefix, _ := netip.ParsePrefix(s.ExternalIDs[idPrefix])
	gateway, _ := netip.ParseAddr(s.ExternalIDs[idGateway])
	onNode, _ := parsePrefixes(s.ExternalIDs[idOnNode])
	return []netvirt.Object{netvirt.NodeNetwork{
		Prefix: prefix, Gateway: gateway, Transit: s.ExternalIDs[idTransit], OneWay: s.ExternalIDs[idOneWay] != "", OnNode: onNode,
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
	return []netvirt.Object{netvirt.ManagementPort{
		Node: node, Network: network, Address: address, ServiceAddress: service, EdgeAddress: edge, MAC: ids[idMAC], Chassis: ids[idChassis],
	}}
}

// decodeNodePort decodes the port of encodeNodePort.
func decodeNodePort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := lsp.ExternalIDs
	network, _ := netip.ParsePrefix(ids[idNetwork])
	address, _ := netip.ParseAddr(ids[idAddress])
	return []netvirt.Object{netvirt.NodePort{
		ELAN: k.Name, Network: network, VPN: ids[idVPN], Address: address, MAC: ids[idMAC], Chassis: ids[idChassis],
	}}
}

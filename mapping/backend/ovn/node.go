package ovn

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Roles of rows of nodes.
const (
	roleNodes  = "nodes"   // the transit's port to a node network
	roleWayOut = "way-out" // of what the network does not have
	roleNoWay  = "no-way"  // for those whose node has no way out
)

// Priorities of policies on the transit: whoever has a way out takes that.
const (
	priorityNoWay  = 1
	priorityWayOut = 100
)

func nodesPort(network netip.Prefix) string { return "router:nodes:" + network.String() }
func wayOutPort(network netip.Prefix) string {
	return "router:nodes:" + roleWayOut + "/" + network.String()
}
func nodesSwitch(network netip.Prefix) string { return "nodes:" + network.String() }

// The ends of the link to nowhere that what the network does not have is routed to.
// No other router of ours knows of it.
var (
	wayOutNear = netip.MustParsePrefix("169.254.0.1/30")
	wayOutFar  = netip.MustParseAddr("169.254.0.2")
)

// encodeNodeNetwork makes the switch that nodes' management ports are on, behind a
// port of the transit's router. Nodes reach what pods reach: the services of all
// who share the transit.
//
// What the transit does not know is routed to a port behind which there is nothing.
// Policies see that, and send it to the node of the pod that it comes from (wayOut);
// the rest is dropped. Routes by source would not do: a long prefix of a source wins
// over a shorter one of a destination.
func (c codec) encodeNodeNetwork(set *rowSet, k netvirt.Key, objects netvirt.Model) {
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
	set.add(lsp)
	set.link(nb.LogicalSwitchTable, c.nodesUUID(o.Prefix), "ports", lsp.UUID)
	set.add(&nb.LogicalSwitch{
		UUID: c.nodesUUID(o.Prefix), Name: nodesSwitch(o.Prefix), LoadBalancerGroup: []string{c.balancersUUID(transit)},
		ExternalIDs: c.mark(k, "", idPrefix, o.Prefix.String(), idGateway, o.Gateway.String(), idTransit, o.Transit),
	})
}

func (c codec) nodesUUID(network netip.Prefix) string {
	return c.uuid(nb.LogicalSwitchTable, nodeNetworkKey(network), "")
}

// routerPort makes a port of a router that has an address of a network.
func (c codec) routerPort(set *rowSet, head netvirt.Key, role, router, name string, at netip.Prefix) {
	port := &nb.LogicalRouterPort{
		UUID: c.uuid(nb.LogicalRouterPortTable, head, role), Name: name, MAC: gatewayMAC(at.Addr()).String(),
		Networks: []string{at.String()}, ExternalIDs: c.mark(head, role),
	}
	set.add(port)
	set.link(nb.LogicalRouterTable, router, "ports", port.UUID)
}

// policy makes a policy of a transit. Its marks tell its role.
func (c codec) policy(set *rowSet, head netvirt.Key, transit string, p *nb.LogicalRouterPolicy) {
	p.UUID = c.uuid(nb.LogicalRouterPolicyTable, head, p.ExternalIDs[idRole])
	set.add(p)
	set.link(nb.LogicalRouterTable, c.routerUUID(transitKey(transit)), "policies", p.UUID)
}

// goesOut matches what the transit does not know.
func goesOut(network netip.Prefix) string { return fmt.Sprintf("outport == %q", wayOutPort(network)) }

// encodeManagementPort makes the port that the node itself is plugged into. What
// is sent to the node's address goes there, so that it need not be translated, and
// what the node sent to a service whose endpoint is outside comes back to it.
func (c codec) encodeManagementPort(set *rowSet, k netvirt.Key, objects netvirt.Model, look lookup) {
	o, ok := head[netvirt.ManagementPort](objects, k)
	if !ok {
		return
	}
	lsp := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, ""), Name: o.Name(), Options: map[string]string{},
		Addresses: []string{fmt.Sprintf("%s %s %s", o.MAC, o.Address, o.ServiceAddress)},
		ExternalIDs: c.mark(k, "", idNetwork, o.Network.String(), idAddress, o.Address.String(),
			idServiceIP, o.ServiceAddress.String(), idMAC, o.MAC, idChassis, o.Chassis),
	}
	if o.Chassis != "" {
		lsp.Options["requested-chassis"] = o.Chassis
	}
	set.add(lsp)
	set.link(nb.LogicalSwitchTable, c.nodesUUID(o.Network), "ports", lsp.UUID)
	c.untracked(set, k, o)
	network, ok := look(nodeNetworkKey(o.Network)).(netvirt.NodeNetwork)
	if !ok {
		return
	}
	if o.Node.Is4() == o.Address.Is4() {
		c.route(set, k, "node", c.routerUUID(transitKey(network.Transit)), single(o.Node), o.Address, nodesPort(o.Network))
	}
	c.leave(set, k, roleWayOut, network.Transit, o, single(o.ServiceAddress))
}

// untracked has the switch track once what a node sends to a service that the node
// itself serves, or somebody beyond it. The request leaves by the port that it came in by,
// and the answer does, too, but there is one table of connections for both ways. So the
// one is not tracked on its way out, and the other not on its way in.
func (c codec) untracked(set *rowSet, head netvirt.Key, o netvirt.ManagementPort) {
	for _, acl := range []*nb.ACL{
		{Direction: nb.ACLDirectionToLport, Match: fmt.Sprintf("outport == %q && ip4.src == %s", o.Name(), o.ServiceAddress)},
		{Direction: nb.ACLDirectionFromLport, Match: fmt.Sprintf("inport == %q && ip4.dst == %s", o.Name(), o.ServiceAddress)},
	} {
		acl.UUID, acl.ExternalIDs = c.uuid(nb.ACLTable, head, acl.Direction), c.mark(head, acl.Direction)
		acl.Priority, acl.Action = 1, nb.ACLActionAllowStateless
		set.add(acl)
		set.link(nb.LogicalSwitchTable, c.nodesUUID(o.Network), "acls", acl.UUID)
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// wayOut has what comes from pods of an elan-instance, and goes where the transit
// knows no way, leave the network by their own node, where that has a management port.
func (c codec) wayOut(set *rowSet, head netvirt.Key, role string, vpn netvirt.VPNInstance, elan string, from netip.Prefix, look lookup) {
	node, _, err := netvirt.ParseELANName(elan)
	if err != nil || vpn.Transit == "" {
		return
	}
	port, ok := look(netvirt.ManagementPort{Node: node}.Key()).(netvirt.ManagementPort)
	if ok && port.Address.Is4() == from.Addr().Is4() {
		c.leave(set, head, role, vpn.Transit, port, from)
	}
}

func (c codec) leave(set *rowSet, head netvirt.Key, role, transit string, by netvirt.ManagementPort, from netip.Prefix) {
	c.policy(set, head, transit, &nb.LogicalRouterPolicy{
		Priority: priorityWayOut, Action: nb.LogicalRouterPolicyActionReroute, Nexthops: []string{by.Address.String()},
		Match: fmt.Sprintf("%s && ip4.src == %s", goesOut(by.Network), from), ExternalIDs: c.mark(head, role),
	})
}

// decodeNodeNetwork reads what encodeNodeNetwork wrote.
func decodeNodeNetwork(s *nb.LogicalSwitch) []netvirt.Object {
	prefix, _ := netip.ParsePrefix(s.ExternalIDs[idPrefix])
	gateway, _ := netip.ParseAddr(s.ExternalIDs[idGateway])
	return []netvirt.Object{netvirt.NodeNetwork{Prefix: prefix, Gateway: gateway, Transit: s.ExternalIDs[idTransit]}}
}

// decodeManagementPort reads what encodeManagementPort wrote.
func decodeManagementPort(k netvirt.Key, lsp *nb.LogicalSwitchPort) []netvirt.Object {
	ids := lsp.ExternalIDs
	node, _ := netip.ParseAddr(k.Name)
	network, _ := netip.ParsePrefix(ids[idNetwork])
	address, _ := netip.ParseAddr(ids[idAddress])
	service, _ := netip.ParseAddr(ids[idServiceIP])
	return []netvirt.Object{netvirt.ManagementPort{
		Node: node, Network: network, Address: address, ServiceAddress: service, MAC: ids[idMAC], Chassis: ids[idChassis],
	}}
}

package codec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// PhysicalNetwork is the network of gateways in ovn-bridge-mappings of a gateway's node.
const PhysicalNetwork = "coe-gateway"

// Roles of a gateway's rows. The rows for a prefix have the role and the prefix.
const (
	roleToGateway   = "to-gateway"   // the transit's port to the gateway
	roleFromGateway = "from-gateway" // the gateway's port to the transit
	roleOutside     = "outside"      // the gateway's port to the network outside
	roleLocalnet    = "localnet"
	rolePods        = "pods/"
	rolePinned      = "pinned/"
	roleInside      = "inside"
	roleGateway     = "gateway" // the way out by the gateway on the node
	rolePretended   = "pretended"
	roleNeighbours  = "neighbours"
	roleToInside    = "to-inside"
	roleToExternal  = "to-external"
	roleToNodes     = "to-nodes"
	roleBack        = "back"
)

// priorityPinned is the priority of the policy of pinned pods, less the length of their prefix: the longest
// prefix has precedence over others, and all over the way out of a node, but not over priorityOnNode. The length is 128 at
// most, so the priorities of IPv6 begin lower.
const (
	priorityPinned     = 200
	priorityPinnedIPv6 = 150
)

func pinnedPriority(pods netip.Prefix) int {
	if pods.Addr().Is6() {
		return priorityPinnedIPv6 + pods.Bits()
	}
	return priorityPinned + pods.Bits()
}

// neverClients are addresses that no client outside has. A pod that reaches itself through a service sees the addresses of
// acl.HairpinAddresses, which policies allow.
var neverClients = netvirt.NewPrefixList(
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), linkLocal4,
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd69::5/128"),
)

func gatewayName(node netip.Addr) string { return "gateway:" + node.String() }

// The names of router ports and switch ports end in a third part that is not a UUID, so no such name equals
// the name of a pod's interface.

func toGatewayName(node netip.Addr) string {
	return "router:gateway:" + roleToGateway + "/" + node.String()
}
func fromGatewayName(node netip.Addr) string {
	return "router:gateway:" + roleFromGateway + "/" + node.String()
}
func outsideName(node netip.Addr) string {
	return "router:gateway:" + roleOutside + "/" + node.String()
}
func linkName(node netip.Addr) string      { return "gateway:link:" + node.String() }
func outsideSwitch(node netip.Addr) string { return "gateway:outside:" + node.String() }
func localnetName(node netip.Addr) string  { return outsideSwitch(node) + "/" + roleLocalnet }

// encodeGateway adds a gateway router, which is on one chassis. A switch connects it to the transit: OVN sends
// packets to another chassis only from a switch. Another one connects it to the network outside.
//
// Only packets to the gateway's address come in, so answers, and those to services: a host outside that sends to a pod
// could pretend to be a node, which policies allow. A packet of a pod to an unused address inside is dropped too: it would go
// back and forth.
//
// A gateway that cannot work is a router without ports, and policies that drop packets of the pods that leave by it.
// If it can work, it drops only packets of pinned pods whose addresses it does not translate.
func (c Codec) encodeGateway(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := objects[k].(netvirt.Gateway)
	if !ok {
		return
	}
	router := c.routerUUID(k)
	lr := &nb.LogicalRouter{
		UUID: router, Name: gatewayName(o.Node),
		ExternalIDs: c.Mark(k, "", idNetwork, o.Network.String(), idTransit, o.Transit, idPinned, string(o.Pinned), idPods, string(o.Pods)),
	}
	set.Add(lr)
	for _, pods := range o.Pinned.All() {
		by := o
		if !o.Translates(pods) {
			by.Link, by.IPv6 = netip.Prefix{}, netvirt.GatewayFamily{}
		}
		c.byGateway(set, k, rolePinned+pods.String(), pinnedPriority(pods), by, pods)
	}
	if !o.Link.IsValid() {
		return
	}
	lr.Options = map[string]string{"chassis": o.Chassis}
	if o.Services {
		lr.Options["lb_force_snat_ip"] = "router_ip"
		lr.ExternalIDs[idServices], lr.ExternalIDs[idExternal], lr.ExternalIDs[idNodes] = flag(true), string(o.External), string(o.Nodes)
		lr.ExternalIDs[idOwn], lr.ExternalIDs[idPorts] = string(o.Own), o.SourcePorts
	}
	for key, value := range map[string]string{
		idChassis: o.Chassis, idAddress: o.Address.String(), idNextHop: o.NextHop.String(), idLink: o.Link.String(),
		idInside: string(o.Inside),
	} {
		lr.ExternalIDs[key] = value
	}
	if six := o.IPv6; six.Link.IsValid() {
		lr.ExternalIDs[idAddress6], lr.ExternalIDs[idNextHop6], lr.ExternalIDs[idLink6] = six.Address.String(), six.NextHop.String(), six.Link.String()
	}
	var near, far, outside []netip.Prefix
	for _, f := range o.Families() {
		near, far, outside = append(near, f.TransitAddress()), append(far, f.LinkAddress()), append(outside, f.Address)
	}
	c.routerPort(set, k, roleToGateway, c.routerUUID(transitKey(o.Transit)), toGatewayName(o.Node), near...)
	c.routerPort(set, k, roleFromGateway, router, fromGatewayName(o.Node), far...)
	if c.Layout == LayoutNode {
		c.bindLink(set, k, o.Node, far)
	}
	c.routerPort(set, k, roleOutside, router, outsideName(o.Node), outside...)
	c.gatewaySwitch(set, k, roleFromGateway, linkName(o.Node), toGatewayName(o.Node), fromGatewayName(o.Node))
	c.gatewaySwitch(set, k, roleOutside, outsideSwitch(o.Node), outsideName(o.Node))
	localnet := &nb.LogicalSwitchPort{
		UUID: c.UUID(nb.LogicalSwitchPortTable, k, roleLocalnet), Name: localnetName(o.Node), Type: "localnet",
		Addresses: []string{"unknown"}, Options: map[string]string{"network_name": PhysicalNetwork}, ExternalIDs: c.Mark(k, roleLocalnet),
	}
	set.Add(localnet)
	set.Link(nb.LogicalSwitchTable, c.UUID(nb.LogicalSwitchTable, k, roleOutside), "ports", localnet.UUID)
	for _, f := range o.Families() {
		c.gatewayFamily(set, k, o, f)
	}
	if o.Services {
		c.notBack(set, k, o)
	}
}

// bindLink tells the transit the MAC address of a gateway. The transit asks other routers for theirs (transitOptions). For an IPv6 address that
// is the next hop of a policy, it asks the wrong multicast group: ovn-northd knows the groups of next hops of routes alone.
func (c Codec) bindLink(set *ovsdb.RowSet, k netvirt.Key, node netip.Addr, far []netip.Prefix) {
	mac := gatewayMAC(far[0].Addr()).String()
	for _, a := range far {
		c.bindMAC(set, k, toGatewayName(node), a.Addr(), mac)
	}
}

// gatewayFamily adds the rows of a gateway for one family. The neighbours of a gateway ask for it, and answer it, by packets
// of IPv6.
func (c Codec) gatewayFamily(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Gateway, f netvirt.GatewayFamily) {
	address, family, router := f.Address.Addr(), familyOf(f.NextHop), c.routerUUID(k)
	c.route(set, k, roleIn(roleOutside, address), router, everywhere(address), f.NextHop, outsideName(o.Node))
	for _, pods := range o.Pods.In(address).All() {
		c.route(set, k, rolePods+pods.String(), router, pods, f.TransitAddress().Addr(), fromGatewayName(o.Node))
		nat := &nb.NAT{
			UUID: c.UUID(nb.NATTable, k, rolePods+pods.String()), Type: nb.NATTypeSNAT, ExternalIP: address.String(),
			LogicalIP: pods.String(), ExternalPortRange: o.SourcePorts, ExternalIDs: c.Mark(k, rolePods+pods.String()),
		}
		set.Add(nat)
		set.Link(nb.LogicalRouterTable, router, "nat", nat.UUID)
	}
	c.policyOf(set, router, k, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.Mark(k, roleIn(roleInside, address)),
		Match: fmt.Sprintf("inport == %q && %s.dst == %s", fromGatewayName(o.Node), family, anyOf(o.Inside.In(address))),
	})
	c.fromOutside(set, k, o.Node, roleIn(roleInside, address), priorityToOthers, nb.ACLActionDrop, fmt.Sprintf("%s && %s.dst != %s", family, family, address))
	if address.Is6() {
		own := linkLocal(gatewayMAC(o.Address.Addr()))
		to := texts([]netip.Addr{address, own, netip.IPv6LinkLocalAllNodes(), solicited(address), solicited(own)}, ", ")
		c.fromOutside(set, k, o.Node, roleNeighbours, priorityNeighbours, nb.ACLActionAllow, fmt.Sprintf("nd && ip6.dst == {%s}", to))
	}
	if o.Services {
		c.servesOutside(set, k, o, f)
	}
}

// solicited returns the multicast address at which neighbours ask for an IPv6 address (RFC 4291, section 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	to, of := netip.MustParseAddr("ff02::1:ff00:0").As16(), a.As16()
	copy(to[13:], of[13:])
	return netip.AddrFrom16(to)
}

// everywhere returns the prefix with all addresses of a family.
func everywhere(family netip.Addr) netip.Prefix {
	all, _ := family.Prefix(0) // a valid length
	return all
}

// priorityToNodes is the priority of the policy of a gateway's router for packets to nodes, which are endpoints.
const priorityToNodes = 2

// Priorities of the ACLs for packets from the network outside.
const (
	priorityToOthers   = 1 // to other addresses than the gateway's
	priorityToExternal = 10
	priorityToInside   = 20
	priorityToGateway  = 25
	priorityRestricted = 30 // by loadBalancerSourceRanges
	priorityAdmitted   = 31
	priorityPretended  = 40 // from addresses inside
	priorityNeighbours = 50
)

// servesOutside lets packets to services in. Their sources are outside the network: with a Local one a host outside could
// otherwise pretend to be the node of a pod, which policies allow. Endpoints that are nodes are reached by the transit.
func (c Codec) servesOutside(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Gateway, f netvirt.GatewayFamily) {
	address, family := f.Address.Addr(), familyOf(f.NextHop)
	inside, nodes := o.Inside.In(address).All(), o.Nodes.In(address)
	spoofed := netvirt.NewPrefixList(slices.Concat(inside, o.Own.In(address).All(), neverClients.In(address).All())...)
	kept := netvirt.NewPrefixList(slices.Concat(inside, nodes.All())...)
	for _, acl := range []struct {
		role     string
		priority int
		action   string
		match    string
	}{
		{rolePretended, priorityPretended, nb.ACLActionDrop, "src == " + anyOf(spoofed)},
		{roleToGateway, priorityToGateway, nb.ACLActionAllow, "dst == " + address.String()},
		{roleToInside, priorityToInside, nb.ACLActionDrop, "dst == " + anyOf(kept)},
	} {
		c.fromOutside(set, k, o.Node, roleIn(acl.role, address), acl.priority, acl.action, family+"."+acl.match)
	}
	if nodes != "" {
		c.policyOf(set, c.routerUUID(k), k, &nb.LogicalRouterPolicy{
			Priority: priorityToNodes, Action: nb.LogicalRouterPolicyActionReroute, Nexthops: []string{f.TransitAddress().Addr().String()},
			Match:       fmt.Sprintf("inport == %q && %s.dst == %s", outsideName(o.Node), family, anyOf(nodes)),
			ExternalIDs: c.Mark(k, roleIn(roleToNodes, address)),
		})
	}
	if external := o.External.In(address); external != "" {
		c.fromOutside(set, k, o.Node, roleIn(roleToExternal, address), priorityToExternal, nb.ACLActionAllow, fmt.Sprintf("%s.dst == %s", family, anyOf(external)))
	}
}

// notBack drops packets that would go back to the network outside: one to an external address that no load balancer
// translates would come again, and so would one to an endpoint that is a gateway.
func (c Codec) notBack(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Gateway) {
	c.policyOf(set, c.routerUUID(k), k, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.Mark(k, roleBack),
		Match: fmt.Sprintf("inport == %q && outport == %q", outsideName(o.Node), outsideName(o.Node)),
	})
}

// fromOutside adds an ACL for packets that come in from the network outside of a gateway.
func (c Codec) fromOutside(set *ovsdb.RowSet, head netvirt.Key, gateway netip.Addr, role string, priority int, action, match string) {
	acl := &nb.ACL{
		UUID: c.UUID(nb.ACLTable, head, role), Direction: nb.ACLDirectionFromLport, Priority: priority, Action: action,
		Match: fmt.Sprintf("inport == %q && %s", localnetName(gateway), match), ExternalIDs: c.Mark(head, role),
	}
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.UUID(nb.LogicalSwitchTable, netvirt.GatewayKey(gateway), roleOutside), "acls", acl.UUID)
}

// anyOf returns prefixes for a match.
func anyOf(all netvirt.PrefixList) string {
	return "{" + strings.ReplaceAll(string(all), ",", ", ") + "}"
}

// gatewaySwitch adds a switch with ports for router ports.
func (c Codec) gatewaySwitch(set *ovsdb.RowSet, head netvirt.Key, role, name string, routerPorts ...string) {
	s := &nb.LogicalSwitch{UUID: c.UUID(nb.LogicalSwitchTable, head, role), Name: name, ExternalIDs: c.Mark(head, role)}
	set.Add(s)
	for _, peer := range routerPorts {
		lsp := &nb.LogicalSwitchPort{
			UUID: c.UUID(nb.LogicalSwitchPortTable, head, peer), Name: "switch:" + strings.TrimPrefix(peer, "router:"), Type: "router",
			Addresses: []string{"router"}, Options: map[string]string{"router-port": peer}, ExternalIDs: c.Mark(head, peer),
		}
		set.Add(lsp)
		set.Link(nb.LogicalSwitchTable, s.UUID, "ports", lsp.UUID)
	}
}

// byGateway adds the policy that reroutes traffic of pods that leaves the network to a gateway, or drops it if the
// gateway cannot work.
func (c Codec) byGateway(set *ovsdb.RowSet, head netvirt.Key, role string, priority int, by netvirt.Gateway, pods netip.Prefix) {
	p := &nb.LogicalRouterPolicy{
		Priority: priority, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.Mark(head, role),
		Match: fmt.Sprintf("%s && %s.src == %s", goesOut(by.Network), familyOf(pods.Addr()), pods),
	}
	if hop, ok := by.Hop(pods.Addr()); ok {
		p.Action, p.Nexthops = nb.LogicalRouterPolicyActionReroute, []string{hop.String()}
	}
	c.policy(set, head, by.Transit, p)
}

// decodeGateway decodes the router of encodeGateway.
func decodeGateway(k netvirt.Key, r *nb.LogicalRouter) []netvirt.Object {
	ids := r.ExternalIDs
	node, _ := netip.ParseAddr(k.Name)
	o := netvirt.Gateway{Node: node, Transit: ids[idTransit], Chassis: ids[idChassis]}
	o.Network, _ = netip.ParsePrefix(ids[idNetwork])
	o.Address, _ = netip.ParsePrefix(ids[idAddress])
	o.NextHop, _ = netip.ParseAddr(ids[idNextHop])
	o.Link, _ = netip.ParsePrefix(ids[idLink])
	o.IPv6.Address, _ = netip.ParsePrefix(ids[idAddress6])
	o.IPv6.NextHop, _ = netip.ParseAddr(ids[idNextHop6])
	o.IPv6.Link, _ = netip.ParsePrefix(ids[idLink6])
	o.Pods, _ = netvirt.ParsePrefixList(ids[idPods])
	o.Pinned, _ = netvirt.ParsePrefixList(ids[idPinned])
	o.Inside, _ = netvirt.ParsePrefixList(ids[idInside])
	o.Services = ids[idServices] != ""
	o.External, _ = netvirt.ParsePrefixList(ids[idExternal])
	o.Nodes, _ = netvirt.ParsePrefixList(ids[idNodes])
	o.Own, _ = netvirt.ParsePrefixList(ids[idOwn])
	o.SourcePorts = ids[idPorts]
	return []netvirt.Object{o}
}

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
	roleToInside    = "to-inside"
	roleToExternal  = "to-external"
	roleToNodes     = "to-nodes"
	roleBack        = "back"
)

// priorityPinned is the priority of the policy of pinned pods, less the length of their prefix: the longest
// prefix has precedence over others, and all over the way out of a node, but not over priorityOnNode.
const priorityPinned = 200

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
	o, ok := head[netvirt.Gateway](objects, k)
	if !ok {
		return
	}
	router := c.routerUUID(k)
	lr := &nb.LogicalRouter{
		UUID: router, Name: gatewayName(o.Node),
		ExternalIDs: c.mark(k, "", idNetwork, o.Network.String(), idTransit, o.Transit, idPinned, string(o.Pinned), idPods, string(o.Pods)),
	}
	set.Add(lr)
	for _, pods := range o.Pinned.All() {
		by := o
		if !o.Translates(pods) {
			by.Link = netip.Prefix{}
		}
		c.byGateway(set, k, rolePinned+pods.String(), priorityPinned+pods.Bits(), by, pods)
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
	transit := c.routerUUID(transitKey(o.Transit))
	c.routerPort(set, k, roleToGateway, transit, toGatewayName(o.Node), o.TransitAddress())
	c.routerPort(set, k, roleFromGateway, router, fromGatewayName(o.Node), o.LinkAddress())
	c.routerPort(set, k, roleOutside, router, outsideName(o.Node), o.Address)
	c.gatewaySwitch(set, k, roleFromGateway, linkName(o.Node), toGatewayName(o.Node), fromGatewayName(o.Node))
	c.gatewaySwitch(set, k, roleOutside, outsideSwitch(o.Node), outsideName(o.Node))
	localnet := &nb.LogicalSwitchPort{
		UUID: c.uuid(nb.LogicalSwitchPortTable, k, roleLocalnet), Name: localnetName(o.Node), Type: "localnet",
		Addresses: []string{"unknown"}, Options: map[string]string{"network_name": PhysicalNetwork}, ExternalIDs: c.mark(k, roleLocalnet),
	}
	set.Add(localnet)
	set.Link(nb.LogicalSwitchTable, c.uuid(nb.LogicalSwitchTable, k, roleOutside), "ports", localnet.UUID)
	c.route(set, k, roleOutside, router, netip.PrefixFrom(netip.IPv4Unspecified(), 0), o.NextHop, outsideName(o.Node))
	for _, pods := range o.Pods.All() {
		c.route(set, k, rolePods+pods.String(), router, pods, o.TransitAddress().Addr(), fromGatewayName(o.Node))
		nat := &nb.NAT{
			UUID: c.uuid(nb.NATTable, k, rolePods+pods.String()), Type: nb.NATTypeSNAT, ExternalIP: o.Address.Addr().String(),
			LogicalIP: pods.String(), ExternalPortRange: o.SourcePorts, ExternalIDs: c.mark(k, rolePods+pods.String()),
		}
		set.Add(nat)
		set.Link(nb.LogicalRouterTable, router, "nat", nat.UUID)
	}
	c.policyOf(set, router, k, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.mark(k, roleInside),
		Match: fmt.Sprintf("inport == %q && ip4.dst == %s", fromGatewayName(o.Node), anyOf(o.Inside)),
	})
	c.fromOutside(set, k, o.Node, roleInside, priorityToOthers, nb.ACLActionDrop, fmt.Sprintf("ip4 && ip4.dst != %s", o.Address.Addr()))
	if o.Services {
		c.servesOutside(set, k, o)
	}
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
)

// servesOutside lets packets to services in. Their sources are outside the network: with a Local one a host outside could
// otherwise pretend to be the node of a pod, which policies allow. No packet goes back to the network outside: one to an
// external address that no load balancer translates would come again, and so would one to an endpoint that is a gateway.
// Endpoints that are nodes are reached by the transit.
func (c Codec) servesOutside(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Gateway) {
	spoofed := netvirt.NewPrefixList(slices.Concat(o.Inside.All(), o.Own.All())...)
	kept := netvirt.NewPrefixList(slices.Concat(o.Inside.All(), o.Nodes.All())...)
	c.fromOutside(set, k, o.Node, rolePretended, priorityPretended, nb.ACLActionDrop, fmt.Sprintf("ip4.src == %s", anyOf(spoofed)))
	c.fromOutside(set, k, o.Node, roleToGateway, priorityToGateway, nb.ACLActionAllow, fmt.Sprintf("ip4.dst == %s", o.Address.Addr()))
	c.fromOutside(set, k, o.Node, roleToInside, priorityToInside, nb.ACLActionDrop, fmt.Sprintf("ip4.dst == %s", anyOf(kept)))
	c.policyOf(set, c.routerUUID(k), k, &nb.LogicalRouterPolicy{
		Priority: priorityNoWay, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.mark(k, roleBack),
		Match: fmt.Sprintf("inport == %q && outport == %q", outsideName(o.Node), outsideName(o.Node)),
	})
	if o.Nodes != "" {
		c.policyOf(set, c.routerUUID(k), k, &nb.LogicalRouterPolicy{
			Priority: priorityToNodes, Action: nb.LogicalRouterPolicyActionReroute, Nexthops: []string{o.TransitAddress().Addr().String()},
			Match: fmt.Sprintf("inport == %q && ip4.dst == %s", outsideName(o.Node), anyOf(o.Nodes)), ExternalIDs: c.mark(k, roleToNodes),
		})
	}
	if o.External == "" {
		return
	}
	c.fromOutside(set, k, o.Node, roleToExternal, priorityToExternal, nb.ACLActionAllow, fmt.Sprintf("ip4.dst == %s", anyOf(o.External)))
}

// fromOutside adds an ACL for packets that come in from the network outside of a gateway.
func (c Codec) fromOutside(set *ovsdb.RowSet, head netvirt.Key, gateway netip.Addr, role string, priority int, action, match string) {
	acl := &nb.ACL{
		UUID: c.uuid(nb.ACLTable, head, role), Direction: nb.ACLDirectionFromLport, Priority: priority, Action: action,
		Match: fmt.Sprintf("inport == %q && %s", localnetName(gateway), match), ExternalIDs: c.mark(head, role),
	}
	set.Add(acl)
	set.Link(nb.LogicalSwitchTable, c.uuid(nb.LogicalSwitchTable, netvirt.GatewayKey(gateway), roleOutside), "acls", acl.UUID)
}

// anyOf returns prefixes for a match.
func anyOf(all netvirt.PrefixList) string {
	return "{" + strings.ReplaceAll(string(all), ",", ", ") + "}"
}

// gatewaySwitch adds a switch with ports for router ports.
func (c Codec) gatewaySwitch(set *ovsdb.RowSet, head netvirt.Key, role, name string, routerPorts ...string) {
	s := &nb.LogicalSwitch{UUID: c.uuid(nb.LogicalSwitchTable, head, role), Name: name, ExternalIDs: c.mark(head, role)}
	set.Add(s)
	for _, peer := range routerPorts {
		lsp := &nb.LogicalSwitchPort{
			UUID: c.uuid(nb.LogicalSwitchPortTable, head, peer), Name: "switch:" + strings.TrimPrefix(peer, "router:"), Type: "router",
			Addresses: []string{"router"}, Options: map[string]string{"router-port": peer}, ExternalIDs: c.mark(head, peer),
		}
		set.Add(lsp)
		set.Link(nb.LogicalSwitchTable, s.UUID, "ports", lsp.UUID)
	}
}

// byGateway adds the policy that reroutes traffic of pods that leaves the network to a gateway, or drops it if the
// gateway cannot work.
func (c Codec) byGateway(set *ovsdb.RowSet, head netvirt.Key, role string, priority int, by netvirt.Gateway, pods netip.Prefix) {
	p := &nb.LogicalRouterPolicy{
		Priority: priority, Action: nb.LogicalRouterPolicyActionDrop, ExternalIDs: c.mark(head, role),
		Match: fmt.Sprintf("%s && ip4.src == %s", goesOut(by.Network), pods),
	}
	if by.Link.IsValid() {
		p.Action, p.Nexthops = nb.LogicalRouterPolicyActionReroute, []string{by.LinkAddress().Addr().String()}
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
	o.Pods, _ = parsePrefixes(ids[idPods])
	o.Pinned, _ = parsePrefixes(ids[idPinned])
	o.Inside, _ = parsePrefixes(ids[idInside])
	o.Services = ids[idServices] != ""
	o.External, _ = parsePrefixes(ids[idExternal])
	o.Nodes, _ = parsePrefixes(ids[idNodes])
	o.Own, _ = parsePrefixes(ids[idOwn])
	o.SourcePorts = ids[idPorts]
	return []netvirt.Object{o}
}

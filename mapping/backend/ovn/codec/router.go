package codec

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Roles of a router's rows.
const (
	roleFromTransit = "from-transit" // the transit's port to the vpn's router
	roleToTransit   = "to-transit"   // the vpn's router's port to the transit
	roleDefault4    = "default-ipv4"
	roleDefault6    = "default-ipv6"
)

// The names of router ports and their switch ports end in a third part that is not a
// UUID, so no such name equals the name of a pod's interface.

func toTransitName(vpn string) string   { return "router:" + vpn + ":" + roleToTransit }
func fromTransitName(vpn string) string { return "router:" + vpn + ":" + roleFromTransit }

func (c Codec) routerUUID(head netvirt.Key) string {
	return c.UUID(nb.LogicalRouterTable, head, "")
}

func (c Codec) balancersUUID(head netvirt.Key) string {
	return c.UUID(nb.LoadBalancerGroupTable, head, "")
}

// encodeTransit adds the cluster router, and the groups of the load balancers that every
// vpn-instance with this transit reaches: one for all clients, and one for clients elsewhere (see
// elsewhereUUID).
func (c Codec) encodeTransit(set *ovsdb.RowSet, head netvirt.Key, objects netvirt.Model) {
	if len(objects) == 0 {
		return
	}
	set.Add(&nb.LogicalRouter{
		UUID: c.routerUUID(head), Name: "transit:" + head.Name, Options: c.arrangement().transitOptions(), ExternalIDs: c.Mark(head, ""),
	})
	set.Add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(head), Name: string(c.Owner) + "/transit/" + head.Name})
	set.Add(&nb.LoadBalancerGroup{UUID: c.elsewhereUUID(head), Name: string(c.Owner) + "/elsewhere/" + head.Name})
}

// elsewhereUUID returns the UUID of the group of load balancers whose endpoints depend on where the
// client is, for the clients of a transit that are not pods of a known node.
func (c Codec) elsewhereUUID(transit netvirt.Key) string {
	return c.UUID(nb.LoadBalancerGroupTable, transit, "elsewhere")
}

// encodeVPN adds the group of the load balancers of the services of a namespace, and what its vpn-instance is in the
// layout.
func (c Codec) encodeVPN(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	if o, ok := objects[k].(netvirt.VPNInstance); ok {
		set.Add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(k), Name: c.VPNBalancerGroup() + o.Name})
		c.arrangement().vpn(set, k, o)
	}
}

// vpnIDs returns external_ids with all fields of a vpn-instance.
func (c Codec) vpnIDs(k netvirt.Key, o netvirt.VPNInstance) map[string]string {
	return c.Mark(k, "", identity.IDNamespace, o.Namespace, idRD, o.RouteDistinguisher, idTransit, o.Transit)
}

// vpn adds the router of a namespace. If the vpn-instance has a transit, a pair of router ports connects the
// router to it, and the router's default routes lead there.
func (c byELAN) vpn(set *ovsdb.RowSet, k netvirt.Key, o netvirt.VPNInstance) {
	router := c.routerUUID(k)
	set.Add(&nb.LogicalRouter{UUID: router, Name: o.Name, ExternalIDs: c.vpnIDs(k, o)})
	if o.Transit == "" {
		return
	}
	pair := transitPair(o)
	c.peer(set, k, roleToTransit, router, toTransitName(o.Name), fromTransitName(o.Name), pair.vpn)
	c.peer(set, k, roleFromTransit, c.routerUUID(transitKey(o.Transit)), fromTransitName(o.Name), toTransitName(o.Name), pair.transit)
	c.route(set, k, roleDefault4, router, netip.PrefixFrom(netip.IPv4Unspecified(), 0), pair.transit.ipv4, toTransitName(o.Name))
	c.route(set, k, roleDefault6, router, netip.PrefixFrom(netip.IPv6Unspecified(), 0), pair.transit.ipv6, toTransitName(o.Name))
}

// peer adds one port of a pair of router ports.
func (c Codec) peer(set *ovsdb.RowSet, head netvirt.Key, role, router, name, peer string, at transitEnd) {
	port := &nb.LogicalRouterPort{
		UUID: c.UUID(nb.LogicalRouterPortTable, head, role), Name: name, Peer: &peer, MAC: at.mac,
		Networks: []string{netip.PrefixFrom(at.ipv4, transitBits).String()}, ExternalIDs: c.Mark(head, role),
	}
	set.Add(port)
	set.Link(nb.LogicalRouterTable, router, "ports", port.UUID)
}

// route adds a static route to a router.
func (c Codec) route(set *ovsdb.RowSet, head netvirt.Key, role, router string, to netip.Prefix, via netip.Addr, port string) {
	route := &nb.LogicalRouterStaticRoute{
		UUID: c.UUID(nb.LogicalRouterStaticRouteTable, head, role), IPPrefix: to.String(), Nexthop: via.String(),
		OutputPort: &port, ExternalIDs: c.Mark(head, role),
	}
	set.Add(route)
	set.Link(nb.LogicalRouterTable, router, "static_routes", route.UUID)
}

// transitRoute adds a static route to the vpn-instance's transit, if it has one: to a
// prefix behind the vpn-instance.
func (c Codec) transitRoute(set *ovsdb.RowSet, head netvirt.Key, role string, vpn netvirt.VPNInstance, to netip.Prefix) {
	if vpn.Transit == "" {
		return
	}
	end := transitPair(vpn).vpn
	via := end.ipv4
	if to.Addr().Is6() {
		via = end.ipv6
	}
	c.route(set, head, role, c.routerUUID(transitKey(vpn.Transit)), to, via, fromTransitName(vpn.Name))
}

// transitEnd is one end of the link between a vpn-instance's router and its transit. The
// IPv6 address is the link-local address that OVN derives from the MAC address.
type transitEnd struct {
	ipv4, ipv6 netip.Addr
	mac        string
}

type transitLink struct {
	transit, vpn transitEnd
}

// transitBits is the prefix length of one link. The links divide 100.64.0.0/11, half of
// the shared address space of RFC 6598. A node network may be in the other half.
const (
	transitBits  = 30
	transitLinks = 1 << (transitBits - 11)
)

// transitPair computes the addresses of a vpn-instance's link from the number of its
// route distinguisher, which is unique. Above 2^19 the addresses repeat. That is safe:
// each link is a separate network, and routes name their port.
func transitPair(o netvirt.VPNInstance) transitLink {
	_, number, _ := strings.Cut(o.RouteDistinguisher, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.Name)) // never fails
		n = h.Sum64()
	}
	base := 100<<24 | 64<<16 | uint32(n%transitLinks)<<(32-transitBits)
	return transitLink{transit: newTransitEnd(base + 1), vpn: newTransitEnd(base + 2)}
}

func newTransitEnd(n uint32) transitEnd {
	a := netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	mac := gatewayMAC(a)
	return transitEnd{ipv4: a, ipv6: linkLocal(mac), mac: mac.String()}
}

// decodeRouter decodes the router of encodeTransit, encodeVPN or encodeGateway.
func decodeRouter(head netvirt.Key, r *nb.LogicalRouter) []netvirt.Object {
	switch head.Kind {
	case netvirt.KindTransit:
		return []netvirt.Object{netvirt.Transit{RouteTarget: head.Name}}
	case netvirt.KindVPNInstance:
		return decodeVPN(head, r.ExternalIDs)
	case netvirt.KindGateway:
		return decodeGateway(head, r)
	}
	return nil
}

// decodeVPN decodes the external_ids of vpnIDs.
func decodeVPN(head netvirt.Key, ids map[string]string) []netvirt.Object {
	return []netvirt.Object{netvirt.VPNInstance{
		Name: head.Name, Namespace: ids[identity.IDNamespace], RouteDistinguisher: ids[idRD], Transit: ids[idTransit],
	}}
}

func (c Codec) encodeELAN(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	if o, ok := objects[k].(netvirt.ELANInstance); ok {
		c.arrangement().elan(set, k, o, look)
	}
}

// elanIDs returns external_ids with all fields of an elan-instance.
func (c Codec) elanIDs(k netvirt.Key, o netvirt.ELANInstance) map[string]string {
	return c.Mark(k, "", idSegment, string(o.SegmentType), idVNI, strconv.FormatUint(uint64(o.SegmentationID), 10),
		idPhysical, o.PhysicalNetwork, idSubnets, string(o.Subnets))
}

// elan adds the switch of a namespace on a node.
func (c byELAN) elan(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, look Lookup) {
	c.elanSwitch(set, k, o, look)
}

// elanSwitch adds the switch of an elan-instance. Its pods reach the services of
// all namespaces that share the transit or, without a transit, of their own namespace.
func (c Codec) elanSwitch(set *ovsdb.RowSet, k netvirt.Key, o netvirt.ELANInstance, look Lookup) {
	s := &nb.LogicalSwitch{UUID: c.switchUUID(o.Name), Name: o.Name, ExternalIDs: c.elanIDs(k, o)}
	if vpn, ok := lookVPNOf(look, string(o.Scope())); ok {
		s.LoadBalancerGroup = []string{c.balancersUUID(reach(vpn))}
		if vpn.Transit != "" {
			s.LoadBalancerGroup = append(s.LoadBalancerGroup, c.placeUUID(o, vpn, look))
		}
	}
	set.Add(s)
	if o.PhysicalNetwork != "" {
		c.localnet(set, k, o)
	}
}

// placeUUID returns the UUID of the group of the load balancers whose endpoints depend on where the
// client is, for the pods of an elan-instance: the group of its node, if a source reports the node.
func (c Codec) placeUUID(o netvirt.ELANInstance, vpn netvirt.VPNInstance, look Lookup) string {
	if address, _, err := netvirt.ParseELANName(o.Name); err == nil {
		node, known := look(netvirt.Node{Address: address}.Key()).(netvirt.Node)
		if known && (node.HostName != "" || c.Layout != LayoutNode) {
			return c.balancersUUID(node.Key())
		}
	}
	return c.elsewhereUUID(transitKey(vpn.Transit))
}

// reach returns the head whose group of load balancers the pods of a vpn-instance reach.
func reach(vpn netvirt.VPNInstance) netvirt.Key {
	if vpn.Transit != "" {
		return transitKey(vpn.Transit)
	}
	return vpn.Key()
}

func (c Codec) switchUUID(elan string) string {
	return c.UUID(nb.LogicalSwitchTable, elanKey(elan), "")
}

// decodeSwitch decodes the switch of encodeELAN, encodeNodeNetwork or encodeEgressIP, or of a node. Other switches hold no
// object.
func (c Codec) decodeSwitch(head netvirt.Key, s *nb.LogicalSwitch) []netvirt.Object {
	switch head.Kind {
	case netvirt.KindNodeNetwork:
		return decodeNodeNetwork(s)
	case netvirt.KindGateway:
		return nil
	case netvirt.KindNode:
		return c.decodeNodeSwitch(s.ExternalIDs)
	case netvirt.KindEgressIP:
		return decodeEgressIP(head, s)
	}
	return decodeELAN(head, s.ExternalIDs)
}

// decodeELAN decodes the external_ids of elanIDs.
func decodeELAN(head netvirt.Key, ids map[string]string) []netvirt.Object {
	id, _ := strconv.ParseUint(ids[idVNI], 10, 32)
	subnets, _ := netvirt.ParsePrefixList(ids[idSubnets])
	return []netvirt.Object{netvirt.ELANInstance{
		Name: head.Name, SegmentType: netvirt.SegmentType(ids[idSegment]), SegmentationID: uint32(id),
		PhysicalNetwork: ids[idPhysical], Subnets: subnets,
	}}
}

// decodePortGroup decodes the group of an acl. A group of an elan-instance or a vpn-instance, as databases from before decision 90 have
// it, is damage: the object is read, so that it stays in its namespace until it has its row.
func decodePortGroup(head netvirt.Key, group *nb.PortGroup) []netvirt.Object {
	switch head.Kind {
	case netvirt.KindELANInstance:
		return decodeELAN(head, group.ExternalIDs)
	case netvirt.KindVPNInstance:
		return decodeVPN(head, group.ExternalIDs)
	}
	return acl.Decode(head, group)
}

// mac is a hardware address.
type mac [6]byte

func (m mac) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func gatewayMAC(a netip.Addr) mac { return mac(netvirt.GatewayMAC(a)) }

// linkLocal returns the link-local IPv6 address of a hardware address (RFC 4291,
// appendix A).
func linkLocal(m mac) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

package ovn

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Roles of a router's rows.
const (
	roleFromTransit = "from-transit" // the transit's port to the vpn's router
	roleToTransit   = "to-transit"   // the vpn's router's port to the transit
	roleDefault4    = "default-ipv4"
	roleDefault6    = "default-ipv6"
)

// Names of router ports and of their switch ports end in a third part that is
// no UUID, so that none is ever that of a pod's interface.

func toTransitName(vpn string) string   { return "router:" + vpn + ":" + roleToTransit }
func fromTransitName(vpn string) string { return "router:" + vpn + ":" + roleFromTransit }

func (c codec) routerUUID(head netvirt.Key) string {
	return c.uuid(nb.LogicalRouterTable, head, "")
}

func (c codec) balancersUUID(head netvirt.Key) string {
	return c.uuid(nb.LoadBalancerGroupTable, head, "")
}

// encodeTransit makes the cluster router, and the group of the load balancers
// that all who are connected to it reach.
func (c codec) encodeTransit(set *rowSet, head netvirt.Key, objects netvirt.Model) {
	if len(objects) == 0 {
		return
	}
	set.add(&nb.LogicalRouter{UUID: c.routerUUID(head), Name: "transit:" + head.Name, ExternalIDs: c.mark(head, "")})
	set.add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(head), Name: c.owner + "/transit/" + head.Name})
}

// encodeVPN makes the router of a namespace, and the group of the load
// balancers of its services. When it has a transit, a pair of router ports
// connects the two, and what the router does not know goes there.
func (c codec) encodeVPN(set *rowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := head[netvirt.VPNInstance](objects, k)
	if !ok {
		return
	}
	router := c.routerUUID(k)
	set.add(&nb.LogicalRouter{UUID: router, Name: o.Name, ExternalIDs: c.mark(k, "",
		idNamespace, o.Namespace, idRD, o.RouteDistinguisher, idTransit, o.Transit)})
	set.add(&nb.LoadBalancerGroup{UUID: c.balancersUUID(k), Name: c.owner + "/vpn/" + o.Name})
	if o.Transit == "" {
		return
	}
	pair := transitPair(o)
	c.peer(set, k, roleToTransit, router, toTransitName(o.Name), fromTransitName(o.Name), pair.vpn)
	c.peer(set, k, roleFromTransit, c.routerUUID(transitKey(o.Transit)), fromTransitName(o.Name), toTransitName(o.Name), pair.transit)
	c.route(set, k, roleDefault4, router, netip.PrefixFrom(netip.IPv4Unspecified(), 0), pair.transit.ipv4, toTransitName(o.Name))
	c.route(set, k, roleDefault6, router, netip.PrefixFrom(netip.IPv6Unspecified(), 0), pair.transit.ipv6, toTransitName(o.Name))
}

// peer makes one port of a pair of router ports.
func (c codec) peer(set *rowSet, head netvirt.Key, role, router, name, peer string, at transitEnd) {
	port := &nb.LogicalRouterPort{
		UUID: c.uuid(nb.LogicalRouterPortTable, head, role), Name: name, Peer: &peer, MAC: at.mac,
		Networks: []string{netip.PrefixFrom(at.ipv4, transitBits).String()}, ExternalIDs: c.mark(head, role),
	}
	set.add(port)
	set.link(nb.LogicalRouterTable, router, "ports", port.UUID)
}

// route makes a static route of a router.
func (c codec) route(set *rowSet, head netvirt.Key, role, router string, to netip.Prefix, via netip.Addr, port string) {
	route := &nb.LogicalRouterStaticRoute{
		UUID: c.uuid(nb.LogicalRouterStaticRouteTable, head, role), IPPrefix: to.String(), Nexthop: via.String(),
		OutputPort: &port, ExternalIDs: c.mark(head, role),
	}
	set.add(route)
	set.link(nb.LogicalRouterTable, router, "static_routes", route.UUID)
}

// transitRoute makes a static route of the vpn-instance's transit, if it has
// one, to what is behind the vpn-instance.
func (c codec) transitRoute(set *rowSet, head netvirt.Key, role string, vpn netvirt.VPNInstance, to netip.Prefix) {
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

// transitEnd is one end of the link between a vpn-instance's router and its
// transit. The IPv6 address is the link-local one that OVN gives a port of that
// MAC.
type transitEnd struct {
	ipv4, ipv6 netip.Addr
	mac        string
}

type transitLink struct {
	transit, vpn transitEnd
}

// transitBits is the length of the network of one link. The links divide
// 100.64.0.0/11, half of the addresses that are shared for such use (RFC 6598); a
// node network may be in the other half.
const (
	transitBits  = 30
	transitLinks = 1 << (transitBits - 11)
)

// transitPair chooses the addresses of a vpn-instance's link by the number of
// its route distinguisher, which no other has. Past 2^19 they repeat; that does
// no harm, since each link is a network of its own and routes name their port.
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

// decodeRouter reads what encodeTransit and encodeVPN wrote.
func decodeRouter(head netvirt.Key, r *nb.LogicalRouter) []netvirt.Object {
	switch head.Kind {
	case netvirt.KindTransit:
		return []netvirt.Object{netvirt.Transit{RouteTarget: head.Name}}
	case netvirt.KindVPNInstance:
		return []netvirt.Object{netvirt.VPNInstance{
			Name: head.Name, Namespace: r.ExternalIDs[idNamespace],
			RouteDistinguisher: r.ExternalIDs[idRD], Transit: r.ExternalIDs[idTransit],
		}}
	}
	return nil
}

// encodeELAN makes the switch of a namespace on a node. Its pods reach the
// services of all who share the transit, or those of their own namespace.
func (c codec) encodeELAN(set *rowSet, k netvirt.Key, objects netvirt.Model, look lookup) {
	o, ok := head[netvirt.ELANInstance](objects, k)
	if !ok {
		return
	}
	s := &nb.LogicalSwitch{UUID: c.switchUUID(o.Name), Name: o.Name, ExternalIDs: c.mark(k, "",
		idSegment, string(o.SegmentType), idVNI, strconv.FormatUint(uint64(o.SegmentationID), 10))}
	if vpn, ok := lookVPNOf(look, string(o.Scope())); ok {
		s.LoadBalancerGroup = []string{c.balancersUUID(reach(vpn))}
	}
	set.add(s)
}

// reach is the head of the group of load balancers that the pods of a
// vpn-instance reach.
func reach(vpn netvirt.VPNInstance) netvirt.Key {
	if vpn.Transit != "" {
		return transitKey(vpn.Transit)
	}
	return vpn.Key()
}

func (c codec) switchUUID(elan string) string {
	return c.uuid(nb.LogicalSwitchTable, elanKey(elan), "")
}

// decodeSwitch reads what encodeELAN and encodeNodeNetwork wrote.
func decodeSwitch(head netvirt.Key, s *nb.LogicalSwitch) []netvirt.Object {
	if head.Kind == netvirt.KindNodeNetwork {
		return decodeNodeNetwork(s)
	}
	id, _ := strconv.ParseUint(s.ExternalIDs[idVNI], 10, 32)
	return []netvirt.Object{netvirt.ELANInstance{
		Name: head.Name, SegmentType: netvirt.SegmentType(s.ExternalIDs[idSegment]), SegmentationID: uint32(id),
	}}
}

// mac is a hardware address.
type mac [6]byte

func (m mac) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// gatewayMAC is the hardware address of a gateway: 0a:58 and its IPv4 address,
// or 0a:58 and a hash of its IPv6 address.
func gatewayMAC(a netip.Addr) mac {
	tail := a.AsSlice()
	if a.Is6() {
		h := fnv.New32a()
		_, _ = h.Write(tail) // never fails
		tail = h.Sum(nil)
	}
	return mac{0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]}
}

// linkLocal is the IPv6 address that follows from a hardware address (RFC 4291,
// appendix A).
func linkLocal(m mac) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

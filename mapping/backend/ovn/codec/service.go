package codec

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// maxAffinity is the longest session affinity that OVN supports, in seconds.
const maxAffinity = 65535

// encodeService adds a load balancer for each protocol of a service, at least one. A load
// balancer is in two groups: the group of the service's namespace, which the pods of an
// isolated vpn-instance reach, and the group of the transit, which all other pods reach.
//
// If the service has Places, this load balancer is for clients elsewhere, and for the places with
// the same endpoints. Every other place has a load balancer of its own. It holds nothing that is
// not in the first one.
func (c Codec) encodeService(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := objects[k].(netvirt.Service)
	if !ok {
		return
	}
	vips := map[netvirt.Protocol][]netvirt.ServiceVIP{}
	for _, v := range each[netvirt.ServiceVIP](objects) {
		vips[v.Protocol] = append(vips[v.Protocol], v)
	}
	c.encodeGatewayVIPs(set, k, o, each[netvirt.GatewayVIP](objects), look)
	places := o.Places.All()
	for i, protocol := range protocols(vips) {
		lb := c.balancer(k, o, protocol, string(protocol), vips[protocol])
		hold(lb, o)
		if i == 0 {
			for _, f := range each[netvirt.FloatingIP](objects) {
				lb.ExternalIDs[idFloating+f.Internal.String()+"/"+f.Port] = f.External.String() + " " + f.Router
			}
		}
		set.Add(lb)
		if len(places) == 0 {
			for _, group := range groupsOf(o, look) {
				set.Link(nb.LoadBalancerGroupTable, c.balancersUUID(group), "load_balancer", lb.UUID)
			}
			continue
		}
		for _, v := range vips[protocol] {
			lb.ExternalIDs[idNear+endpointText(v.VIP)] = string(v.Near)
		}
		c.encodePlaces(set, k, o, lb, vips[protocol], look)
	}
}

// encodePlaces adds the load balancers of the places of a service. lb is the one for clients elsewhere.
// Pods that share a transit reach the load balancers in the group of their node. If the vpn-instance of
// the service's namespace is isolated, its pods reach the load balancers of their switch.
func (c Codec) encodePlaces(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Service, lb *nb.LoadBalancer, vips []netvirt.ServiceVIP, look Lookup) {
	transit := transitKey(netvirt.CommonRouteTarget)
	shared := look(transit) != nil
	vpn, found := lookVPNOf(look, o.Namespace)
	isolated := found && vpn.Transit == "" && c.Layout != LayoutNode
	if shared {
		set.Link(nb.LoadBalancerGroupTable, c.elsewhereUUID(transit), "load_balancer", lb.UUID)
	}
	near := make([][]netvirt.EndpointList, len(vips))
	for i, v := range vips {
		near[i] = v.Near.All()
	}
	protocol := netvirt.Protocol(*lb.Protocol)
	for place, nodes := range o.Places.All() {
		here := vipsAt(vips, near, place)
		at := lb
		if !slices.Equal(here, vips) {
			at = c.balancer(k, o, protocol, *lb.Protocol+"/"+nodes[0].String(), here)
			if drops(here, vips) {
				at.Options["reject"] = "false"
			}
			set.Add(at)
		}
		for _, node := range nodes {
			if group := (netvirt.Node{Address: node}).Key(); shared && look(group) != nil {
				set.Link(nb.LoadBalancerGroupTable, c.balancersUUID(group), "load_balancer", at.UUID)
			}
			if elan := netvirt.ELANName(node, o.Namespace); isolated && look(elanKey(elan)) != nil {
				set.Link(nb.LogicalSwitchTable, c.switchUUID(elan), "load_balancer", at.UUID)
			}
		}
	}
}

// vipsAt returns VIPs with the endpoints of a place. near has their endpoints at all places.
func vipsAt(vips []netvirt.ServiceVIP, near [][]netvirt.EndpointList, place int) []netvirt.ServiceVIP {
	here := slices.Clone(vips)
	for i, lists := range near {
		if place < len(lists) {
			here[i].Endpoints = lists[place]
		}
	}
	return here
}

// drops reports whether a VIP has endpoints, but none at a place. Then its connections are dropped
// there: if they were rejected, clients would not wait for an endpoint that starts. OVN rejects or
// drops by load balancer, not by VIP.
func drops(here, vips []netvirt.ServiceVIP) bool {
	for i, v := range here {
		if v.Endpoints == "" && vips[i].Endpoints != "" {
			return true
		}
	}
	return false
}

// protocols returns the protocols that a service has load balancers for, in order. The
// load balancer of the first also holds the service's floating IPs.
func protocols(vips map[netvirt.Protocol][]netvirt.ServiceVIP) []netvirt.Protocol {
	if len(vips) == 0 {
		return []netvirt.Protocol{netvirt.TCP}
	}
	return slices.Sorted(maps.Keys(vips))
}

// groupsOf returns the heads whose groups of load balancers a service is in.
func groupsOf(o netvirt.Service, look Lookup) []netvirt.Key {
	var groups []netvirt.Key
	if look(transitKey(netvirt.CommonRouteTarget)) != nil {
		groups = append(groups, transitKey(netvirt.CommonRouteTarget))
	}
	if vpn, ok := lookVPNOf(look, o.Namespace); ok {
		groups = append(groups, vpn.Key(), reach(vpn))
	}
	return groups
}

// hold lets a load balancer hold its service.
func hold(lb *nb.LoadBalancer, o netvirt.Service) {
	if o.Places != "" {
		lb.ExternalIDs[idPlaces] = string(o.Places)
	}
}

func (c Codec) balancer(k netvirt.Key, o netvirt.Service, protocol netvirt.Protocol, role string, vips []netvirt.ServiceVIP) *nb.LoadBalancer {
	text := string(protocol)
	lb := &nb.LoadBalancer{
		UUID: c.UUID(nb.LoadBalancerTable, k, role), Name: o.Namespace + ":" + o.Name + ":" + role, Protocol: &text,
		Vips: map[string]string{},
		Options: map[string]string{
			"reject": "true", "hairpin_snat_ip": acl.HairpinAddresses, "neighbor_responder": "none",
		},
		ExternalIDs: c.Mark(k, role, identity.IDNamespace, o.Namespace, idService, o.Name),
	}
	if protocol == netvirt.UDP {
		// Without this option a client that keeps sending still reaches a removed endpoint.
		// TCP needs that: an endpoint that terminates may finish its connections.
		lb.Options["ct_flush"] = "true"
	}
	if o.Affinity > 0 {
		lb.Options["affinity_timeout"] = strconv.FormatUint(uint64(min(o.Affinity, maxAffinity)), 10)
		lb.ExternalIDs[idAffinity] = strconv.FormatUint(uint64(o.Affinity), 10)
	}
	for _, v := range vips {
		lb.Vips[endpointText(v.VIP)] = endpointTexts(v.Endpoints)
	}
	return lb
}

// endpointTexts returns endpoints in OVN's form.
func endpointTexts(list netvirt.EndpointList) string {
	var all []string
	for _, e := range list.All() {
		all = append(all, endpointText(e))
	}
	return strings.Join(all, ",")
}

// endpointText returns an address and port in OVN's form. Port 0, every port, is left out.
func endpointText(e netip.AddrPort) string {
	if e.Port() != 0 {
		return e.String()
	}
	if e.Addr().Is6() {
		return "[" + e.Addr().String() + "]"
	}
	return e.Addr().String()
}

func parseEndpoint(text string) (netip.AddrPort, bool) {
	if e, err := netip.ParseAddrPort(text); err == nil {
		return e, true
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return netip.AddrPortFrom(a, 0), err == nil
}

// decodeService decodes a load balancer of encodeService: the service and what else it holds. That of a place holds no
// object.
func decodeService(k netvirt.Key, lb *nb.LoadBalancer) []netvirt.Object {
	namespace, uid := identity.ParseServiceName(k.Name)
	ids := lb.ExternalIDs
	gateway, protocol, atGateway := parseGatewayRole(ids[identity.IDRole])
	if strings.Contains(ids[identity.IDRole], "/") && !atGateway {
		return nil
	}
	affinity, _ := strconv.ParseUint(ids[idAffinity], 10, 32)
	objects := []netvirt.Object{netvirt.Service{UID: uid, Namespace: namespace, Name: ids[idService], Affinity: uint32(affinity), Places: parsePlaces(ids[idPlaces])}}
	if atGateway {
		return append(objects, decodeGatewayVIPs(lb, netvirt.GatewayVIP{Service: uid, Namespace: namespace, Gateway: gateway, Protocol: protocol})...)
	}
	for vip, endpoints := range lb.Vips {
		if v, ok := parseVIP(vip, endpoints); ok {
			v.Service, v.Namespace, v.Protocol = uid, namespace, netvirt.Protocol(ids[identity.IDRole])
			v.Near = parseNear(ids[idNear+vip])
			objects = append(objects, v)
		}
	}
	for key, value := range ids {
		if text, found := strings.CutPrefix(key, idFloating); found {
			if f, ok := parseFloating(text, value); ok {
				f.Namespace, f.ExternalID = namespace, uid
				objects = append(objects, f)
			}
		}
	}
	return objects
}

func parseVIP(vip, endpoints string) (netvirt.ServiceVIP, bool) {
	at, ok := parseEndpoint(vip)
	if !ok {
		return netvirt.ServiceVIP{}, false
	}
	return netvirt.ServiceVIP{VIP: at, Endpoints: parseEndpoints(endpoints)}, true
}

// parseEndpoints parses a list of endpoints, without those that are not valid.
func parseEndpoints(text string) netvirt.EndpointList {
	var all []netip.AddrPort
	for one := range strings.SplitSeq(text, ",") {
		if e, ok := parseEndpoint(one); ok {
			all = append(all, e)
		}
	}
	return netvirt.NewEndpointList(all...)
}

// parsePlaces parses a PlaceList, without what is not valid in it.
func parsePlaces(text string) netvirt.PlaceList {
	var places [][]netip.Addr
	for one := range strings.SplitSeq(text, ";") {
		if nodes, err := netvirt.ParseAddrList(one); err == nil && nodes != "" {
			places = append(places, nodes.All())
		}
	}
	return netvirt.NewPlaceList(places...)
}

// parseNear parses a NearList, without what is not valid in it.
func parseNear(text string) netvirt.NearList {
	lists := netvirt.NearList(text).All()
	for i, l := range lists {
		lists[i] = parseEndpoints(string(l))
	}
	return netvirt.NewNearList(lists...)
}

func parseFloating(key, value string) (netvirt.FloatingIP, bool) {
	internal, port, _ := strings.Cut(key, "/")
	external, router, _ := strings.Cut(value, " ")
	in, err := netip.ParseAddr(internal)
	if err != nil {
		return netvirt.FloatingIP{}, false
	}
	ex, err := netip.ParseAddr(external)
	return netvirt.FloatingIP{Router: router, Port: port, Internal: in, External: ex}, err == nil
}

package codec

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const (
	// hairpinAddresses are the source addresses that a pod sees if it reaches itself
	// through a service.
	hairpinAddresses = "169.254.169.5 fd69::5"
	// MaxAffinity is the longest session affinity that OVN supports, in seconds.
	MaxAffinity = 65535
)

// encodeService adds a load balancer for each protocol of a service, at least one. A load
// balancer is in two groups: the group of the service's namespace, which the pods of an
// isolated vpn-instance reach, and the group of the transit, which all other pods reach.
func (c Codec) encodeService(set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model, look Lookup) {
	o, ok := head[netvirt.Service](objects, k)
	if !ok {
		return
	}
	vips := map[netvirt.Protocol][]netvirt.ServiceVIP{}
	for _, v := range each[netvirt.ServiceVIP](objects) {
		vips[v.Protocol] = append(vips[v.Protocol], v)
	}
	for i, protocol := range protocols(vips) {
		lb := c.balancer(k, o, protocol, vips[protocol])
		if i == 0 {
			for _, f := range each[netvirt.FloatingIP](objects) {
				lb.ExternalIDs[idFloating+f.Internal.String()+"/"+f.Port] = f.External.String() + " " + f.Router
			}
		}
		set.Add(lb)
		for _, group := range groupsOf(o, look) {
			set.Link(nb.LoadBalancerGroupTable, c.balancersUUID(group), "load_balancer", lb.UUID)
		}
	}
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

func (c Codec) balancer(k netvirt.Key, o netvirt.Service, protocol netvirt.Protocol, vips []netvirt.ServiceVIP) *nb.LoadBalancer {
	role, text := string(protocol), string(protocol)
	lb := &nb.LoadBalancer{
		UUID: c.uuid(nb.LoadBalancerTable, k, role), Name: o.Namespace + ":" + o.Name + ":" + role, Protocol: &text,
		Vips: map[string]string{},
		Options: map[string]string{
			"reject": "true", "hairpin_snat_ip": hairpinAddresses, "neighbor_responder": "none",
		},
		ExternalIDs: c.mark(k, role, idNamespace, o.Namespace, idService, o.Name),
	}
	if protocol == netvirt.UDP {
		// Without this option a client that keeps sending still reaches a removed endpoint.
		// TCP needs that: an endpoint that terminates may finish its connections.
		lb.Options["ct_flush"] = "true"
	}
	if o.Affinity > 0 {
		lb.Options["affinity_timeout"] = strconv.FormatUint(uint64(min(o.Affinity, MaxAffinity)), 10)
		lb.ExternalIDs[idAffinity] = strconv.FormatUint(uint64(o.Affinity), 10)
	}
	for _, v := range vips {
		var endpoints []string
		for _, e := range v.Endpoints.All() {
			endpoints = append(endpoints, endpointText(e))
		}
		lb.Vips[endpointText(v.VIP)] = strings.Join(endpoints, ",")
	}
	return lb
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

// parseServiceName splits the name in a service's key.
func parseServiceName(name string) (namespace, uid string) {
	i := strings.LastIndexByte(name, ' ')
	return name[:max(i, 0)], name[i+1:]
}

// decodeService decodes a load balancer of encodeService.
func decodeService(k netvirt.Key, lb *nb.LoadBalancer) []netvirt.Object {
	namespace, uid := parseServiceName(k.Name)
	ids := lb.ExternalIDs
	affinity, _ := strconv.ParseUint(ids[idAffinity], 10, 32)
	objects := []netvirt.Object{netvirt.Service{UID: uid, Namespace: namespace, Name: ids[idService], Affinity: uint32(affinity)}}
	for vip, endpoints := range lb.Vips {
		if v, ok := parseVIP(vip, endpoints); ok {
			v.Service, v.Namespace, v.Protocol = uid, namespace, netvirt.Protocol(ids[IDRole])
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
	var to []netip.AddrPort
	for text := range strings.SplitSeq(endpoints, ",") {
		if e, ok := parseEndpoint(text); ok {
			to = append(to, e)
		}
	}
	return netvirt.ServiceVIP{VIP: at, Endpoints: netvirt.NewEndpointList(to...)}, true
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

package codec

import "maps"

// Fields of objects in the external_ids of their rows.
const (
	idSegment    = "coe-bridge/segment-type"
	idVNI        = "coe-bridge/segmentation-id"
	idPhysical   = "coe-bridge/physical-network"
	idSubnets    = "coe-bridge/subnets"
	idRD         = "coe-bridge/route-distinguisher"
	idTransit    = "coe-bridge/transit"
	idVPN        = "coe-bridge/vpn"
	idELAN       = "coe-bridge/elan"
	idPrefix     = "coe-bridge/prefix"
	idGateway    = "coe-bridge/gateway"
	idDNS        = "coe-bridge/dns"
	idLease      = "coe-bridge/lease-time"
	idPod        = "coe-bridge/pod"
	idPodUID     = "coe-bridge/pod-uid"
	idUID        = "coe-bridge/interface-uid"
	idParent     = "coe-bridge/parent-interface"
	idDHCP       = "coe-bridge/dhcp"
	idChassis    = "coe-bridge/chassis"
	idService    = "coe-bridge/service"
	idAffinity   = "coe-bridge/affinity"
	idPlaces     = "coe-bridge/places"
	idNear       = "coe-bridge/near/"             // and the VIP
	idMACEntry   = "coe-bridge/static-mac-entry/" // and the address
	idAdjacency  = "coe-bridge/adjacency/"        // and the address
	idNetwork    = "coe-bridge/network"
	idAddress    = "coe-bridge/address"
	idHostName   = "coe-bridge/host-name"
	idServiceIP  = "coe-bridge/service-address"
	idEdgeIP     = "coe-bridge/edge-address"
	idMAC        = "coe-bridge/mac-address"
	idNextHop    = "coe-bridge/next-hop"
	idLink       = "coe-bridge/link"
	idPods       = "coe-bridge/pods"
	idPinned     = "coe-bridge/pinned"
	idInside     = "coe-bridge/inside"
	idOnNode     = "coe-bridge/on-node"
	idLinks      = "coe-bridge/gateway-links"
	idServices   = "coe-bridge/services"
	idExternal   = "coe-bridge/external"
	idNodes      = "coe-bridge/nodes"
	idOwn        = "coe-bridge/own"
	idPorts      = "coe-bridge/source-ports"
	idWaits      = "coe-bridge/waits/"   // and the VIP
	idSources    = "coe-bridge/sources/" // and the VIP
	idGroup      = "coe-bridge/remote-group"
	idNumber     = "coe-bridge/number"
	idOneWay     = "coe-bridge/one-way"
	idActive     = "coe-bridge/active"
	idHost       = "coe-bridge/host/"        // and its number; the address of the node, a space and its chassis
	idFloating   = "coe-bridge/floating-ip/" // and internal-ip/port-name
	idPrefix6    = "coe-bridge/ipv6-prefix"
	idGateway6   = "coe-bridge/ipv6-gateway"
	idAddress6   = "coe-bridge/ipv6-address"
	idServiceIP6 = "coe-bridge/ipv6-service-address"
	idEdgeIP6    = "coe-bridge/ipv6-edge-address"
	idNextHop6   = "coe-bridge/ipv6-next-hop"
	idLink6      = "coe-bridge/ipv6-link"
	idSecond     = "coe-bridge/second-node-address"
)

// abridge deletes the pairs of ids that other columns of a row imply. A key that is implied, and that ids does not have, gets an empty value.
func abridge(ids, implied map[string]string) {
	for key := range implied {
		if _, has := ids[key]; !has {
			ids[key] = ""
		}
	}
	maps.DeleteFunc(ids, isIn(implied))
}

func isIn(pairs map[string]string) func(key, value string) bool {
	return func(key, value string) bool { return value == pairs[key] }
}

package odldiff

import (
	"net/http"
	"net/netip"
)

// nodeActs returns the possible steps of a node.
func (s *story) nodeActs(n *node) []act {
	tell := act{1, func() step {
		n.told = true
		n.podCIDR = s.someCIDR(n)
		return step{what: "a node is put", method: http.MethodPut, path: n.path(), body: n.body()}
	}}
	if !n.told {
		tell.weight = 3
	}
	return []act{tell, {1, func() step { return s.removeNode(n) }}}
}

// removeNode deletes a node, whether it exists or not.
func (s *story) removeNode(n *node) step {
	n.told = false
	return step{what: "a node is deleted", method: http.MethodDelete, path: n.path()}
}

// someCIDR returns a pod-cidr of the node. Oxygen guesses the gateway of its pods, correctly for some
// pod-cidrs.
func (s *story) someCIDR(n *node) netip.Prefix {
	last := n.address.As4()[3]
	net := netip.AddrFrom4([4]byte{10, byte(s.number), last, 0})
	switch s.random.IntN(6) {
	case 0:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(s.number), 0, 0}), 16)
	case 1:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(s.number), last, 128}), 25)
	case 2:
		return netip.Prefix{}
	}
	return netip.PrefixFrom(net, 24)
}

// serviceActs returns the possible steps of a service and its endpoints.
func (s *story) serviceActs(v *service) []act {
	return []act{
		{1, func() step {
			if v.told && s.random.IntN(2) == 0 {
				v.address = s.clusterIP()
			}
			v.told = true
			return step{what: "a service is put", method: http.MethodPut, path: v.path(), body: v.body()}
		}},
		{1, func() step {
			v.endpoints, v.endpointsTold = s.someAddresses(v.namespace), true
			return step{what: "endpoints are put", method: http.MethodPut, path: v.endpointsPath(), body: v.endpointsBody()}
		}},
		{1, func() step {
			if s.random.IntN(2) == 0 {
				return s.removeService(v)
			}
			return s.removeEndpoints(v)
		}},
	}
}

func (s *story) removeService(v *service) step {
	v.told = false
	return step{what: "a service is deleted", method: http.MethodDelete, path: v.path()}
}

func (s *story) removeEndpoints(v *service) step {
	v.endpoints, v.endpointsTold = nil, false
	return step{what: "endpoints are deleted", method: http.MethodDelete, path: v.endpointsPath()}
}

// someAddresses returns addresses of some pods of a namespace, and of no pod.
func (s *story) someAddresses(namespace string) []netip.Addr {
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{10, byte(s.number), 99, 99})}
	for _, p := range s.pods {
		if p.namespace == namespace && p.address.IsValid() && s.random.IntN(3) > 0 {
			addresses = append(addresses, p.address)
		}
	}
	return addresses
}

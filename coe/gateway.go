package coe

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"
)

// Gateway is a gateway that a client has configured: a router on a node to a network outside the cluster.
type Gateway struct {
	Node    netip.Addr   // internal address; the key
	Chassis string       // ID of the node's switch
	Address netip.Prefix // the gateway's address outside, with the length of the network there
	NextHop netip.Addr   // the router outside
	// Pinned are ranges of pods that leave by the gateway although they are on other nodes.
	Pinned []netip.Prefix
	// Services is set if clients outside reach services by the gateway.
	Services bool
	// Unreadable is set if the entry of the gateway cannot be read. Then only Node is set, and Pinned as far as it can
	// be read. PinsUnknown is set if it cannot.
	Unreadable, PinsUnknown bool
}

// GatewayLinks has the addresses of the links to gateways. They exist only in routers. The range has no
// well-known link-local address, such as that of metadata servers, and none of EgressWays.
var GatewayLinks = netip.MustParsePrefix("169.254.192.0/18")

// EgressWays has the addresses of the ways of EgressIPs, on the same router.
var EgressWays = netip.MustParsePrefix("169.254.64.0/18")

// MaxServingGateways is the maximum number of gateways with Services: each has load balancers for all services.
const MaxServingGateways = 16

// GatewayLink returns the link of the gateway on the node with a number; ok is false if GatewayLinks has
// none.
func GatewayLink(number uint32) (link netip.Prefix, ok bool) {
	const bits = 30
	if number >= 1<<(bits-GatewayLinks.Bits()) {
		return netip.Prefix{}, false
	}
	first := GatewayLinks.Addr().As4()
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(first[:])+number<<(32-bits))
	return netip.PrefixFrom(netip.AddrFrom4(a), bits), true
}

// PutGateway adds or replaces a gateway.
func (tx *Tx) PutGateway(g *Gateway) {
	tx.gateways(g.Node.String(), g)
}

// DeleteGateway deletes the gateway of a node.
func (tx *Tx) DeleteGateway(node string) { tx.gateways(node) }

// HasGateway reports whether there is a gateway of a node.
func (tx *Tx) HasGateway(node string) bool {
	return slices.ContainsFunc(tx.store.gateways, func(g *Gateway) bool { return g.Node.String() == node })
}

// gateways replaces the gateway of a node in a copy of the list, because views share it.
func (tx *Tx) gateways(node string, now ...*Gateway) {
	if len(now) == 1 && slices.ContainsFunc(tx.store.gateways, func(g *Gateway) bool { return reflect.DeepEqual(g, now[0]) }) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(tx.store.gateways), func(g *Gateway) bool { return g.Node.String() == node })
	tx.store.gateways = slices.SortedFunc(slices.Values(append(rest, now...)), func(a, b *Gateway) int { return a.Node.Compare(b.Node) })
	tx.cluster = true
	for name, ns := range tx.store.namespaces { // their services may be at gateways
		if len(ns.services) > 0 {
			tx.dirty[name] = true
		}
	}
}

// Gateways returns the gateways, sorted by node. They must not be changed.
func (s *Store) Gateways() []*Gateway {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gateways
}

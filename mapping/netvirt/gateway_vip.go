package netvirt

import (
	"fmt"
	"net/netip"
)

// GatewayVIP is an address and port of a service at which a Gateway with Services answers clients outside the cluster.
// Nothing depends on whether the gateway exists.
type GatewayVIP struct {
	Service   string // the Service's UID
	Namespace string
	Gateway   netip.Addr // the Gateway's Node
	Protocol  Protocol
	VIP       netip.AddrPort
	Endpoints EndpointList // if empty, connections are rejected
	// Local is set if endpoints see the address of the client. They answer by the gateway. Otherwise the gateway is the
	// client, with the address of its Link.
	Local bool
	// Waits is set if Endpoints is empty because all endpoints are on other nodes. Then connections are dropped.
	Waits bool
	// Restricted is set if only the clients in Sources reach it.
	Restricted bool
	Sources    PrefixList
}

// Key implements Object.
func (o GatewayVIP) Key() Key {
	return Key{KindGatewayVIP, fmt.Sprintf("%s %s %s %s %s", o.Namespace, o.Service, o.Gateway, o.Protocol, o.VIP)}
}

// Refs implements Object.
func (o GatewayVIP) Refs() []Key { return []Key{serviceKey(o.Namespace, o.Service)} }

// Scope implements Object.
func (o GatewayVIP) Scope() Scope { return Scope(o.Namespace) }

func (GatewayVIP) sealed() {}

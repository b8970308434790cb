// Package nodeports says by which sets, chains and rules of nftables a node leads the node ports and the external addresses of services,
// and the host ports of pods, and by which the network namespace of a pod leads its programs. Each port of a service leads to its
// endpoints: all of them or, if it is local, those on the node. A port without known endpoints leads to the cluster address, where the pod
// network balances. A host port leads to its pod.
//
// The package reads and writes nothing in the kernel: it knows a Port, and fills transactions of its callers with the elements and chains that
// the port becomes. Package porttables makes these transactions.
//
// Rules look ports up in maps, so neither their number nor the work for a packet depends on the number
// of services, except that a port with affinity has a chain. A changed port changes its elements of the maps,
// this chain, and nothing else. Only the set of ranges of clients is slower if it is larger, for connections to
// ports that have ranges.
//
// Network policies of pods judge these connections by their source, which is never an address that a
// policy allows because the pod is on the node.
package nodeports

import (
	"fmt"
	"net/netip"
	"time"
)

// TableName is the name of the nftables tables, of the families ip and ip6.
const TableName = "coe-bridge-node-ports"

// MaxEndpoints is how many endpoints of a port can serve. The table has chains for each number of endpoints, and all
// rules together must fit into one message to the kernel.
const MaxEndpoints = 64

// Port is a port on which the node answers for a service. All its addresses are of one family.
type Port struct {
	// Address is an external address of the service, or its cluster address; unspecified for every address of the node of its
	// family.
	Address netip.Addr
	// Own: the node leads only its own programs. Address is the cluster address if the port is local. Otherwise it is the
	// address of a node, and Endpoints are those that programs reach by it; while nobody keeps them current, the port leads
	// nowhere, unless Place.Balances.
	Own bool
	// Inside: the node leads only clients inside the cluster: packets of pods that come in by Node.Link and Node.EgressLinks, and its own
	// programs. They reach Endpoints, on any node, not the endpoints of the Port without Inside. It has an effect only if Place.Balances.
	Inside   bool
	Protocol string // "tcp", "udp", "sctp"
	Number   uint16
	Service  netip.AddrPort // the cluster address of the service
	// Restricted: only clients in Sources reach the port, by Address. Sources can be of both families.
	Restricted bool
	Sources    []netip.Prefix
	// Local: Endpoints are those on this node. Without any, clients see no answer. Otherwise Endpoints are those on all
	// nodes. Without any, clients are led to Service. The node's own programs are led to Service, unless a port is Own.
	Local     bool
	Endpoints []netip.AddrPort
	// Affinity is how long a client keeps its endpoint after a connection; 0: no affinity. Fractions of a second do not count.
	Affinity time.Duration
	// Refuses: if the port is local and has no endpoints, clients are refused. Otherwise their packets are dropped, so that
	// they wait for an endpoint.
	Refuses bool
}

// String returns the port for messages.
func (p Port) String() string {
	switch {
	case p.Own:
		return fmt.Sprintf("%s port %d of %s for the node's programs", p.Protocol, p.Number, p.Address)
	case p.Inside:
		return fmt.Sprintf("%s port %d of %s for clients inside the cluster", p.Protocol, p.Number, p.Address)
	case p.Address == netip.IPv6Unspecified():
		return fmt.Sprintf("IPv6 node port %s %d", p.Protocol, p.Number)
	case p.Address.IsUnspecified():
		return fmt.Sprintf("node port %s %d", p.Protocol, p.Number)
	}
	return fmt.Sprintf("external address %s %s %d", p.Address, p.Protocol, p.Number)
}

// Place is where a node is in the pod network.
type Place struct {
	// IPv4 and IPv6 are where it is in each family.
	IPv4, IPv6 Addresses
	// Inside has the addresses of pods and services.
	Inside []netip.Prefix
	// HostPorts is set if pods may have host ports: only then the tables have rules for them.
	HostPorts bool
	// Balances is set if the pod network does not balance. Then all clients are led to endpoints, also programs of the node,
	// and pods that ask a cluster address.
	Balances bool
	// Isolated is set if namespaces are isolated: packets of pods come in, and leave to endpoints, by Node.EgressLinks. Then the
	// node leads nobody else, and Balances is set.
	Isolated bool
}

// Addresses are what a node needs to know of the pod network in one family.
type Addresses struct {
	// Edge is the source address of connections of nodes and pods to endpoints. Without it the node answers on no port of
	// the family.
	Edge netip.Addr
	// Network has the addresses of all nodes in the pod network. Traffic from there has already been
	// through a service, and is not led to another one.
	Network netip.Prefix
	// ByGateways has the addresses of pods whose answers leave the network by gateways. So they must
	// see Edge instead of clients outside.
	ByGateways []netip.Prefix
	// Node is the address of the node in the pod network: the source of connections of its programs to host ports.
	Node netip.Addr
	// Internal is an address of the node outside the pod network that is routed to its link too; zero for none. Answers to
	// further addresses do not come back, so programs with these as source get Node.
	Internal netip.Addr
}

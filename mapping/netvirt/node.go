package netvirt

import (
	"crypto/sha256"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
)

// Node is a node of the cluster.
type Node struct {
	Address  netip.Addr // internal address; the key
	HostName string     // may be empty
	// Chassis is the name of the node in OVN (external_ids:system-id of its switch); empty if it is not known for certain, or Gateways
	// is not used.
	Chassis string
	// Gateways are the gateways of the Subnets of its elan-instances. It is empty unless the backend needs them
	// (Limits.NodeGateways).
	Gateways GatewayList
}

// NodeNetwork connects the nodes to a Transit; their management ports are in it (OVN: a
// logical switch behind the cluster router).
type NodeNetwork struct {
	Prefix  netip.Prefix // of IPv4, masked; the key
	Gateway netip.Addr   // the transit's address, inside Prefix
	// PrefixIPv6 and GatewayIPv6 are the same for IPv6; zero if nodes have no IPv6 addresses.
	PrefixIPv6  netip.Prefix
	GatewayIPv6 netip.Addr
	Transit     string // its route target
	// OneWay is set if packets between pods and addresses outside may pass in one direction only: pods of an EgressIP
	// leave by another network, and answers come in here.
	OneWay bool
	// OnNode are ranges outside that pods reach by their own node although they leave by a gateway; empty without
	// gateways.
	OnNode PrefixList
	// GatewayLinks have the addresses of the gateways that lead clients outside to services; empty without such gateways. They
	// reach the second addresses of nodes too.
	GatewayLinks PrefixList
}

// ManagementPort is a node's own port in a NodeNetwork. The node's programs and the pods of
// all nodes reach each other through it. Traffic from the node's pods to addresses outside
// the network leaves through it.
type ManagementPort struct {
	Node    netip.Addr   // the key
	Network netip.Prefix // the NodeNetwork's
	Address netip.Addr   // the node's address for pods
	// ServiceAddress is the node's source address when it connects to a service. The node
	// does not have this address itself, so that it can be an endpoint of the service.
	ServiceAddress netip.Addr
	// EdgeAddress is the source address of connections of others that the node leads to services
	// and pods: by node ports, or by a route to a cluster address. The node does not have it
	// itself, and no policy allows it because the pod is on the node. It is invalid if the
	// network has none left.
	EdgeAddress netip.Addr
	// IPv6 are the port's addresses in PrefixIPv6 of the network; zero if it has none.
	IPv6 NodeAddresses
	// Second is the node's internal address of the other family. It is invalid if the bridge does not know one, or the
	// port has no addresses of this family. Only packets from GatewayLinks of the network are routed to it; machines outside route to
	// the node's pods by it.
	Second  netip.Addr
	MAC     string // of all these addresses; lower case, colons
	Chassis string // host name of the node; empty lets any host bind the port
}

// NodeAddresses are the addresses of a ManagementPort in one IP family.
type NodeAddresses struct {
	Address, Service netip.Addr
	Edge             netip.Addr // invalid if the network has none left
}

// Families returns the addresses of the port in each family that it has, IPv4 first.
func (o ManagementPort) Families() []NodeAddresses {
	all := []NodeAddresses{{o.Address, o.ServiceAddress, o.EdgeAddress}}
	if o.IPv6.Address.IsValid() {
		all = append(all, o.IPv6)
	}
	return all
}

// Sources returns the addresses that the node itself does not have.
func (a NodeAddresses) Sources() []netip.Addr {
	if !a.Edge.IsValid() {
		return []netip.Addr{a.Service}
	}
	return []netip.Addr{a.Service, a.Edge}
}

// Name returns the name of the port, which is the iface-id on the node's switch. It ends in
// a third part that is not a UUID, so it never equals the name of a pod's interface.
func (o ManagementPort) Name() string { return ManagementPortName(o.Node) }

// ManagementPortName returns the name of a node's management port.
func ManagementPortName(node netip.Addr) string { return "node:" + node.String() + ":management" }

// NodePort is a node's own port in one of its elan-instances. The node's programs and the pods
// of the elan-instance reach each other through it. It exists if the vpn-instance is isolated;
// otherwise the node has a ManagementPort. If nodes lead pods to services (Limits.NodesBalance), pods send to services by the
// NodePort. Without isolation a node then has both ports, and pods also send to what is outside the network by the NodePort.
type NodePort struct {
	ELAN string // the key; it names the node and the namespace
	// Network is, with ELAN, the key of the Subnet whose gateway reaches Address; zero if the elan-instance has no Subnet
	// of its family. Then the port has only IPv6, or none if the node has a ManagementPort.
	Network netip.Prefix
	VPN     string     // the Subnet's
	Address netip.Addr // the node's internal address
	// IPv6 is the address beside an internal IPv4 address, and NetworkIPv6 its Network. They are zero if the elan-instance
	// has no Subnet of IPv6, or Address is of IPv6.
	IPv6        netip.Addr
	NetworkIPv6 netip.Prefix
	// Edge is the source of what the node leads to services of an isolated vpn-instance, which routes it to the port. EdgeGateway
	// is the router's address for the port then. They are invalid if the node leads nobody by the port, or has a ManagementPort.
	Edge, EdgeGateway netip.Addr
	MAC               string // NodePortMAC(Address)
	Chassis           string // host name of the node; empty lets any host bind the port
}

// PortAddress is an address of a NodePort, and the Subnet whose gateway reaches it.
type PortAddress struct {
	Address netip.Addr
	Network netip.Prefix
}

// Addresses returns the addresses of the port that pods can reach, at most one of each family.
func (o NodePort) Addresses() (all []PortAddress) {
	for _, a := range []PortAddress{{o.Address, o.Network}, {o.IPv6, o.NetworkIPv6}} {
		if a.Network.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// Name returns the name of the port, which is the iface-id on the node's switch. Its third
// part is not a UUID, so it never equals the name of a pod's interface.
func (o NodePort) Name() string {
	node, namespace, _ := ParseELANName(o.ELAN)
	return NodePortsName(node) + ":" + namespace
}

// NodePortsName returns what the names of a node's NodePorts begin with. A colon and the
// namespace follow.
func NodePortsName(node netip.Addr) string { return "node:" + node.String() + ":port" }

// ParseNodePort splits the name of a NodePort; ok is false for any other name.
func ParseNodePort(name string) (node netip.Addr, namespace string, ok bool) {
	text, found := strings.CutPrefix(name, "node:")
	at, namespace, split := strings.Cut(text, ":port:")
	node, err := netip.ParseAddr(at)
	return node, namespace, found && split && err == nil && namespace != "" && NodePortsName(node)+":"+namespace == name
}

// NodePortMAC returns the MAC address of a node's NodePorts: 0a:58 and an IPv4 address, or
// 0a:58 and 4 bytes of the hash of an IPv6 address.
func NodePortMAC(node netip.Addr) string {
	tail := node.AsSlice()
	if node.Is6() {
		sum := sha256.Sum256(tail)
		tail = sum[:4]
	}
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, tail...)).String()
}

// GatewayMAC returns the MAC address of a gateway of pods in OVN: 0a:58 and its IPv4 address, or
// 0a:58 and a hash of its IPv6 address.
func GatewayMAC(gateway netip.Addr) net.HardwareAddr {
	tail := gateway.AsSlice()
	if gateway.Is6() {
		h := fnv.New32a()
		_, _ = h.Write(tail) // never fails
		tail = h.Sum(nil)
	}
	return append(net.HardwareAddr{0x0a, 0x58}, tail...)
}

// Key implements Object.
func (o Node) Key() Key { return Key{KindNode, o.Address.String()} }

// Key implements Object.
func (o NodeNetwork) Key() Key { return Key{KindNodeNetwork, o.Prefix.String()} }

// Key implements Object.
func (o ManagementPort) Key() Key { return Key{KindManagementPort, o.Node.String()} }

// Key implements Object.
func (o NodePort) Key() Key { return Key{KindNodePort, o.ELAN} }

// Refs implements Object.
func (o Node) Refs() []Key { return nil }

// Refs implements Object.
func (o NodeNetwork) Refs() []Key { return []Key{{KindTransit, o.Transit}} }

// Refs implements Object. The port does not refer to its Node, which need not exist.
func (o ManagementPort) Refs() []Key {
	return []Key{{KindNodeNetwork, o.Network.String()}}
}

// Refs implements Object.
func (o NodePort) Refs() []Key {
	refs := []Key{{KindELANInstance, o.ELAN}, {KindVPNInstance, o.VPN}}
	for _, a := range o.Addresses() {
		refs = append(refs, subnetKey(o.ELAN, a.Network))
	}
	return refs
}

// Scope implements Object.
func (o Node) Scope() Scope { return Cluster }

// Scope implements Object.
func (o NodeNetwork) Scope() Scope { return Cluster }

// Scope implements Object.
func (o ManagementPort) Scope() Scope { return Cluster }

// Scope implements Object.
func (o NodePort) Scope() Scope {
	_, namespace, _ := ParseELANName(o.ELAN)
	return Scope(namespace)
}

func (Node) sealed()           {}
func (NodeNetwork) sealed()    {}
func (ManagementPort) sealed() {}
func (NodePort) sealed()       {}

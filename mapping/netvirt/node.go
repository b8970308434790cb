package netvirt

import "net/netip"

// Node is a node of the cluster.
type Node struct {
	Address  netip.Addr // internal address; the key
	HostName string     // may be empty
}

// NodeNetwork connects the nodes to a Transit; their management ports are in it (OVN: a
// logical switch behind the cluster router).
type NodeNetwork struct {
	Prefix  netip.Prefix // masked; the key
	Gateway netip.Addr   // the transit's address, inside Prefix
	Transit string       // its route target
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
	MAC            string // of both addresses; lower case, colons
	Chassis        string // host name of the node; empty lets any host bind the port
}

// Name returns the name of the port, which is the iface-id on the node's switch. It ends in
// a third part that is not a UUID, so it never equals the name of a pod's interface.
func (o ManagementPort) Name() string { return ManagementPortName(o.Node) }

// ManagementPortName returns the name of a node's management port.
func ManagementPortName(node netip.Addr) string { return "node:" + node.String() + ":management" }

// Key implements Object.
func (o Node) Key() Key { return Key{KindNode, o.Address.String()} }

// Key implements Object.
func (o NodeNetwork) Key() Key { return Key{KindNodeNetwork, o.Prefix.String()} }

// Key implements Object.
func (o ManagementPort) Key() Key { return Key{KindManagementPort, o.Node.String()} }

// Refs implements Object.
func (o Node) Refs() []Key { return nil }

// Refs implements Object.
func (o NodeNetwork) Refs() []Key { return []Key{{KindTransit, o.Transit}} }

// Refs implements Object. The port does not refer to its Node, which need not exist.
func (o ManagementPort) Refs() []Key {
	return []Key{{KindNodeNetwork, o.Network.String()}}
}

// Scope implements Object.
func (o Node) Scope() Scope { return Cluster }

// Scope implements Object.
func (o NodeNetwork) Scope() Scope { return Cluster }

// Scope implements Object.
func (o ManagementPort) Scope() Scope { return Cluster }

func (Node) sealed()           {}
func (NodeNetwork) sealed()    {}
func (ManagementPort) sealed() {}

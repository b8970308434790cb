package netvirt

import "net/netip"

// Node is a node of the cluster.
type Node struct {
	Address  netip.Addr // internal address; the key
	HostName string     // may be empty
}

// NodeNetwork joins the nodes with a Transit: their management ports are on it
// (OVN: a logical switch behind the cluster router).
type NodeNetwork struct {
	Prefix  netip.Prefix // masked; the key
	Gateway netip.Addr   // the transit's address, inside Prefix
	Transit string       // its route target
}

// ManagementPort is a node's own port in a NodeNetwork. By it the node's
// programs and the pods of all nodes reach each other, the one by Address, and it is
// where the pods of the node leave for what the network does not have.
type ManagementPort struct {
	Node    netip.Addr   // the key
	Network netip.Prefix // the NodeNetwork's
	Address netip.Addr   // what the node is to pods
	// ServiceAddress is what the node is to those who serve it behind the address of
	// a service. The node itself does not have it: so it can serve itself.
	ServiceAddress netip.Addr
	MAC            string // of both; lower case, colons
	Chassis        string // host name of the node, or empty: then any may have the port
}

// Name is the name of the port, which is the iface-id on the node's switch. It ends
// in a third part that is no UUID: no pod's interface is called so.
func (o ManagementPort) Name() string { return ManagementPortName(o.Node) }

// ManagementPortName is the name of a node's management port.
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

// Refs implements Object. A node is no more than its address here: it need not be there.
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

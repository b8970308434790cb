package ranges

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// NodesConfig says how nodes are joined with the network.
type NodesConfig struct {
	// Network has the IPv4 addresses of nodes' management ports; its zero value leaves nodes
	// without one. NetworkIPv6 has their IPv6 addresses, at least as many; its zero value leaves them without.
	Network, NetworkIPv6 nodenet.Range
	// Ports is set if nodes have a port in each of their elan-instances instead. If nodes balance, they have an address of
	// Network there.
	Ports bool
	// Balance is set if nodes lead pods to services, because the backend does not; see coe.Networks.
	Balance bool
	// Pods and Services are ranges outside the pools from which pods and services may
	// request addresses, and that nodes reach. The address in a pod's status must be of a
	// pool or of Pods.
	Pods, Services []netip.Prefix
	// External are the ranges that allow external addresses of Kubernetes services.
	External []netip.Prefix
	// NodePorts are the ports on which nodes with a management port answer for services; see
	// ServedPorts.
	NodePorts coe.PortRange
	// HostPorts are the ports of nodes that pods may request; see ServedHostPorts. None is in NodePorts.
	HostPorts []coe.PortRange
	// NoMasquerade are the destinations outside the cluster to which pods keep their address. The
	// outside routes the addresses of pods to their nodes.
	NoMasquerade []netip.Prefix
	// Reserved are ranges that the network uses for its own links.
	Reserved []netip.Prefix
	// Physical are the physical networks of namespaces.
	Physical physical.Networks
}

// Joined reports whether nodes are joined with the network.
func (c NodesConfig) Joined() bool { return c.Network.IsValid() || c.Ports }

// ManagementPorts reports whether nodes have management ports.
func (c NodesConfig) ManagementPorts() bool { return c.Network.IsValid() && !c.Ports }

// HasIPv6 reports whether nodes have IPv6 addresses in the network of the pods.
func (c NodesConfig) HasIPv6() bool { return c.NetworkIPv6.IsValid() || c.Ports }

// ServedPorts returns the ports on which nodes answer for services: none without a management port.
func (c NodesConfig) ServedPorts() coe.PortRange {
	if !c.ManagementPorts() {
		return coe.PortRange{}
	}
	return c.NodePorts
}

// ServedHostPorts returns the ports on which nodes answer for pods: none without a management port.
func (c NodesConfig) ServedHostPorts() []coe.PortRange {
	if !c.ManagementPorts() {
		return nil
	}
	return c.HostPorts
}

// For adapts the settings to a backend of these kinds. Nodes have management ports or, if
// namespaces are isolated, ports in elan-instances. They are not joined if the backend has no
// such kind.
func (c NodesConfig) For(kinds netvirt.KindSet, isolated bool) NodesConfig {
	joins, balances := kinds.Has(netvirt.KindManagementPort), kinds.Has(netvirt.KindServiceVIP)
	if joins && balances {
		c.Reserved = nodenet.LinkRanges()
	}
	if c.Ports = isolated && kinds.Has(netvirt.KindNodePort); c.Ports {
		c.Reserved = append(c.Reserved, nodenet.NodesIsolatedIPv6)
	}
	if c.Balance = joins && !balances; c.Balance {
		c.NetworkIPv6 = nodenet.Range{} // nodes lead to services of IPv4 only
	}
	if isolated || !joins {
		c.NetworkIPv6, c.NoMasquerade = nodenet.Range{}, nil
	}
	if isolated && !c.Balance || !joins {
		c.Network = nodenet.Range{}
	}
	return c
}

// Closed returns the settings for nodes that lead nobody to pods, because namespaces are isolated by other means than networks
// of their own.
func (c NodesConfig) Closed() NodesConfig {
	c.NodePorts, c.HostPorts, c.NoMasquerade = coe.PortRange{}, nil, nil
	return c
}

// Ranges lists the ranges from which no pod may have addresses, and that no pool of pods
// may overlap. The subnets of a physical network are for the pods of its namespace alone.
func (c NodesConfig) Ranges() (all List) {
	for _, n := range []nodenet.Range{c.Network, c.NetworkIPv6} {
		if n.IsValid() {
			all = append(all, Range{Prefix: n.Prefix, Use: "the node network (--node-network)"})
		}
	}
	for _, p := range c.Reserved {
		all = append(all, Range{Prefix: p, Use: "the network's own links"})
	}
	for _, p := range c.Services {
		all = append(all, Range{Prefix: p, Use: "cluster addresses (--service-network)", Services: true})
	}
	for _, n := range c.Physical {
		for _, s := range n.Subnets {
			all = append(all, Range{Prefix: s, Use: fmt.Sprintf("physical network %s of namespace %s (--physical-network)", &n, n.Namespace), Namespace: n.Namespace})
		}
	}
	return all
}

// NodeAddresses returns all addresses of nodes, with the node of each.
func NodeAddresses(nodes map[netip.Addr]*coe.Node) map[netip.Addr]*coe.Node {
	all := make(map[netip.Addr]*coe.Node, len(nodes))
	for _, n := range nodes {
		for _, a := range n.FurtherIPs() {
			if before := all[a]; before == nil || n.Identity() < before.Identity() {
				all[a] = n // nodes behind one address share it
			}
		}
	}
	// the node's own address takes precedence over a further address of another node
	maps.Copy(all, nodes)
	return all
}

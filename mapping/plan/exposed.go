package plan

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/service"
)

// Exposure is a port on which nodes answer, and where it leads.
type Exposure = service.Exposure

// Exposed is what nodes lead clients outside a cluster, and their own programs, to.
type Exposed struct {
	Ports []Exposure
	// Addresses has the addresses of nodes in the network of the pods, by the internal addresses and the ExternalIPs of the nodes:
	// of the same family. They can differ from those that a bridge has chosen, but are in the same network. A node without an edge
	// address has none.
	Addresses map[netip.Addr]netvirt.NodeAddresses
	// Nodes has the first internal address of each node, by its internal addresses, and External by its ExternalIP.
	Nodes, External map[netip.Addr]netip.Addr
	// Problems are the problems of services.
	Problems []coe.Problem
}

// ExposedPorts computes what the nodes of a cluster lead to, whose pods have the addresses in their status.
func ExposedPorts(ctx context.Context, cluster *manifest.Set, cfg Config) (*Exposed, error) {
	cfg.Nodes.Pods = addressesOfPods(cluster)
	cfg.Layout = codec.LayoutELAN // it gives nodes no blocks of addresses
	nodes := cfg.nodes()
	cfg.Mapping.Limits, cfg.Mapping.NodePorts, cfg.Mapping.ManagementPorts = cfg.Layout.Limits(), nodes.ServedPorts(), nodes.ManagementPorts()
	cfg.Mapping.NodesIPv6 = nodes.HasIPv6()
	n := newNetwork(cfg)
	s, err := n.put(ctx, &input{manifests: *cluster})
	if err != nil {
		return nil, fmt.Errorf("list exposed ports: %w", err)
	}
	e := &Exposed{Addresses: map[netip.Addr]netvirt.NodeAddresses{}, Nodes: map[netip.Addr]netip.Addr{}, External: map[netip.Addr]netip.Addr{}}
	for _, ns := range n.store.Namespaces() {
		e.Ports = append(e.Ports, service.Exposures(n.store.View(ns), cfg.Mapping.ServiceSettings())...)
	}
	for _, k := range s.model.Keys() { // in order: of several nodes that report an ExternalIP the first one has it
		if p, is := s.model[k].(netvirt.ManagementPort); is {
			e.addNode(n.store.Nodes()[p.Node], p)
		}
	}
	for _, p := range s.problems {
		if p.Kind == "service" {
			e.Problems = append(e.Problems, p)
		}
	}
	return e, nil
}

func (e *Exposed) addNode(n *coe.Node, p netvirt.ManagementPort) {
	e.addAddress(e.Nodes, p.Node, p)
	if n != nil && n.SecondIP.IsValid() {
		e.addAddress(e.Nodes, n.SecondIP, p)
	}
	if n == nil || !n.ExternalIP.IsValid() || e.External[n.ExternalIP].IsValid() {
		return
	}
	internal, is := e.Addresses[n.ExternalIP] // of another node
	if e.addAddress(e.External, n.ExternalIP, p); is {
		e.Addresses[n.ExternalIP] = internal
	}
}

func (e *Exposed) addAddress(of map[netip.Addr]netip.Addr, a netip.Addr, p netvirt.ManagementPort) {
	of[a] = p.Node
	for _, f := range p.Families() {
		if f.Edge.IsValid() && f.Edge.Is4() == a.Is4() {
			e.Addresses[a] = f
		}
	}
}

// addressesOfPods returns the addresses that pods have for themselves.
func addressesOfPods(cluster *manifest.Set) (all []netip.Prefix) {
	for _, p := range cluster.Pods {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && !p.Spec.HostNetwork {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil && !p.Spec.HostNetwork {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

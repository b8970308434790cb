package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/gateway"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// gatewayVIPs maps the exposed ports of services to the gateways with services: node ports at the address of the
// gateway, and external addresses in the ranges that gateways let in.
func (b *builder) gatewayVIPs(exposures []exposure) {
	gateways := b.serving()
	if len(gateways) == 0 {
		return
	}
	external, reported := gateway.External(b.External.All(), b.Gateways), map[*coe.Service]bool{}
	for _, e := range exposures {
		targets, accepted := b.accepted[e.service]
		if !accepted || e.health || e.own || !b.leadsAtGateways(e, external) {
			continue
		}
		all, of := b.sortedEndpoints(e, targets), b.exposedTargets(e.service, targets)
		if at := slices.IndexFunc(all, b.isOutside); at >= 0 {
			if !reported[e.service] { // one problem is enough: there may be hundreds
				b.unenforced(e.service, fmt.Sprintf(
					"gateways do not lead to endpoints outside the network of pods and nodes, such as %s: clients outside reach these by node ports of nodes", all[at].Addr()))
			}
			reported[e.service], all = true, slices.DeleteFunc(all, b.isOutside)
		}
		for _, g := range gateways {
			if !g.Leads(e.to) {
				continue
			}
			v := b.gatewayVIP(e, g, all)
			if e.service.Local {
				v.Endpoints = netvirt.NewEndpointList(b.localEndpoints(e, g, of.byNode[g.Node])...)
				v.Waits = v.Endpoints == "" && len(all) > 0
			}
			if !b.countAtGateways(e.service, v) {
				return
			}
			b.model.Add(v)
		}
	}
}

// isOutside reports whether an endpoint is outside the network of pods and nodes. A gateway sends no packet from outside
// back there. A second address that two nodes report is outside: one of them reports what it does not have.
func (b *builder) isOutside(endpoint netip.AddrPort) bool {
	a := endpoint.Addr()
	if b.Networks == nil || b.pods[a] != nil || b.Nodes[a] != nil || b.Networks.Nodes.Contains(a) || b.Networks.NodesIPv6.Contains(a) {
		return false
	}
	if len(b.nodesAt(a)) == 1 && (a.Is4() || b.Networks.NodesIPv6.IsValid()) {
		return false
	}
	return !slices.ContainsFunc(b.Networks.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
}

// serving returns the gateways with services.
func (b *builder) serving() []*coe.Gateway {
	if !b.GatewaysLead {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Gateways), func(g *coe.Gateway) bool { return !g.Services })
}

// leadsAtGateways reports whether gateways lead to an exposed port.
func (b *builder) leadsAtGateways(e exposure, external []netip.Prefix) bool {
	if e.at.Address.IsUnspecified() {
		return true
	}
	for _, g := range b.Gateways {
		if g.Services && g.In(e.at.Address).Address.Addr() == e.at.Address {
			b.serviceProblem(e.service, coe.AddressTaken, fmt.Sprintf(
				"its external address %s is the address of the gateway of node %s, which leads to node ports only; choose another address", e.at.Address, g.Node))
			return false
		}
	}
	return slices.ContainsFunc(external, func(p netip.Prefix) bool { return p.Contains(e.at.Address) })
}

// gatewayVIP returns an exposed port at a gateway, with the endpoints on all nodes.
func (b *builder) gatewayVIP(e exposure, g *coe.Gateway, all []netip.AddrPort) netvirt.GatewayVIP {
	v := netvirt.GatewayVIP{
		Service: e.service.UID, Namespace: b.Namespace, Gateway: g.Node, Protocol: netvirt.Protocol(e.at.Protocol),
		VIP: netip.AddrPortFrom(e.at.Address, e.at.Port), Endpoints: netvirt.NewEndpointList(all...), Local: e.service.Local,
	}
	if e.at.Address.IsUnspecified() {
		v.VIP = netip.AddrPortFrom(g.In(e.to).Address.Addr(), e.at.Port)
	} else if b.restricts(e.service, e.at.Address) {
		v.Restricted, v.Sources = true, netvirt.NewPrefixList(e.service.SourceRanges...).In(e.to)
	}
	return v
}

// localEndpoints returns the endpoints on the node of a gateway, which see the addresses of clients. They answer by this
// gateway.
func (b *builder) localEndpoints(e exposure, g *coe.Gateway, here []target) []netip.AddrPort {
	var own []target
	reported := false
	for _, t := range here {
		if t.addr.Is4() != e.to.Is4() {
			continue
		}
		why := b.answersElsewhere(t.addr, g)
		if why == "" {
			own = append(own, t)
		} else if !reported { // one problem is enough: there may be hundreds
			b.unenforced(e.service, fmt.Sprintf(
				"the gateway of node %s does not lead to endpoints such as %s, which answer by %s, or use externalTrafficPolicy Cluster", g.Node, t.addr, why))
			reported = true
		}
	}
	return b.sortedEndpoints(e, own)
}

// answersElsewhere returns by what an endpoint on the node of a gateway answers clients outside, without translation, and what
// to do; empty if it answers by the gateway.
func (b *builder) answersElsewhere(a netip.Addr, g *coe.Gateway) string {
	if egress := b.egressOf(a); egress != nil {
		return fmt.Sprintf("egressip %s: let it not select them", egress.Name)
	}
	if other := coe.PinnedTo(b.Gateways, a); other != nil && other != g {
		return fmt.Sprintf("the gateway of node %s: pin them to no other gateway", other.Node)
	}
	return ""
}

// countAtGateways adds a GatewayVIP to the namespace's count. It reports whether the count is within its limit.
func (b *builder) countAtGateways(s *coe.Service, v netvirt.GatewayVIP) bool {
	b.atGateways += max(1, backendsOf(v.Endpoints, v.VIP)) + len(v.Sources.All())
	if b.atGateways <= coe.MaxNamespaceBackends {
		return true
	}
	b.serviceProblem(s, coe.TooLarge, fmt.Sprintf(
		"gateways do not lead to it, nor to later services: the services of the namespace have more than %d endpoints at gateways; use another namespace, or remove services",
		coe.MaxNamespaceBackends))
	return false
}

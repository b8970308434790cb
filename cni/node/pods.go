package node

import (
	"context"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/podservices"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// LeadPod leads the programs of a pod with an address to services, from its network namespace, and waits until they are led. It does nothing if
// the pod network balances.
func (n *Node) LeadPod(ctx context.Context, netns string, address netip.Addr) error {
	place, _, _ := n.cfg.Uplink.Place()
	if place == nil || !n.balances(place) {
		return nil
	}
	return n.pods.Lead(ctx, podservices.Pod{Netns: netns, Address: address})
}

// followPods leads the pods that have ports of the switch. If the pod network balances, it removes once what a former process has left in
// them. It changes nothing while the ports are not known.
func (n *Node) followPods(asks context.Context, place *uplink.Place) {
	balances := n.balances(place)
	if !balances && n.podsLeft {
		return
	}
	ports, err := n.cfg.Switch.Ports(asks)
	if err != nil {
		return // the check of the ports themselves reports it
	}
	all, within := podsOf(ports), slices.Concat(place.Pods, place.Services)
	n.pods.Follow(all, within)
	if n.podsLeft = !balances; n.podsLeft {
		n.pods.Follow(nil, within)
	}
}

// podsOf returns the pods of ports of the switch that have an IPv4 address.
func podsOf(ports []ovs.Port) (all []podservices.Pod) {
	for _, p := range ports {
		if i := slices.IndexFunc(p.Addresses, netip.Addr.Is4); i >= 0 && p.Attachment.Netns != "" {
			all = append(all, podservices.Pod{Netns: p.Attachment.Netns, Address: p.Addresses[i]})
		}
	}
	return all
}

// podPort returns the port by which programs of pods reach one that the bridge reports. leads is false if the node must lead them there: only
// cluster addresses that all pods may use are known in pods, and only if all endpoints are pods.
func (n *Node) podPort(e *uplink.ExposedPort, place *uplink.Place) (p nodeports.Port, leads bool) {
	p = n.exposedPort(e, place)
	p.Own, p.Local = true, false
	isPod := func(a netip.AddrPort) bool { return a.Addr().Is4() && a.Port() != 0 && inside(place, a.Addr()) }
	leads = n.balances(place) && e.External == e.Address && p.Service.Addr().Is4() && routes(place, e) && !e.Restricted &&
		len(p.Endpoints) > 0 && len(p.Endpoints) <= nodeports.MaxEndpoints && !slices.ContainsFunc(p.Endpoints, func(a netip.AddrPort) bool { return !isPod(a) })
	return p, leads
}

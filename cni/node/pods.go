package node

import (
	"context"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// LeadPod leads the programs of a pod to services, from its network namespace, and waits until they are led, or a try has failed: then the node
// leads them. It does nothing if the pod network balances.
func (n *Node) LeadPod(ctx context.Context, netns string) {
	if place, _, _ := n.cfg.Uplink.Place(); place != nil && n.balances(place) {
		n.pods.Lead(ctx, netns)
	}
}

// followPods leads the pods that have ports of the switch. If the pod network balances, it removes once what a former process has left in
// them.
func (n *Node) followPods(asks context.Context, place *uplink.Place) error {
	balances := n.balances(place)
	if !balances && n.unledPods {
		return nil
	}
	ports, err := n.cfg.Switch.Ports(asks)
	if err != nil {
		return err
	}
	if balances {
		n.unledPods = false
		n.pods.Follow(podsOf(ports))
		return nil
	}
	err = n.pods.RemoveFrom(podsOf(ports))
	n.unledPods = err == nil
	return err
}

// podsOf returns the network namespaces of pods with an IPv4 address that have ports of the switch.
func podsOf(ports []ovs.Port) (all []string) {
	for _, p := range ports {
		if slices.ContainsFunc(p.Addresses, netip.Addr.Is4) && p.Attachment.Netns != "" {
			all = append(all, p.Attachment.Netns)
		}
	}
	return all
}

// podPort returns the port by which programs of pods reach one that the bridge reports. leads is false if the node must lead them there: only
// cluster addresses that all pods may use are known in pods, and only if all endpoints are pods.
func (n *Node) podPort(e *uplink.ExposedPort, place *uplink.Place) (p nodeports.Port, leads bool) {
	p = n.exposedPort(e, place)
	isPod := func(a netip.AddrPort) bool { return a.Addr().Is4() && inside(place, a.Addr()) }
	leads = n.balances(place) && !e.Own && e.External == e.Address && routes(place, e) && !e.Restricted &&
		!slices.ContainsFunc(p.Endpoints, func(a netip.AddrPort) bool { return !isPod(a) })
	return p, leads
}

// putPodPort makes pods follow a port that the bridge reports.
func (n *Node) putPodPort(e *uplink.ExposedPort, place *uplink.Place) {
	switch p, leads := n.podPort(e, place); {
	case e.Own:
	case leads:
		n.pods.Put(p)
	default:
		n.pods.Remove(p)
	}
}

// removePodPort makes pods follow the removal of a port.
func (n *Node) removePodPort(e *uplink.ExposedPort, place *uplink.Place) {
	if !e.Own {
		n.pods.Remove(n.exposedPort(e, place))
	}
}

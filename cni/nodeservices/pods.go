package nodeservices

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// LeadPod leads the programs of a pod to services, from its network namespace, and waits for a short time until they are led. Until then the node
// leads them. It does nothing if the pod network balances.
func (s *Services) LeadPod(ctx context.Context, netns string) {
	if place, _, _ := s.cfg.Uplink.Place(); place != nil && s.balances(place) {
		s.pods.Lead(ctx, netns)
	}
}

// followPods leads the pods that have ports of the switch. If the node leads none, it removes once what a former process has left in them. place
// is nil if the node is not connected.
func (s *Services) followPods(asks context.Context, place *uplink.Place) {
	leads := place != nil && s.balances(place)
	if !leads && s.unledPods {
		return
	}
	ports, err := s.cfg.Switch.Ports(asks)
	if err != nil {
		return // what else asks the switch reports it, and asks again
	}
	if s.unledPods = !leads; leads {
		s.pods.Follow(podsOf(ports))
		return
	}
	var inside []netip.Prefix
	if place != nil {
		inside = slices.Concat(place.Services, place.Pods)
	}
	go func() {
		if err := s.pods.RemoveFrom(podsOf(ports), inside); err != nil {
			s.log.Warn("some pods keep rules that lead them to services; create them again", "err", err)
		}
	}()
}

// CleanupPods removes the rules from pods that have ports of the switch. No Node may run meanwhile.
func (s *Services) CleanupPods(ctx context.Context) error {
	ports, err := s.cfg.Switch.Ports(ctx)
	if err == nil {
		err = s.pods.RemoveFrom(podsOf(ports), nil)
	}
	if err != nil {
		return fmt.Errorf("clean up pods: %w", err)
	}
	return nil
}

// podsOf returns the network namespaces of pods with an IPv4 address that have ports of the switch.
func podsOf(ports []vif.Port) (all []string) {
	for _, p := range ports {
		if slices.ContainsFunc(p.Addresses, netip.Addr.Is4) && p.Attachment.Netns != "" {
			all = append(all, p.Attachment.Netns)
		}
	}
	return all
}

// podPort returns the port by which programs of pods reach one that the bridge reports. leads is false if the node must lead them there: only
// addresses that all pods may use are known in pods, and only if all endpoints are pods.
func (s *Services) podPort(e *uplink.ExposedPort, place *uplink.Place) (p nodeports.Port, leads bool) {
	p = s.exposedPort(e, place)
	isPod := func(a netip.AddrPort) bool { return a.Addr().Is4() && inside(place, a.Addr()) }
	leads = s.balances(place) && ofPods(e) && routes(place, e) && !e.Restricted &&
		!slices.ContainsFunc(p.Endpoints, func(a netip.AddrPort) bool { return !isPod(a) })
	return p, leads
}

// ofPods reports whether a port that the bridge reports can be known in pods: one of a cluster address, or one of an external address with the
// policy Local, whose endpoints on all nodes have a record for clients inside the cluster.
func ofPods(e *uplink.ExposedPort) bool {
	return e.External.Is4() && !e.Own && e.Inside == (e.External != e.Address)
}

// byNeedOfPods sorts those ports first without which policies do not see the pods of a service: the rules of pods have a limit.
func byNeedOfPods(a, b *uplink.ExposedPort) int {
	if a.Inside != b.Inside {
		if a.Inside {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Key(), b.Key())
}

// putPodPort makes pods follow a port that the bridge reports.
func (s *Services) putPodPort(e *uplink.ExposedPort, place *uplink.Place) {
	switch p, leads := s.podPort(e, place); {
	case !ofPods(e):
	case leads:
		s.pods.Put(p)
	default:
		s.pods.Remove(p)
	}
}

// removePodPort makes pods follow the removal of a port.
func (s *Services) removePodPort(e *uplink.ExposedPort, place *uplink.Place) {
	if !e.Own { // it can have the address of a port that pods follow
		s.pods.Remove(s.exposedPort(e, place))
	}
}

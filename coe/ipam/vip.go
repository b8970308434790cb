package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/vips"
)

// claimClusterIPs claims the cluster addresses that the services of a namespace request.
func (r *round) claimClusterIPs(s *space) {
	for _, svc := range s.view.Services {
		if svc.Excess() != "" {
			continue
		}
		for _, addr := range svc.ClusterIPs {
			f := coe.VIPFact{VIP: coe.VIP{Address: addr}, Namespace: s.name}
			if refusal := r.claimClusterIP(f); refusal != nil {
				s.service(svc.UID, refusal)
			}
		}
	}
}

func (r *round) claimClusterIP(f coe.VIPFact) *coe.Refusal {
	if c := r.vips.Cluster(f.Address); c != nil && c.Namespace == f.Namespace {
		r.vips.Renew(c)
		return nil
	}
	if c := r.vips.Holder(f); c != nil {
		return takenVIP(c, f.VIP)
	}
	if refusal := r.reserved.ClusterIP(f.Address); refusal != nil {
		return refusal
	}
	r.takeFromNode(f.Address)
	if owner := r.alloc.Owner(serviceDomain, f.Address); owner != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", f.Address, r.holder(owner))}
	}
	if !r.alloc.Hold(serviceDomain, f.Address, saidOwner(f.Address)) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s is a gateway of pods", f.Address)}
	}
	for _, ns := range r.vips.ClaimCluster(f) {
		r.touched[ns] = true
	}
	r.noteReach(f.Address)
	return nil
}

// claimExternalIPs claims the external addresses of the services of a namespace: addresses of load balancers
// first, so that another service of the namespace that names the address does not change the claim.
func (r *round) claimExternalIPs(s *space) {
	for _, balanced := range []bool{true, false} {
		for _, svc := range s.view.Services {
			if len(svc.ExternalIPs) == 0 || svc.Excess() != "" {
				continue
			}
			for _, addr := range svc.ExternalIPs {
				if slices.Contains(svc.LoadBalancerIPs, addr) != balanced {
					continue
				}
				if refusal := r.claimExternalIP(s, svc, addr, balanced); refusal != nil {
					s.service(svc.UID, refusal)
				}
			}
		}
	}
}

func (r *round) claimExternalIP(s *space, svc *coe.Service, addr netip.Addr, balanced bool) *coe.Refusal {
	if c := r.vips.Cluster(addr); c != nil && c.Namespace == s.name {
		return nil // the claim covers all ports of the address
	}
	if refusal := r.refuseExternal(svc, addr); refusal != nil {
		return refusal
	}
	ports := svc.Ports
	if len(ports) == 0 {
		ports = []coe.ServicePort{{}}
	}
	var refusal *coe.Refusal
	for _, p := range ports {
		if taken := r.claimExternal(s, coe.VIP{Address: addr, Protocol: p.Protocol, Port: p.Port}, balanced); taken != nil {
			refusal = taken
		}
	}
	return refusal
}

// claimExternal claims a VIP that is not a cluster address. balanced: a load balancer has the address.
func (r *round) claimExternal(s *space, v coe.VIP, balanced bool) *coe.Refusal {
	holder, lost := r.vips.ClaimExternal(coe.VIPFact{VIP: v, Namespace: s.name, External: true, Balanced: balanced})
	if holder != nil {
		return takenVIP(holder, v)
	}
	for _, ns := range lost {
		r.touched[ns] = true
		r.more[ns] = true // also if it was given: it may have renewed the claim in this round
	}
	return nil
}

// claimNodePorts claims the node ports of the services of a namespace, unless nodes answer on none.
func (r *round) claimNodePorts(s *space) {
	if r.cfg.Nodes.ServedPorts() == (coe.PortRange{}) {
		return
	}
	for _, svc := range s.view.Services {
		if svc.Excess() != "" {
			continue
		}
		for _, p := range append(slices.Clone(svc.Ports), coe.ServicePort{Protocol: "tcp", NodePort: svc.HealthPort}) {
			if p.NodePort == 0 {
				continue
			}
			if refusal := r.claimNodePort(s, p.Protocol, p.NodePort); refusal != nil {
				s.service(svc.UID, refusal)
			}
		}
	}
}

// claimNodePort claims a port within NodesConfig.NodePorts. A namespace has at most coe.MaxNodePorts.
func (r *round) claimNodePort(s *space, protocol string, port uint16) *coe.Refusal {
	if !r.cfg.Nodes.NodePorts.Contains(port) {
		return &coe.Refusal{Reason: coe.NotAllowed, Message: fmt.Sprintf(
			"node port %s %d is not in --node-ports %s; choose another port, or have the operator set the range to the API server's --service-node-port-range",
			protocol, port, r.cfg.Nodes.NodePorts)}
	}
	v := coe.PortOnNodes(protocol, port)
	if r.vips.Claimed(s.name, v) == nil && r.vips.OnNodes(s.name) >= coe.MaxNodePorts {
		return &coe.Refusal{Reason: coe.TooLarge, Message: fmt.Sprintf(
			"node port %s %d: the services of the namespace have %d node ports already; use another namespace, or remove node ports",
			protocol, port, coe.MaxNodePorts)}
	}
	return r.claimExternal(s, v, false)
}

// refuseExternal returns the reason why a service cannot have an external address, or nil.
// In Kubernetes a tenant chooses the address, so the operator must allow its range.
func (r *round) refuseExternal(svc *coe.Service, addr netip.Addr) *coe.Refusal {
	if refusal := r.reserved.External(addr); refusal != nil {
		return refusal
	}
	if owner := r.alloc.Owner(serviceDomain, addr); owner != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("external address %s %s", addr, r.holder(owner))}
	}
	if r.store.Origin(svc.UID) == coe.Kubernetes && !contains(r.cfg.Nodes.External, addr) {
		return &coe.Refusal{Reason: coe.NotAllowed, Message: fmt.Sprintf(
			"external address %s is in no prefix of --external-addresses; remove it from the service, or have the operator add it there", addr)}
	}
	return nil
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func takenVIP(by *vips.Claim, v coe.VIP) *coe.Refusal {
	if v.Address.IsUnspecified() {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf(
			"node port %s %d belongs to a service of namespace %s; choose another port for one of the two services", v.Protocol, v.Port, by.Namespace)}
	}
	what := "the cluster address"
	if by.External {
		what = "an external address"
	}
	return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf(
		"%s is %s of a service of namespace %s; remove it from one of the two services", strings.ReplaceAll(vips.Record(v), "/", " "), what, by.Namespace)}
}

// releaseVIPs releases the claims of a namespace that none of its services uses any more, and then their cluster addresses.
func (r *round) releaseVIPs(s *space) {
	for _, addr := range r.vips.ReleaseUnused(s.name) {
		if r.alloc.Owner(serviceDomain, addr) == saidOwner(addr) {
			r.alloc.Release(serviceDomain, addr)
		}
	}
}

// noteClaimed records which namespaces have claimed since the store became complete. The
// journal cannot tell: an earlier release without claims may have run in between.
func (r *round) noteClaimed() {
	if !r.complete || r.claimed.Load() {
		return
	}
	if r.unclaimed == nil {
		r.unclaimed = map[string]bool{}
		for _, ns := range r.store.Namespaces() {
			r.unclaimed[ns] = true
		}
	}
	for _, s := range r.spaces {
		delete(r.unclaimed, s.name)
	}
	r.claimed.Store(len(r.unclaimed) == 0)
}

// saidOwner is the owner of a cluster address that a service requests.
func saidOwner(addr netip.Addr) string { return "said/" + addr.String() }

// forgetful is a Journal that stores nothing.
type forgetful struct{}

func (forgetful) Load(context.Context) (map[string][]byte, error) {
	return nil, nil
}
func (forgetful) MaxOps() int                                               { return 1000 }
func (forgetful) Commit(context.Context, map[string][]byte, []string) error { return nil }

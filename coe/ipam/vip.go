package ipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/coe/vips"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// vipClaims are the claims of service addresses (package vips), with the records of their changes. Beyond the rules there:
//
//   - A claim of a cluster address takes the address from the external addresses of other namespaces, and an address that a load
//     balancer reports from the namespaces that just name it.
//   - An address must be one that may be external (Assigner.refuseExternal), and a node port within NodesConfig.NodePorts. A
//     namespace has at most coe.MaxNodePorts of these.
//
// A claim is in the journal before the mapping uses it. It stays until a round with a complete
// store finds that no service of the namespace uses it.
type vipClaims struct {
	*vips.Claims
	journal  journal.Journal
	alloc    *dhcppool.Allocator // holds the cluster addresses
	write    *journal.Write
	told     []func(*state.Tx) // the changes of the store that follow, in the order of the claims
	round    uint64
	freed    bool // a claim was released in this round
	reserved ranges.Reserved
}

func newVIPs(j journal.Journal) *vipClaims {
	return &vipClaims{Claims: vips.New(), journal: j, write: journal.NewWrite()}
}

// load reads the claims. It removes a record that is damaged or conflicts with another record. Its
// service claims the address again.
func (v *vipClaims) load(ctx context.Context) (damaged []error, err error) {
	records, err := v.journal.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load addresses of services: %w", err)
	}
	var facts []coe.VIPFact
	for _, key := range slices.Sorted(maps.Keys(records)) {
		f, err := vips.Decode(key, records[key])
		if err != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: %w", key, err))
			v.write.Remove(journal.RankDeleteLease, key, nil)
			continue
		}
		facts = append(facts, f)
	}
	vips.Sort(facts)
	for _, f := range facts {
		if v.Holder(f) != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: another record has its address", vips.Record(f.VIP)))
			v.write.Remove(journal.RankDeleteLease, vips.Record(f.VIP), nil)
			continue
		}
		v.Add(f, v.round)
	}
	return damaged, nil
}

// tell puts every claim into the store.
func (v *vipClaims) tell(tx *state.Tx) {
	for c := range v.All() {
		tx.PutVIP(c.Namespace, c.VIP)
	}
}

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
		c.Round = r.vips.round
		return nil
	}
	if c := r.vips.Holder(f); c != nil {
		return takenVIP(c, f.VIP)
	}
	if refusal := r.vips.reserved.ClusterIP(f.Address); refusal != nil {
		return refusal
	}
	r.takeFromNode(f.Address)
	if owner := r.alloc.Owner(serviceDomain, f.Address); owner != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", f.Address, r.holder(owner))}
	}
	if !r.alloc.Hold(serviceDomain, f.Address, saidOwner(f.Address)) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s is a gateway of pods", f.Address)}
	}
	for c := range r.vips.External(f.Address) {
		r.vips.release(c)
		r.touched[c.Namespace] = true
	}
	r.vips.claim(f)
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
	f := coe.VIPFact{VIP: v, Namespace: s.name, External: true, Balanced: balanced}
	has := r.vips.Claimed(s.name, v)
	if has != nil && (has.Balanced == balanced || has.Balanced && has.Round == r.vips.round) {
		has.Round = r.vips.round
		return nil
	}
	if has != nil {
		r.vips.release(has) // it is claimed again, for another reason
	}
	if c := r.vips.Holder(f); c != nil {
		return takenVIP(c, v)
	}
	if balanced {
		r.takeFromOthers(s.name, v.Address)
	}
	r.vips.claim(f)
	return nil
}

// takeFromOthers releases the claims of other namespaces that just name an address.
func (r *round) takeFromOthers(namespace string, addr netip.Addr) {
	if r.vips.Balanced(addr, namespace) {
		return // it has been taken before
	}
	for c := range r.vips.External(addr) {
		if c.Namespace != namespace && !c.Balanced {
			r.vips.release(c)
			r.touched[c.Namespace] = true
			r.more[c.Namespace] = true // also if it was given: it may have renewed the claim in this round
		}
	}
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
	if refusal := r.vips.reserved.External(addr); refusal != nil {
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

// claim records a claim, which no other namespace keeps from it.
func (v *vipClaims) claim(f coe.VIPFact) {
	v.Add(f, v.round)
	v.write.Put(journal.RankLease, vips.Record(f.VIP), f, nil)
	v.told = append(v.told, func(tx *state.Tx) { tx.PutVIP(f.Namespace, f.VIP) })
}

// release deletes the record of a claim, and releases its address.
func (v *vipClaims) release(c *vips.Claim) {
	v.Drop(c)
	v.write.Remove(journal.RankInstance, vips.Record(c.VIP), nil)
	v.told = append(v.told, func(tx *state.Tx) { tx.DeleteVIP(c.Namespace, c.VIP) })
	if !c.External && v.alloc.Owner(serviceDomain, c.Address) == saidOwner(c.Address) {
		v.alloc.Release(serviceDomain, c.Address)
	}
	v.freed = true
}

// releaseUnused releases the claims of a namespace that none of its services uses any more.
func (v *vipClaims) releaseUnused(namespace string) {
	for c := range v.AllOf(namespace) {
		if c.Round != v.round {
			v.release(c)
		}
	}
}

// flush writes the changed claims to the journal and then to the store.
func (v *vipClaims) flush(ctx context.Context, store *state.Store) error {
	if v.write.Empty() {
		return nil
	}
	if err := v.write.Commit(ctx, v.journal); err != nil {
		return err
	}
	store.Update(func(tx *state.Tx) {
		for _, tell := range v.told {
			tell(tx)
		}
	})
	v.write, v.told = journal.NewWrite(), nil
	return nil
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

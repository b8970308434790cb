package ipam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// vips has the namespace whose services own each address (VIP). Its rules:
//
//   - The first claim of a cluster address keeps it. It also takes the address
//     from the external addresses of other namespaces.
//   - The first claim of an external address, protocol and port keeps it, as long
//     as the address may be an external one (Assigner.refuseExternal).
//   - An address that a load balancer reports for a service is the namespace's, on all ports: tenants
//     choose externalIPs, and only controllers report. It takes the address from other namespaces that
//     just name it. Namespaces to which load balancers give one address share it by protocol and port.
//   - A node port is an external port of the unspecified address (coe.PortOnNodes), within
//     NodesConfig.NodePorts. A namespace has at most coe.MaxNodePorts of them.
//   - Namespaces own VIPs, services do not: the mapping decides between two
//     services of one namespace.
//
// A claim is in the journal before the mapping uses it. It stays until a round with a complete
// store finds that no service of the namespace uses it.
type vips struct {
	journal Journal
	alloc   *dhcppool.Allocator // holds the cluster addresses
	cluster map[netip.Addr]*vipClaim
	// external has the external claims of each address: one claim of the whole address, or one
	// for each protocol and port.
	external map[netip.Addr]map[coe.VIP]*vipClaim
	// balanced counts the claims of each address for which a load balancer is the reason, by namespace.
	balanced map[netip.Addr]map[string]int
	spaces   map[string]map[coe.VIP]*vipClaim // by namespace
	onNodes  map[string]int                   // how many node ports each namespace has
	write    *write
	round    uint64
	freed    bool // a claim was released in this round
	reserved reserved
}

type vipClaim struct {
	coe.VIPFact
	round uint64 // the last round that found a service with it
}

func newVIPs(journal Journal) *vips {
	return &vips{
		journal:  journal,
		cluster:  map[netip.Addr]*vipClaim{},
		external: map[netip.Addr]map[coe.VIP]*vipClaim{},
		balanced: map[netip.Addr]map[string]int{},
		spaces:   map[string]map[coe.VIP]*vipClaim{},
		onNodes:  map[string]int{},
		write:    newWrite(),
	}
}

// vipRecord is the key of a VIP's record: "10.96.0.1", or "192.0.2.1/tcp/80".
func vipRecord(v coe.VIP) string {
	if v.Port == 0 {
		return v.Address.String()
	}
	return v.Address.String() + "/" + v.Protocol + "/" + strconv.Itoa(int(v.Port))
}

func decodeVIP(key string, value []byte) (coe.VIPFact, error) {
	var f coe.VIPFact
	if err := json.Unmarshal(value, &f); err != nil {
		return f, err
	}
	if !f.Address.IsValid() || f.Namespace == "" || vipRecord(f.VIP) != key {
		return f, fmt.Errorf("it is not a record of %s", key)
	}
	if (f.Protocol == "") != (f.Port == 0) || f.Port != 0 && !f.External {
		return f, fmt.Errorf("protocol %q and port %d do not fit the claim", f.Protocol, f.Port)
	}
	return f, nil
}

// load reads the claims. It removes a record that is damaged or conflicts with another record. Its
// service claims the address again.
func (v *vips) load(ctx context.Context) (damaged []error, err error) {
	records, err := v.journal.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load addresses of services: %w", err)
	}
	var facts []coe.VIPFact
	for _, key := range slices.Sorted(maps.Keys(records)) {
		f, err := decodeVIP(key, records[key])
		if err != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: %w", key, err))
			v.write.remove(rankDeleteLease, key, nil)
			continue
		}
		facts = append(facts, f)
	}
	slices.SortStableFunc(facts, func(a, b coe.VIPFact) int {
		return cmp.Or(cmp.Compare(boolInt(a.External), boolInt(b.External)), cmp.Compare(boolInt(b.Balanced), boolInt(a.Balanced)))
	})
	for _, f := range facts {
		if v.holder(f) != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: another record has its address", vipRecord(f.VIP)))
			v.write.remove(rankDeleteLease, vipRecord(f.VIP), nil)
			continue
		}
		v.add(f)
	}
	return damaged, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// holder returns a claim of another namespace that prevents a claim, or nil. An external claim
// does not prevent the claim of a cluster address.
func (v *vips) holder(f coe.VIPFact) *vipClaim {
	if c := v.cluster[f.Address]; c != nil {
		if c.Namespace == f.Namespace {
			return nil
		}
		return c
	}
	if !f.External {
		return nil
	}
	if !f.Balanced {
		for _, ns := range slices.Sorted(maps.Keys(v.balanced[f.Address])) {
			if ns != f.Namespace {
				return &vipClaim{VIPFact: coe.VIPFact{VIP: coe.VIP{Address: f.Address}, Namespace: ns, External: true, Balanced: true}}
			}
		}
	}
	claims := v.external[f.Address]
	if f.Port != 0 { // a tenant can have thousands of claims of one address
		for _, vip := range []coe.VIP{f.VIP, {Address: f.Address}} {
			if c := claims[vip]; c != nil && c.Namespace != f.Namespace && c.Balanced == f.Balanced {
				return c
			}
		}
		return nil
	}
	for _, c := range claims {
		if c.Namespace != f.Namespace && c.Balanced == f.Balanced {
			return c
		}
	}
	return nil
}

func (v *vips) add(f coe.VIPFact) {
	c := &vipClaim{VIPFact: f, round: v.round}
	if f.External {
		if v.external[f.Address] == nil {
			v.external[f.Address] = map[coe.VIP]*vipClaim{}
		}
		v.external[f.Address][f.VIP] = c
	} else {
		v.cluster[f.Address] = c
	}
	if v.spaces[f.Namespace] == nil {
		v.spaces[f.Namespace] = map[coe.VIP]*vipClaim{}
	}
	v.spaces[f.Namespace][f.VIP] = c
	if f.Balanced {
		if v.balanced[f.Address] == nil {
			v.balanced[f.Address] = map[string]int{}
		}
		v.balanced[f.Address][f.Namespace]++
	}
	if f.Address.IsUnspecified() {
		v.onNodes[f.Namespace]++
	}
}

func (v *vips) drop(c *vipClaim) {
	if !c.External {
		delete(v.cluster, c.Address)
	} else if delete(v.external[c.Address], c.VIP); len(v.external[c.Address]) == 0 {
		delete(v.external, c.Address)
	}
	if delete(v.spaces[c.Namespace], c.VIP); len(v.spaces[c.Namespace]) == 0 {
		delete(v.spaces, c.Namespace)
	}
	if c.Balanced {
		if v.balanced[c.Address][c.Namespace]--; v.balanced[c.Address][c.Namespace] == 0 {
			delete(v.balanced[c.Address], c.Namespace)
		}
		if len(v.balanced[c.Address]) == 0 {
			delete(v.balanced, c.Address)
		}
	}
	if !c.Address.IsUnspecified() {
		return
	}
	if v.onNodes[c.Namespace]--; v.onNodes[c.Namespace] == 0 {
		delete(v.onNodes, c.Namespace)
	}
}

// tell puts every claim into the store.
func (v *vips) tell(tx *coe.Tx) {
	for ns, claims := range v.spaces {
		for vip := range claims {
			tx.PutVIP(ns, vip)
		}
	}
}

// retractVIPs removes every VIP from the store.
func retractVIPs(tx *coe.Tx, views []coe.View) {
	for _, view := range views {
		for vip := range view.VIPs {
			tx.DeleteVIP(view.Namespace, vip)
		}
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
	if c := r.vips.cluster[f.Address]; c != nil && c.Namespace == f.Namespace {
		c.round = r.vips.round
		return nil
	}
	if c := r.vips.holder(f); c != nil {
		return takenVIP(c, f.VIP)
	}
	if refusal := r.vips.reserved.clusterIP(f.Address); refusal != nil {
		return refusal
	}
	r.takeFromNode(f.Address)
	if owner := r.alloc.Owner(serviceDomain, f.Address); owner != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", f.Address, r.holder(owner))}
	}
	if !r.alloc.Hold(serviceDomain, f.Address, saidOwner(f.Address)) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s is a gateway of pods", f.Address)}
	}
	for _, c := range r.vips.external[f.Address] {
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
	if c := r.vips.cluster[addr]; c != nil && c.Namespace == s.name {
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
	has := r.vips.spaces[s.name][v]
	if has != nil && (has.Balanced == balanced || has.Balanced && has.round == r.vips.round) {
		has.round = r.vips.round
		return nil
	}
	if has != nil {
		r.vips.release(has) // it is claimed again, for another reason
	}
	if c := r.vips.holder(f); c != nil {
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
	if r.vips.balanced[addr][namespace] > 0 {
		return // it has been taken before
	}
	for _, c := range r.vips.external[addr] {
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
	if r.vips.spaces[s.name][v] == nil && r.vips.onNodes[s.name] >= coe.MaxNodePorts {
		return &coe.Refusal{Reason: coe.TooLarge, Message: fmt.Sprintf(
			"node port %s %d: the services of the namespace have %d node ports already; use another namespace, or remove node ports",
			protocol, port, coe.MaxNodePorts)}
	}
	return r.claimExternal(s, v, false)
}

// refuseExternal returns the reason why a service cannot have an external address, or nil.
// In Kubernetes a tenant chooses the address, so the operator must allow its range.
func (r *round) refuseExternal(svc *coe.Service, addr netip.Addr) *coe.Refusal {
	if refusal := r.vips.reserved.external(addr); refusal != nil {
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

func takenVIP(by *vipClaim, v coe.VIP) *coe.Refusal {
	if v.Address.IsUnspecified() {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf(
			"node port %s %d belongs to a service of namespace %s; choose another port for one of the two services", v.Protocol, v.Port, by.Namespace)}
	}
	what := "the cluster address"
	if by.External {
		what = "an external address"
	}
	return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf(
		"%s is %s of a service of namespace %s; remove it from one of the two services", strings.ReplaceAll(vipRecord(v), "/", " "), what, by.Namespace)}
}

// claim records a claim, which no other namespace keeps from it.
func (v *vips) claim(f coe.VIPFact) {
	v.add(f)
	before := v.write.changes[vipRecord(f.VIP)].tell // releases the claim of the former owner
	v.write.put(rankLease, vipRecord(f.VIP), f, func(tx *coe.Tx) {
		if before != nil {
			before(tx)
		}
		tx.PutVIP(f.Namespace, f.VIP)
	})
}

// release deletes the record of a claim, and releases its address.
func (v *vips) release(c *vipClaim) {
	v.drop(c)
	before := v.write.changes[vipRecord(c.VIP)].tell // releases the claim of a former owner
	v.write.remove(rankInstance, vipRecord(c.VIP), func(tx *coe.Tx) {
		if before != nil {
			before(tx)
		}
		tx.DeleteVIP(c.Namespace, c.VIP)
	})
	if !c.External && v.alloc.Owner(serviceDomain, c.Address) == saidOwner(c.Address) {
		v.alloc.Release(serviceDomain, c.Address)
	}
	v.freed = true
}

// releaseUnused releases the claims of a namespace that none of its services uses any more.
func (v *vips) releaseUnused(namespace string) {
	for _, c := range v.spaces[namespace] {
		if c.round != v.round {
			v.release(c)
		}
	}
}

// flush writes the changed claims to the journal and then to the store.
func (v *vips) flush(ctx context.Context, store *coe.Store) error {
	if len(v.write.changes) == 0 {
		return nil
	}
	if err := v.write.commit(ctx, v.journal); err != nil {
		return err
	}
	store.Update(v.write.tell)
	v.write = newWrite()
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

// forgetful is a Journal that stores nothing.
type forgetful struct{}

func (forgetful) Load(context.Context) (map[string][]byte, error) {
	return nil, nil
}
func (forgetful) MaxOps() int                                               { return 1000 }
func (forgetful) Commit(context.Context, map[string][]byte, []string) error { return nil }

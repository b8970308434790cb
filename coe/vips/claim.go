package vips

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// BeginRound begins a round of the caller. ReleaseUnused releases the claims that are neither made nor renewed in the round.
func (v *Claims) BeginRound() {
	v.freed = false
	v.round++
}

// Freed reports whether a claim was released in this round.
func (v *Claims) Freed() bool { return v.freed }

// Renew notes that a service uses a claim in this round.
func (v *Claims) Renew(c *Claim) { c.round = v.round }

// ClaimCluster claims a cluster address, which must have no Holder. It returns the namespaces that have lost the address as an
// external one.
func (v *Claims) ClaimCluster(f coe.VIPFact) (lost []string) {
	for c := range v.External(f.Address) {
		v.release(c)
		lost = append(lost, c.Namespace)
	}
	v.claim(f)
	return lost
}

// ClaimExternal claims a VIP that is not a cluster address, or renews its claim. It returns the claim that keeps the VIP from the
// namespace, or nil, and the namespaces that have lost the address.
func (v *Claims) ClaimExternal(f coe.VIPFact) (holder *Claim, lost []string) {
	has := v.Claimed(f.Namespace, f.VIP)
	if has != nil && (has.Balanced == f.Balanced || has.Balanced && has.round == v.round) {
		v.Renew(has)
		return nil, nil
	}
	if has != nil {
		v.release(has) // it is claimed again, for another reason
	}
	if c := v.Holder(f); c != nil {
		return c, nil
	}
	if f.Balanced {
		lost = v.takeFromOthers(f.Namespace, f.Address)
	}
	v.claim(f)
	return nil, lost
}

// takeFromOthers releases the claims of other namespaces that just name an address, and returns these namespaces.
func (v *Claims) takeFromOthers(namespace string, addr netip.Addr) (lost []string) {
	if v.balanced[addr][namespace] > 0 {
		return nil // it has been taken before
	}
	for c := range v.External(addr) {
		if c.Namespace != namespace && !c.Balanced {
			v.release(c)
			lost = append(lost, c.Namespace)
		}
	}
	return lost
}

// ReleaseUnused releases the claims of a namespace that no service has used in this round. It returns the cluster addresses of them.
func (v *Claims) ReleaseUnused(namespace string) (clusterIPs []netip.Addr) {
	for _, c := range v.spaces[namespace] {
		if c.round == v.round {
			continue
		}
		v.release(c)
		if !c.External {
			clusterIPs = append(clusterIPs, c.Address)
		}
	}
	return clusterIPs
}

// claim records a claim, which no other namespace keeps from it.
func (v *Claims) claim(f coe.VIPFact) {
	v.add(f)
	v.write.Put(journal.RankLease, Record(f.VIP), f, nil)
	v.told = append(v.told, func(tx *state.Tx) { tx.PutVIP(f.Namespace, f.VIP) })
}

// release deletes a claim and its record.
func (v *Claims) release(c *Claim) {
	v.remove(c)
	v.write.Remove(journal.RankInstance, Record(c.VIP), nil)
	v.told = append(v.told, func(tx *state.Tx) { tx.DeleteVIP(c.Namespace, c.VIP) })
	v.freed = true
}

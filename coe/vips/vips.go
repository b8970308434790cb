// Package vips keeps which namespace owns each address of services (VIP): cluster addresses, external addresses with their ports, and
// node ports. It says who keeps a claim from another one, records claims in a journal of their own, and has the facts that a standby
// replica makes of the records. It does not know what services may claim: its caller does, which has the pools, the addresses of pods
// and nodes, and the settings. Its rules:
//
//   - The first claim of a cluster address keeps it. An external claim of another namespace does not keep it from its claim.
//   - The first claim of an external address, protocol and port keeps it.
//   - An address that a load balancer reports for a service is the namespace's, on all ports: tenants choose externalIPs, and only
//     controllers report. Claims of other namespaces that just name it do not keep it from its claim. Namespaces to which load
//     balancers give one address share it by protocol and port.
//   - A claim of a cluster address takes the address from the external addresses of other namespaces, and an address that a load
//     balancer reports from the namespaces that just name it.
//   - A node port is an external port of the unspecified address (coe.PortOnNodes).
//   - Namespaces own VIPs, services do not: the mapping decides between two services of one namespace.
//   - A claim is in the journal before the mapping uses it. It stays until a round with a complete store finds that no service of the
//     namespace uses it.
package vips

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Claims are the claims of all namespaces, with the changes that Flush writes next.
type Claims struct {
	cluster map[netip.Addr]*Claim
	// external has the external claims of each address: one claim of the whole address, or one
	// for each protocol and port.
	external map[netip.Addr]map[coe.VIP]*Claim
	// balanced counts the claims of each address for which a load balancer is the reason, by namespace.
	balanced map[netip.Addr]map[string]int
	spaces   map[string]map[coe.VIP]*Claim // by namespace
	onNodes  map[string]int                // how many node ports each namespace has

	journal journal.Journal
	write   *journal.Write
	told    []func(*state.Tx) // the changes of the store that follow, in the order of the claims
	round   uint64
	freed   bool // a claim was released in this round
}

// Claim is the claim of a namespace.
type Claim struct {
	coe.VIPFact
	round uint64 // the last one that found a service with it
}

// New returns Claims without claims. Load reads the claims of the journal.
func New(records journal.Journal) *Claims {
	return &Claims{
		journal: records, write: journal.NewWrite(),
		cluster:  map[netip.Addr]*Claim{},
		external: map[netip.Addr]map[coe.VIP]*Claim{},
		balanced: map[netip.Addr]map[string]int{},
		spaces:   map[string]map[coe.VIP]*Claim{},
		onNodes:  map[string]int{},
	}
}

// Cluster returns the claim of a cluster address; nil if there is none.
func (v *Claims) Cluster(addr netip.Addr) *Claim { return v.cluster[addr] }

// AllCluster returns the claims of cluster addresses.
func (v *Claims) AllCluster() iter.Seq[*Claim] { return maps.Values(v.cluster) }

// External returns the external claims of an address.
func (v *Claims) External(addr netip.Addr) iter.Seq[*Claim] { return maps.Values(v.external[addr]) }

// ExternalAddresses returns the addresses with external claims, and the unspecified address if there are node ports.
func (v *Claims) ExternalAddresses() iter.Seq[netip.Addr] { return maps.Keys(v.external) }

// Claimed returns the claim of a VIP by a namespace; nil if there is none.
func (v *Claims) Claimed(namespace string, vip coe.VIP) *Claim { return v.spaces[namespace][vip] }

// OnNodes returns how many node ports a namespace has.
func (v *Claims) OnNodes(namespace string) int { return v.onNodes[namespace] }

// Holder returns a claim of another namespace that prevents a claim, or nil. An external claim
// does not prevent the claim of a cluster address.
func (v *Claims) Holder(f coe.VIPFact) *Claim {
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
				return &Claim{VIPFact: coe.VIPFact{VIP: coe.VIP{Address: f.Address}, Namespace: ns, External: true, Balanced: true}}
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

// add adds a claim, which no other one keeps from its namespace.
func (v *Claims) add(f coe.VIPFact) {
	c := &Claim{VIPFact: f, round: v.round}
	if f.External {
		if v.external[f.Address] == nil {
			v.external[f.Address] = map[coe.VIP]*Claim{}
		}
		v.external[f.Address][f.VIP] = c
	} else {
		v.cluster[f.Address] = c
	}
	if v.spaces[f.Namespace] == nil {
		v.spaces[f.Namespace] = map[coe.VIP]*Claim{}
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

// remove removes a claim.
func (v *Claims) remove(c *Claim) {
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

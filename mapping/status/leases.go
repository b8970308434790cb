package status

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Leases is the container coe-status:leases.
type Leases struct {
	Leases []Lease `json:"lease,omitempty"`
}

// Lease is what was chosen for an interface of a pod.
type Lease struct {
	PodUID       string         `json:"pod-uid"`
	InterfaceUID string         `json:"interface-uid"`
	Name         string         `json:"interface-name"`
	Namespace    string         `json:"namespace"`
	Pod          string         `json:"pod"`
	Node         netip.Addr     `json:"node"`
	MAC          string         `json:"mac-address"`
	Addresses    []netip.Addr   `json:"ip-address"`
	Networks     []netip.Prefix `json:"network"`
	Released     string         `json:"released,omitempty"`
}

// LeasesOf lists the leases of a store.
func LeasesOf(store *state.Store) (out Leases) {
	for _, ns := range store.Namespaces() {
		v := store.View(ns)
		shared := map[netip.Prefix]netip.Prefix{} // the blocks of nodes, by the gateways that elan-instances see of them
		for _, b := range v.Blocks {
			if b.Shared.IsValid() {
				shared[b.Prefix] = b.Shared
			}
		}
		for _, l := range v.Leases {
			out.Leases = append(out.Leases, leaseOf(l, shared))
		}
	}
	slices.SortFunc(out.Leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.InterfaceUID, b.InterfaceUID))
	})
	return out
}

func leaseOf(l *coe.Lease, shared map[netip.Prefix]netip.Prefix) Lease {
	out := Lease{
		PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Name: l.Name,
		Namespace: l.Namespace, Pod: l.Pod, Node: l.Node, MAC: l.MAC,
	}
	for _, a := range l.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
		network := a.Network
		if block := shared[network]; block.IsValid() && block.Contains(a.Address) {
			network = block
		}
		out.Networks = append(out.Networks, network)
	}
	if l.Released != 0 {
		out.Released = Time(time.Unix(l.Released, 0))
	}
	return out
}

// Pools is the container dhcp_allocation_pool:dhcp_allocation_pool. RESTCONF clients write
// the pools; the allocations are state.
type Pools struct {
	Networks []Network `json:"network,omitempty"`
}

// Network has the pools and the allocations of one network.
type Network struct {
	ID          string        `json:"network-id"`
	Pools       []Pool        `json:"allocation-pool,omitempty"`
	Allocations []Allocations `json:"allocations,omitempty"`
}

// Pool is a pool as clients write it.
type Pool struct {
	Subnet  string   `json:"subnet"`
	From    string   `json:"allocate-from,omitempty"`
	To      string   `json:"allocate-to,omitempty"`
	Gateway string   `json:"gateway,omitempty"`
	DNS     []string `json:"dns-servers,omitempty"`
	DHCP    bool     `json:"coe-dhcp:dhcp,omitempty"`
}

// Allocations are the addresses of a subnet that pods have.
type Allocations struct {
	Subnet    netip.Prefix `json:"subnet"`
	Instances []Allocation `json:"allocation-instance"`
}

// Allocation is the address of an interface.
type Allocation struct {
	MAC     string     `json:"mac"`
	Address netip.Addr `json:"allocated-ip"`
}

// AllocationsOf lists the leased addresses of each pool, by network and subnet.
func AllocationsOf(store *state.Store) (out Pools) {
	given := map[state.PoolKey]map[string]netip.Addr{}
	for _, ns := range store.Namespaces() {
		v := store.View(ns)
		blocks := map[netip.Prefix]*coe.Block{}
		for _, block := range v.Blocks {
			blocks[block.Prefix] = block
		}
		for _, l := range v.Leases {
			for _, a := range l.Addresses {
				block := blocks[a.Network]
				if block == nil || block.Network == "" {
					continue
				}
				p := state.PoolKey{Network: block.Network, Subnet: block.Subnet}
				if given[p] == nil {
					given[p] = map[string]netip.Addr{}
				}
				given[p][l.MAC] = a.Address
			}
		}
	}
	networks := map[string]*Network{}
	for p, macs := range given {
		one := Allocations{Subnet: p.Subnet}
		for mac, addr := range macs {
			one.Instances = append(one.Instances, Allocation{mac, addr})
		}
		slices.SortFunc(one.Instances, func(a, b Allocation) int { return a.Address.Compare(b.Address) })
		if networks[p.Network] == nil {
			networks[p.Network] = &Network{ID: p.Network}
		}
		n := networks[p.Network]
		n.Allocations = append(n.Allocations, one)
	}
	for _, n := range networks {
		slices.SortFunc(n.Allocations, func(a, b Allocations) int { return a.Subnet.Compare(b.Subnet) })
		out.Networks = append(out.Networks, *n)
	}
	slices.SortFunc(out.Networks, func(a, b Network) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

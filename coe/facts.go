package coe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Lease is what was chosen for one interface of a pod, once, and written to the
// datastore before it is used (architecture, decision 8).
type Lease struct {
	PodUID       string `json:"pod-uid"`
	InterfaceUID string `json:"interface-uid"`
	// Seq orders leases by the time of their first claim.
	Seq       uint64     `json:"seq"`
	Namespace string     `json:"namespace"`
	Pod       string     `json:"pod"`
	Name      string     `json:"name"` // the Netvirt interface name
	Primary   bool       `json:"primary,omitempty"`
	Node      netip.Addr `json:"node"`
	MAC       string     `json:"mac"`
	// DeniedMAC is the MAC address that the source wants and that another
	// interface had when MAC was chosen; empty when there was none.
	DeniedMAC string `json:"denied-mac,omitempty"`
	// Addresses has at most one address of each family.
	Addresses []LeasedAddress `json:"addresses"`
	// Chosen is when the lease was chosen as it is, in Unix milliseconds; 0 for one
	// that was chosen before this was noted.
	Chosen int64 `json:"chosen,omitempty"`
	// Released is when the interface went away, in Unix seconds; 0 while it is there.
	Released int64 `json:"released,omitempty"`
}

// LeasedAddress is one address of a lease, and the subnet through which it is
// reached.
type LeasedAddress struct {
	Address netip.Addr `json:"address"`
	// Network is the prefix of the subnet: a block of a pool, or the gateway
	// alone for an address that comes from no pool.
	Network netip.Prefix `json:"network"`
	Gateway netip.Addr   `json:"gateway"`
}

// LeaseKey names an interface of a pod.
type LeaseKey struct {
	PodUID       string
	InterfaceUID string
}

// Key is the lease's key.
func (l *Lease) Key() LeaseKey { return LeaseKey{l.PodUID, l.InterfaceUID} }

// Compare orders keys by the pod's uid, then the interface's.
func (k LeaseKey) Compare(other LeaseKey) int {
	if c := strings.Compare(k.PodUID, other.PodUID); c != 0 {
		return c
	}
	return strings.Compare(k.InterfaceUID, other.InterfaceUID)
}

// Has tells whether the lease has all of the addresses.
func (l *Lease) Has(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		return !slices.ContainsFunc(l.Addresses, func(a LeasedAddress) bool { return a.Address == addr })
	})
}

// Leases are leases in the order of their keys, each key once.
type Leases []*Lease

// Get is the lease of a key, nil for none.
func (l Leases) Get(k LeaseKey) *Lease {
	if n, found := l.Find(k); found {
		return l[n]
	}
	return nil
}

// Find is where the lease of a key is, or would be.
func (l Leases) Find(k LeaseKey) (n int, found bool) {
	return slices.BinarySearchFunc(l, k, func(l *Lease, k LeaseKey) int { return l.Key().Compare(k) })
}

// Block is an address block that an elan-instance holds.
type Block struct {
	ELAN    string       `json:"elan"`
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"`
	// Network and Subnet name the pool that it was carved from; Network is empty
	// for the gateway of addresses that come from no pool.
	Network string       `json:"network,omitempty"`
	Subnet  netip.Prefix `json:"subnet,omitzero"`
	DNS     []netip.Addr `json:"dns,omitempty"`
}

// ELANFact is what was chosen for an elan-instance.
type ELANFact struct {
	Name string `json:"name"`
	VNI  uint32 `json:"vni"`
}

// VPNFact is what was chosen for a vpn-instance.
type VPNFact struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	RD        uint32 `json:"rd"` // the n of "100:n"
}

// ServiceFact is the address that a service without one got from the pool "services".
type ServiceFact struct {
	UID       string     `json:"uid"`
	Namespace string     `json:"namespace"`
	Address   netip.Addr `json:"address"`
	// Released is when the service went away, in Unix seconds; 0 while it is there.
	Released int64 `json:"released,omitempty"`
}

// VIP is an address on which services answer, or one port of it: Protocol and
// Port are empty for every port of the address.
type VIP struct {
	Address  netip.Addr `json:"address"`
	Protocol string     `json:"protocol,omitempty"` // "tcp", "udp", "sctp"
	Port     uint16     `json:"port,omitempty"`
}

// VIPFact records the namespace whose services answer on a VIP. No VIP has two
// namespaces.
type VIPFact struct {
	VIP
	Namespace string `json:"namespace"`
	// External is set for an external address. A cluster address has the whole
	// address, and takes it from the external ones.
	External bool `json:"external,omitempty"`
}

// Reason is why something can't be mapped; stable, for tools.
type Reason string

// The reasons.
const (
	NoName          Reason = "NoName"          // the pod has no name
	NoNode          Reason = "NoNode"          // the pod names no node
	NoAddress       Reason = "NoAddress"       // no pool serves the pod, and it brings no address
	Waiting         Reason = "Waiting"         // an address is being chosen
	PoolExhausted   Reason = "PoolExhausted"   // every address of the pool is taken
	AddressTaken    Reason = "AddressTaken"    // another interface has the address
	NameTaken       Reason = "NameTaken"       // another pod, or another namespace's instance, has the name
	AddressInvalid  Reason = "AddressInvalid"  // the address that the source brings can't be used
	NotAllowed      Reason = "NotAllowed"      // the operator does not allow the external address of a service
	TooLarge        Reason = "TooLarge"        // the service has too many ports, addresses or endpoints
	IDsExhausted    Reason = "IDsExhausted"    // no VNI, route distinguisher or number of a node is left
	NoEndpoint      Reason = "NoEndpoint"      // an endpoint names no pod that is mapped
	NoPort          Reason = "NoPort"          // a target port's name is on no endpoint
	NoClusterIP     Reason = "NoClusterIP"     // the service has no address, and no pool "services" serves it
	PoolOverlaps    Reason = "PoolOverlaps"    // a node's pod-cidr overlaps another pool
	PoolSmall       Reason = "PoolSmall"       // a pool has fewer blocks than nodes and namespaces may need
	RecordDamaged   Reason = "RecordDamaged"   // a record of what was chosen is set aside
	BackendRejected Reason = "BackendRejected" // the backend will never take the object as it is
	NotEnforced     Reason = "NotEnforced"     // the source asks for something that the bridge does not do

	CertificateExpires Reason = "CertificateExpires" // a certificate of this replica must be renewed
)

// Refusal is why no lease (or service address) could be given.
type Refusal struct {
	Reason  Reason
	Message string // says what is missing and what would mend it
}

// Problem is what can't be mapped now, and why. It goes when its cause goes. A Problem
// with the reason NotEnforced is a warning: the object is mapped and has its network,
// but something that its source asks for has no effect.
type Problem struct {
	// Namespace is empty for a problem of the cluster.
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // "pod", "service", "endpoints", "namespace", a PolicyKind, or a Netvirt kind
	UID       string `json:"uid"`  // or the Netvirt name
	Name      string `json:"name"`
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
}

// String is one line for people.
func (p Problem) String() string {
	return fmt.Sprintf("%s %s/%s (%s): %s: %s", p.Kind, p.Namespace, p.Name, p.UID, p.Reason, p.Message)
}

package coe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Lease is what was chosen for one interface of a pod. It is written to the datastore before
// it is used (docs/architecture.md, rule 8).
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
	// DeniedMAC is the requested MAC address if another interface had it when MAC was
	// chosen; otherwise empty.
	DeniedMAC string `json:"denied-mac,omitempty"`
	// DeniedBy describes that interface, or another owner of DeniedMAC, as it was then. Records of earlier releases do
	// not have it.
	DeniedBy string `json:"denied-by,omitempty"`
	// Addresses has at most one address per family.
	Addresses []LeasedAddress `json:"addresses"`
	// DHCP: the pod, or the pool of one of its addresses, asks for DHCP. DNS are the servers of names that it then offers, sorted.
	DHCP bool         `json:"dhcp,omitempty"`
	DNS  []netip.Addr `json:"dns,omitempty"`
	// Chosen is when the current values were chosen, in Unix milliseconds; 0 for records of
	// releases that did not store it.
	Chosen int64 `json:"chosen,omitempty"`
	// Released is when the interface was deleted, in Unix seconds; 0 while it exists.
	Released int64 `json:"released,omitempty"`
}

// LeasedAddress is one address of a lease, with its subnet.
type LeasedAddress struct {
	Address netip.Addr `json:"address"`
	// Network is the prefix of the subnet: a block of a pool, or a host prefix of the gateway
	// for an address that comes from no pool.
	Network netip.Prefix `json:"network"`
	Gateway netip.Addr   `json:"gateway"`
}

// LeaseKey identifies an interface of a pod.
type LeaseKey struct {
	PodUID       string
	InterfaceUID string
}

// Key returns the lease's key.
func (l *Lease) Key() LeaseKey { return LeaseKey{l.PodUID, l.InterfaceUID} }

// Compare compares two leases by their keys.
func (l *Lease) Compare(other *Lease) int { return l.Key().Compare(other.Key()) }

// Compare orders keys by pod UID, then by interface UID.
func (k LeaseKey) Compare(other LeaseKey) int {
	if c := strings.Compare(k.PodUID, other.PodUID); c != 0 {
		return c
	}
	return strings.Compare(k.InterfaceUID, other.InterfaceUID)
}

// Has reports whether the lease has all of the addresses.
func (l *Lease) Has(addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		return !slices.ContainsFunc(l.Addresses, func(a LeasedAddress) bool { return a.Address == addr })
	})
}

// Leases are leases sorted by their keys, which are unique.
type Leases []*Lease

// Get returns the lease of a key, or nil.
func (l Leases) Get(k LeaseKey) *Lease {
	if n, found := l.Find(k); found {
		return l[n]
	}
	return nil
}

// Find returns the index of the lease of a key, or the index at which to insert it.
func (l Leases) Find(k LeaseKey) (n int, found bool) {
	return slices.BinarySearchFunc(l, k, func(l *Lease, k LeaseKey) int { return l.Key().Compare(k) })
}

// Former is an address that a lease gave up while its interface still exists. The address is
// kept for a while.
type Former struct {
	PodUID, InterfaceUID, Namespace string
	Address                         netip.Addr
}

// Block is an address block of an elan-instance.
type Block struct {
	ELAN    string       `json:"elan"`
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"`
	// Network and Subnet identify the pool of the block. Network is empty for the gateway of
	// addresses that come from no pool.
	Network string       `json:"network,omitempty"`
	Subnet  netip.Prefix `json:"subnet,omitzero"`
	// Shared is the block of the node that has the addresses, if all elan-instances of the node share it; else zero.
	// Prefix is then the gateway alone: each address behind it is routed singly, because two elan-instances cannot have one
	// network.
	Shared netip.Prefix `json:"shared,omitzero"`
	DNS    []netip.Addr `json:"dns,omitempty"`
	// DHCP: the pool of the block asks for DHCP.
	DHCP bool `json:"dhcp,omitempty"`
}

// Node returns the address of the node of the elan-instance, which is in its name; invalid if the name has none.
func (b *Block) Node() netip.Addr {
	addr, _ := netip.ParseAddr(b.ELAN[:max(0, strings.LastIndexByte(b.ELAN, ':'))])
	return addr
}

// Compare compares two blocks by elan-instance and prefix, like the order of a View.
func (b *Block) Compare(other *Block) int {
	return cmp.Or(strings.Compare(b.ELAN, other.ELAN), b.Prefix.Compare(other.Prefix))
}

// ELANFact is what was chosen for an elan-instance.
type ELANFact struct {
	Name string `json:"name"`
	VNI  uint32 `json:"vni"`
	// NetworkType is the network-type of all interfaces that the elan-instance had, or MixedNetworks; empty while it is not
	// known.
	NetworkType string `json:"network-type,omitempty"`
}

// MixedNetworks is the NetworkType of an elan-instance with interfaces of several types.
const MixedNetworks = "mixed"

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
	// Released is when the service was deleted, in Unix seconds; 0 while it exists.
	Released int64 `json:"released,omitempty"`
}

// VIP is an address of services, or one port of it. Protocol and Port are zero for all ports
// of the address.
type VIP struct {
	Address  netip.Addr `json:"address"`
	Protocol string     `json:"protocol,omitempty"` // "tcp", "udp", "sctp"
	Port     uint16     `json:"port,omitempty"`
}

// PortOnNodes returns the VIP of a port on every node: a port of the unspecified address.
func PortOnNodes(protocol string, port uint16) VIP {
	return VIP{Address: netip.IPv4Unspecified(), Protocol: protocol, Port: port}
}

// VIPFact records the namespace whose services use a VIP. A VIP has at most one namespace.
type VIPFact struct {
	VIP
	Namespace string `json:"namespace"`
	// External is set for an external address. A cluster address claims all its ports, and
	// overrides external addresses.
	External bool `json:"external,omitempty"`
	// Balanced is set for an external address that a load balancer has. It overrides the external addresses
	// of other namespaces that no load balancer has, on all ports.
	Balanced bool `json:"balanced,omitempty"`
}

// Reason is why an object cannot be mapped. The values are stable, for tools.
type Reason string

// The reasons.
const (
	NoName          Reason = "NoName"          // the pod has no name
	NoNode          Reason = "NoNode"          // the pod names no node
	NoAddress       Reason = "NoAddress"       // no pool serves the pod, and it requests no address
	Waiting         Reason = "Waiting"         // something that it needs is not chosen or known yet
	PoolExhausted   Reason = "PoolExhausted"   // every address of the pool is taken
	AddressTaken    Reason = "AddressTaken"    // another interface has the address
	NameTaken       Reason = "NameTaken"       // another pod, another namespace's instance or another node has the name
	AddressInvalid  Reason = "AddressInvalid"  // the requested address cannot be used
	NotAllowed      Reason = "NotAllowed"      // the operator does not allow the external address or the node port of a service
	TooLarge        Reason = "TooLarge"        // a service has too many ports, addresses or endpoints; or the policies of a namespace have too many rules
	IDsExhausted    Reason = "IDsExhausted"    // no VNI, route distinguisher or node number is left
	NoEndpoint      Reason = "NoEndpoint"      // an endpoint is not the address of a mapped pod
	NoPort          Reason = "NoPort"          // no endpoint has the target port's name
	NoClusterIP     Reason = "NoClusterIP"     // the service has no address, and no pool "services" serves it
	PoolOverlaps    Reason = "PoolOverlaps"    // a node's pod-cidr overlaps another pool
	PoolSmall       Reason = "PoolSmall"       // a pool has fewer blocks than nodes and namespaces may need
	PoolNearlyFull  Reason = "PoolNearlyFull"  // little is left of pools for further blocks and pods
	RecordDamaged   Reason = "RecordDamaged"   // a stored record is unusable and ignored
	BackendRejected Reason = "BackendRejected" // the backend cannot accept the object
	PolicyInvalid   Reason = "PolicyInvalid"   // a policy has a wrong field, so it allows nothing
	ProfileUnknown  Reason = "ProfileUnknown"  // a security profile that is named does not exist
	AgentSilent     Reason = "AgentSilent"     // the agent of a node that holds an egress address does not answer, or does not confirm it
	NotEnforced     Reason = "NotEnforced"     // the source requests something that the bridge does not support

	CertificateExpires Reason = "CertificateExpires" // a certificate of this replica must be renewed
)

// Refusal is why a lease or a service address could not be given.
type Refusal struct {
	Reason  Reason
	Message string // what is missing, and how to fix it
}

// Problem is an object that cannot be mapped, and why. It disappears with its cause. A
// Problem with the reason NotEnforced is a warning: the object is mapped, but a setting of
// its source has no effect.
type Problem struct {
	// Namespace is empty for a problem of the cluster.
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // "pod", "service", "endpoints", "namespace", a PolicyKind, or a Netvirt kind
	UID       string `json:"uid"`  // or the Netvirt name
	Name      string `json:"name"`
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s %s/%s (%s): %s: %s", p.Kind, p.Namespace, p.Name, p.UID, p.Reason, p.Message)
}

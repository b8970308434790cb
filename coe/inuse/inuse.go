// Package inuse reads the addresses that a backend has in use from its model: the addresses of pod interfaces and of ports of nodes. It
// needs no records, and keeps nothing.
package inuse

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Interface is one interface in the backend, as the objects of coe-bridge describe it.
type Interface struct {
	PodUID       string
	InterfaceUID string
	Namespace    string
	Pod          string
	Primary      bool
	Node         netip.Addr
	MAC          string
	// Addresses has at most one address of each family. Network and Gateway are zero if the
	// backend does not have them.
	Addresses []coe.LeasedAddress
	// Shared has the blocks that the node shares, by gateway, of the addresses whose Network is the gateway alone.
	Shared map[netip.Addr]netip.Prefix
	// VNI is the VNI of the interface's elan-instance. VPN is the name of its vpn-instance, and
	// RD the number in the route distinguisher of that. They are zero if the backend does not
	// have them.
	VNI uint32
	VPN string
	RD  uint32
}

// Key returns the key of the lease of the interface.
func (u *Interface) Key() coe.LeaseKey {
	return coe.LeaseKey{PodUID: u.PodUID, InterfaceUID: u.InterfaceUID}
}

// share notes the block that the node shares behind a gateway.
func (u *Interface) share(gateway netip.Addr, block netip.Prefix) {
	if u.Shared == nil {
		u.Shared = map[netip.Addr]netip.Prefix{}
	}
	u.Shared[gateway] = block
}

// Whole reports whether the interface is complete enough for a lease. The backend may have only
// a part of an interface that is being attached or detached.
func (u *Interface) Whole() bool {
	return u.PodUID != "" && u.InterfaceUID != "" && u.Namespace != "" && u.Pod != "" &&
		u.Node.IsValid() && len(u.Addresses) > 0
}

// Node is one port of a node, with an address of the node network, that the backend has.
type Node struct {
	Node    netip.Addr // the address of the node that uses the port
	Address netip.Addr // the address of the node in the node network
}

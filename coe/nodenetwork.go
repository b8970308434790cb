package coe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Networks are the address ranges that nodes have to know of, as one choice for the
// whole cluster.
type Networks struct {
	// Nodes is where nodes' management ports get their addresses from.
	Nodes NodeNetwork `json:"nodes"`
	// Pods are the ranges of pods' addresses, Services those of services' cluster
	// addresses; sorted.
	Pods     []netip.Prefix `json:"pods,omitempty"`
	Services []netip.Prefix `json:"services,omitempty"`
}

// Equal tells whether both say the same.
func (n *Networks) Equal(o *Networks) bool {
	return n.Nodes == o.Nodes && slices.Equal(n.Pods, o.Pods) && slices.Equal(n.Services, o.Services)
}

// NodeFact is what was chosen for a node.
type NodeFact struct {
	Node netip.Addr `json:"node"` // its address
	// Number is what the addresses of its management port follow from; 0 where nodes
	// have none.
	Number uint32 `json:"number"`
	// Owner is the Identity of the node that had the address first. It is empty in a
	// record that a release before November 2026 wrote.
	Owner string `json:"owner,omitempty"`
}

// NodeNetwork is a range of IPv4 addresses: one for the gateway, and two for every
// node, as a function of the node's number.
type NodeNetwork struct{ netip.Prefix }

// Numbers is how many nodes there is room for; they are numbered from 1.
func (n NodeNetwork) Numbers() uint32 {
	if !n.IsValid() || !n.Addr().Is4() || n.Bits() > 29 {
		return 0
	}
	return 1<<(31-n.Bits()) - 2 // the first and the last pair are left
}

// Gateway is the address by which nodes reach all else.
func (n NodeNetwork) Gateway() netip.Addr { return n.nth(1) }

// Address is a node's own address there.
func (n NodeNetwork) Address(number uint32) netip.Addr { return n.nth(2 * number) }

// ServiceAddress is what stands for a node before those that serve it.
func (n NodeNetwork) ServiceAddress(number uint32) netip.Addr { return n.nth(2*number + 1) }

// Number is the node whose own address there is a; 0 for none.
func (n NodeNetwork) Number(a netip.Addr) uint32 {
	if !a.Is4() || !n.IsValid() || !n.Contains(a) {
		return 0
	}
	first, this := n.Masked().Addr().As4(), a.As4()
	i := binary.BigEndian.Uint32(this[:]) - binary.BigEndian.Uint32(first[:])
	if i%2 != 0 || i/2 > n.Numbers() {
		return 0
	}
	return i / 2
}

func (n NodeNetwork) nth(i uint32) netip.Addr {
	first := n.Masked().Addr().As4()
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(first[:])+i)
	return netip.AddrFrom4(a)
}

// MAC is the hardware address of a node's management port: 0a:58, and its address.
func (n NodeNetwork) MAC(number uint32) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, n.Address(number).AsSlice()...)).String()
}

package dhcppool

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// OfNode is how the name of an ELAN begins that is all networks of a node; the address of the node follows.
const OfNode = "node "

// ExhaustedError reports that a network's pools have no free address.
type ExhaustedError struct {
	Network string
	ELAN    string // the ELAN or the node that requested an address; empty if there is none
	Pools   []Pool // the pools that were tried
}

func (e *ExhaustedError) Error() string {
	sizes := make([]string, len(e.Pools))
	for i, p := range e.Pools {
		sizes[i] = fmt.Sprintf("%s has %d", p.Subnet, p.Size())
		if p.Size() == math.MaxInt64 {
			sizes[i] = p.Subnet.String() + " has more than 2^63"
		}
	}
	of, how := "", ""
	if e.ELAN != "" {
		of = " for elan-instance " + e.ELAN
	}
	if e.ELAN != "" && e.ELAN != e.Network {
		how = ", given out in blocks for each node and namespace"
	}
	if node, found := strings.CutPrefix(e.ELAN, OfNode); found {
		if of = " for node " + node; node != e.Network {
			how = ", given out in blocks for each node"
		}
	}
	return fmt.Sprintf("pool %q has no address left%s (%s%s); widen allocate-from and allocate-to or post a further subnet",
		e.Network, of, strings.Join(sizes, ", "), how)
}

// TakenError reports that an address has another owner.
type TakenError struct {
	Address netip.Addr
	Owner   string
}

func (e *TakenError) Error() string { return fmt.Sprintf("%s is held by %s", e.Address, e.Owner) }

// InvalidError reports that an interface cannot have an address.
type InvalidError struct {
	Address netip.Addr
	Why     string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s %s", e.Address, e.Why) }

// unusable returns why no interface can have an address; empty if an interface can.
func unusable(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "is the unspecified address"
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsMulticast():
		return "is a multicast address"
	case a.IsLinkLocalUnicast():
		return "is a link-local address"
	case a.Is4In6():
		return "is an IPv4 address in IPv6 form"
	case a.Zone() != "":
		return "has a zone"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address"
	}
	return ""
}

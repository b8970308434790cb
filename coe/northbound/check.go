package northbound

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"strconv"

	"github.com/coe-bridge/coe-bridge/coe"
)

// LeafError is an error in one leaf of an entry that the YANG modules do not exclude.
type LeafError struct {
	Leaf string // path below the entry, "name" or "service-ports/port"
	Err  error
}

// Error returns the path of the leaf and the error.
func (e *LeafError) Error() string { return e.Leaf + ": " + e.Err.Error() }

// Unwrap returns the error of the leaf.
func (e *LeafError) Unwrap() error { return e.Err }

// Leaves gives Check access to an entry.
type Leaves interface {
	// Leaf returns the value of a leaf in canonical form; empty if it is absent.
	Leaf(name string) string
	// Each calls yield with the entries of a list in it, until yield returns false.
	Each(list string) iter.Seq[Leaves]
}

// Limits of an entry. As in Kubernetes, a name is at most as long as a DNS name, and a
// namespace as long as a DNS label. The other limits are for the entry's lists.
const (
	maxName       = 253
	maxInterfaces = 32
	maxPorts      = 1000
	maxEndpoints  = 1000
)

// Check checks an entry of a list beyond its YANG module. It returns a *LeafError, or nil. It
// accepts entries of lists that this package does not read.
func Check(list string, entry Leaves) error {
	switch list {
	case Pods:
		return errors.Join(checkNames(entry, "name", "network-NS"), checkMAC(entry.Leaf("port-mac-address")),
			checkCount(entry, "interface", maxInterfaces))
	case Services:
		return errors.Join(checkNames(entry, "network-NS"), checkPorts(entry, "service-ports"),
			checkCount(entry, "service-ports", maxPorts))
	case EndpointsList:
		return errors.Join(checkNames(entry, "network-NS"), checkPorts(entry, "endpoint-ports"), checkEndpoints(entry),
			checkCount(entry, "endpoint-ports", maxPorts), checkCount(entry, "endpoint-addresses", maxEndpoints))
	case Nodes:
		return checkPrefix("pod-cidr", entry.Leaf("pod-cidr"))
	case Chassis:
		return checkAddress("address", entry.Leaf("address"))
	}
	return nil
}

func checkMAC(text string) error {
	if text == "" {
		return nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return &LeafError{"port-mac-address", fmt.Errorf("%q is not a unicast MAC address; want six pairs of hex digits, or an empty value", text)}
	}
	return nil
}

func checkPorts(entry Leaves, list string) error {
	for port := range entry.Each(list) {
		if n, err := strconv.ParseInt(port.Leaf("port"), 10, 32); err != nil || n < 1 || n > 65535 {
			return &LeafError{list + "/port", fmt.Errorf("%q is not a port number; want 1..65535", port.Leaf("port"))}
		}
		text := port.Leaf("node-port")
		if n, err := strconv.ParseInt(text, 10, 32); text != "" && (err != nil || n < 0 || n > 65535) {
			return &LeafError{list + "/node-port", fmt.Errorf("%q is not a port number; want 0..65535", text)}
		}
	}
	return nil
}

// checkEndpoints rejects the addresses that Kubernetes rejects in an EndpointSlice.
func checkEndpoints(entry Leaves) error {
	for e := range entry.Each("endpoint-addresses") {
		a, err := netip.ParseAddr(e.Leaf("ip-address"))
		if err == nil && !coe.Routable(a.Unmap()) {
			return &LeafError{"endpoint-addresses/ip-address", fmt.Errorf(
				"%s is a loopback, link-local, multicast or unspecified address; send another one", a)}
		}
	}
	return nil
}

// checkCount rejects an entry with too many entries in a list.
func checkCount(entry Leaves, list string, most int) error {
	n := 0
	for range entry.Each(list) {
		n++
	}
	if n > most {
		return &LeafError{list, fmt.Errorf("the list has %d entries; want at most %d", n, most)}
	}
	return nil
}

// checkAddress rejects a key that is not written as the addresses of nodes are.
func checkAddress(leaf, text string) error {
	if a, err := netip.ParseAddr(text); err != nil || a.Unmap().String() != text {
		return &LeafError{leaf, fmt.Errorf("%q is not an address in its usual form; want an address like 192.168.33.11 or fd00:33::11", text)}
	}
	return nil
}

func checkPrefix(leaf, text string) error {
	if text == "" {
		return nil
	}
	if _, err := netip.ParsePrefix(text); err != nil {
		return &LeafError{leaf, fmt.Errorf("%q is not a prefix; want a prefix like 10.11.2.0/24", text)}
	}
	return nil
}

// checkNames rejects names with coe.CheckName.
func checkNames(entry Leaves, leaves ...string) error {
	for _, leaf := range leaves {
		most := maxName
		if leaf == "network-NS" {
			most = coe.MaxNamespace
		}
		if err := coe.CheckName(entry.Leaf(leaf), most); err != nil {
			return &LeafError{leaf, err}
		}
	}
	return nil
}

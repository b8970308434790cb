package coe

import (
	"fmt"
	"net/netip"
	"time"
)

// EgressKind is the kind of EgressIPs in Problem.Kind.
const EgressKind = "egressip"

// EgressSpec is an EgressIP as a source requests it: the selected pods leave the cluster with an address.
type EgressSpec struct {
	UID, Name string
	Created   time.Time
	Address   netip.Addr
	// Namespaces and Pods select the pods by the labels of their namespace and their own.
	Namespaces, Pods Selector
	// Invalid names the selectors that are wrong, and InvalidAddress what is wrong with the address; empty if they are valid.
	Invalid, InvalidAddress string
}

// EgressIP is an EgressIP as the leader has accepted it, and the nodes that hold its address. It outlives the leader,
// and applies until every source was listed: no leader takes away what it has not heard of.
type EgressIP struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Address is zero while the requested address cannot be used. Then nothing leaves.
	Address    netip.Addr `json:"address,omitzero"`
	Namespaces Selector   `json:"namespaces"`
	Pods       Selector   `json:"pods"`
	// Number is unique. A pod that several select leaves by the one with the lowest number.
	Number uint16 `json:"number"`
	// Hosts are the nodes that translate to the address; zero for none. There are two while it moves.
	Hosts [2]netip.Addr `json:"hosts"`
	// Active and Owner are numbers of Hosts, from 1; 0 for none. Traffic leaves by Active. The NIC of Owner has the
	// address, so answers come in there.
	Active uint8 `json:"active,omitempty"`
	Owner  uint8 `json:"owner,omitempty"`
}

// Host returns the node that the pods leave by; zero while they do not leave.
func (e *EgressIP) Host() netip.Addr {
	if e.Active == 0 {
		return netip.Addr{}
	}
	return e.Hosts[e.Active-1]
}

// The states of an EgressIP.
const (
	EgressHeld    = "held"    // a node holds the address
	EgressMoving  = "moving"  // the address moves to another node
	EgressWaiting = "waiting" // no node holds the address
)

// State returns the state.
func (e *EgressIP) State() string {
	switch {
	case e.Active == 0:
		return EgressWaiting
	case e.Owner == e.Active && !e.Hosts[2-e.Active].IsValid():
		return EgressHeld
	}
	return EgressMoving
}

// Selects reports whether an EgressIP selects pods with some labels, in a namespace with some labels.
func (e *EgressIP) Selects(namespace, pod Labels) bool {
	return e.Namespaces.Matches(namespace) && e.Pods.Matches(PodLabels(namespace, pod))
}

// FirstEgressIP returns the EgressIP with whose address a pod leaves: the one with the lowest number that selects it. It is nil
// if there is none.
func FirstEgressIP(all []*EgressIP, namespace, pod Labels) (first *EgressIP) {
	for _, e := range all {
		if e.Selects(namespace, pod) && (first == nil || e.Number < first.Number) {
			first = e
		}
	}
	return first
}

// Validate returns an error if the record contradicts itself.
func (e *EgressIP) Validate() error {
	for _, n := range []uint8{e.Active, e.Owner} {
		if int(n) > len(e.Hosts) || n > 0 && !e.Hosts[n-1].IsValid() {
			return fmt.Errorf("host %d is missing", n)
		}
	}
	switch {
	case e.Name == "" || e.Number == 0:
		return fmt.Errorf("the name or the number is missing")
	case e.Address.IsValid() && !e.Address.Is4() || e.Active > 0 && !e.Address.IsValid():
		return fmt.Errorf("address %q is not an IPv4 address", e.Address)
	}
	return nil
}

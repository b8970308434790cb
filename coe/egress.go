package coe

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
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

// egressState is what the Store keeps of egress addresses.
type egressState struct {
	specs    map[string]*EgressSpec // by UID
	listed   bool
	ips      []*EgressIP // replaced, never changed
	problems []Problem   // replaced, never changed
}

// PutEgressSpec adds or replaces what the source Kubernetes requests.
func (tx *Tx) PutEgressSpec(s *EgressSpec) {
	tx.store.egress.specs[s.UID] = s
	tx.egress = true
}

// DeleteEgressSpec deletes what the source Kubernetes requests.
func (tx *Tx) DeleteEgressSpec(uid string) {
	delete(tx.store.egress.specs, uid)
	tx.egress = true
}

// SetEgressListed says whether all EgressSpecs are known.
func (tx *Tx) SetEgressListed(listed bool) {
	if e := &tx.store.egress; e.listed != listed {
		e.listed, tx.egress = listed, true
	}
}

// EgressSpecs returns what the source requests: the oldest first, then by name. listed is false if there may be more.
func (s *Store) EgressSpecs() (specs []*EgressSpec, listed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.egress.specs {
		specs = append(specs, e)
	}
	slices.SortFunc(specs, func(a, b *EgressSpec) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return specs, s.egress.listed
}

// EgressSpec returns what the source requests by a UID; nil if there is none.
func (s *Store) EgressSpec(uid string) *EgressSpec {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.egress.specs[uid]
}

// SetEgress replaces the EgressIPs, sorted by name, and their problems.
func (tx *Tx) SetEgress(ips []*EgressIP, problems []Problem) {
	e := &tx.store.egress
	if !slices.EqualFunc(e.ips, ips, sameSelection) {
		tx.stalePolicies()
		for _, one := range slices.Concat(e.ips, ips) {
			tx.markSelected(&one.Namespaces)
		}
	}
	e.ips, e.problems, tx.cluster = ips, problems, true
}

func sameSelection(a, b *EgressIP) bool {
	return a.Name == b.Name && a.Number == b.Number && reflect.DeepEqual(a.Namespaces, b.Namespaces) && reflect.DeepEqual(a.Pods, b.Pods)
}

// EgressIPs returns the EgressIPs, sorted by name.
func (s *Store) EgressIPs() []*EgressIP {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.egress.ips
}

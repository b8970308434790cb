package agentstream

import (
	"crypto/sha256"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Confirmation is the state of an interface in the network backend. While the backend has
// the interface, the leader keeps its Confirmation among the records "confirmed", under
// RecordName. A Confirmation counts only for a lease with equal values: the record of an
// older lease stays until the leader writes the next.
type Confirmation struct {
	Name      string       `json:"name"` // the Netvirt interface name
	Node      netip.Addr   `json:"node"`
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses"` // in the order of the lease
}

// ConfirmationOf returns the Confirmation that counts for a lease.
func ConfirmationOf(l *coe.Lease) Confirmation {
	c := Confirmation{Name: l.Name, Node: l.Node, MAC: l.MAC}
	for _, a := range l.Addresses {
		c.Addresses = append(c.Addresses, a.Address)
	}
	return c
}

// Encode returns the record's value. Equal values encode to equal bytes.
func (c Confirmation) Encode() []byte {
	value, _ := json.Marshal(c) // strings and addresses always encode
	return value
}

// RecordName returns the name of an interface's record.
func RecordName(key coe.LeaseKey) string { return key.PodUID + "/" + key.InterfaceUID }

// KeyOf parses a RecordName; ok is false for another record.
func KeyOf(record string) (coe.LeaseKey, bool) {
	pod, iface, ok := strings.Cut(record, "/")
	return coe.LeaseKey{PodUID: pod, InterfaceUID: iface}, ok && pod != "" && iface != ""
}

// NetworkRecord is the name of the record of the Network, among those "confirmed".
const NetworkRecord = "network/"

// Network identifies what the backend programs the network from, if the backend reports it.
type Network struct {
	// Identity changes when the backend's data was lost and created again.
	Identity string `json:"identity"`
}

// Encode returns the record's value.
func (n Network) Encode() []byte {
	value, _ := json.Marshal(n) // strings always encode
	return value
}

// digest is a hash of a record's value; zero if there is no record.
type digest [16]byte

func digestOf(value []byte) digest {
	if value == nil {
		return digest{}
	}
	sum := sha256.Sum256(value)
	return digest(sum[:16])
}

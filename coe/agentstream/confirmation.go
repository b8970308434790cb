package agentstream

import (
	"crypto/sha256"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Confirmation says what the network backend has of an interface. The leader keeps
// it among the records "confirmed", under RecordName, while the backend has the
// interface. It counts for a lease that says the same, and for no other: that of an
// older lease may stand until the leader has written the next.
type Confirmation struct {
	Name      string       `json:"name"` // the Netvirt interface name
	Node      netip.Addr   `json:"node"`
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses"` // in the order of the lease
}

// ConfirmationOf is what has to be confirmed of a lease.
func ConfirmationOf(l *coe.Lease) Confirmation {
	c := Confirmation{Name: l.Name, Node: l.Node, MAC: l.MAC}
	for _, a := range l.Addresses {
		c.Addresses = append(c.Addresses, a.Address)
	}
	return c
}

// Encode is the record's value. Two that are equal say the same.
func (c Confirmation) Encode() []byte {
	value, _ := json.Marshal(c) // strings and addresses always encode
	return value
}

// RecordName names the record of an interface's Confirmation.
func RecordName(key coe.LeaseKey) string { return key.PodUID + "/" + key.InterfaceUID }

// KeyOf reads what RecordName wrote; false for another record.
func KeyOf(record string) (coe.LeaseKey, bool) {
	pod, iface, ok := strings.Cut(record, "/")
	return coe.LeaseKey{PodUID: pod, InterfaceUID: iface}, ok && pod != "" && iface != ""
}

// NetworkRecord names the record, among those "confirmed", of the Network.
const NetworkRecord = "network/"

// Network says what the network is made from of what is confirmed, where the backend tells.
type Network struct {
	// Identity is another when that was lost and made anew.
	Identity string `json:"identity"`
}

// Encode is the record's value.
func (n Network) Encode() []byte {
	value, _ := json.Marshal(n) // strings always encode
	return value
}

// digest stands for a record's value; the zero one for no record.
type digest [16]byte

func digestOf(value []byte) digest {
	if value == nil {
		return digest{}
	}
	sum := sha256.Sum256(value)
	return digest(sum[:16])
}

package journal

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Former is a resting address: a lease had it before, and has other addresses now.
type Former struct {
	PodUID       string            `json:"pod-uid"`
	InterfaceUID string            `json:"interface-uid"`
	Namespace    string            `json:"namespace"`
	Node         netip.Addr        `json:"node"`
	Address      coe.LeasedAddress `json:"address"`
	Released     int64             `json:"released"`
}

// Key returns the key of the lease that had the address.
func (f *Former) Key() coe.LeaseKey {
	return coe.LeaseKey{PodUID: f.PodUID, InterfaceUID: f.InterfaceUID}
}

// Name returns the key of the former in the Store.
func (f *Former) Name() coe.Former {
	return coe.Former{PodUID: f.PodUID, InterfaceUID: f.InterfaceUID, Namespace: f.Namespace, Address: f.Address.Address}
}

// The keys of records begin with their kind.
const (
	LeaseKind   = "lease/"
	FormerKind  = "former/"
	ServiceKind = "service/"
	NodeKind    = "node/"

	blockKind = "block/"
	elanKind  = "elan/"
	vpnKind   = "vpn/"
)

const (
	// NetworksRecord is the key of the networks that nodes route.
	NetworksRecord = "networks/"
	// AdoptingRecord is the key of a record that exists from the start of an adoption until all its leases are recorded.
	AdoptingRecord = "adopting/"
)

// LeaseRecord returns the key of a lease's record.
func LeaseRecord(k coe.LeaseKey) string { return LeaseKind + k.PodUID + "/" + k.InterfaceUID }

// FormerRecord returns the key of a resting address.
func FormerRecord(f *Former) string {
	return FormerKind + f.PodUID + "/" + f.InterfaceUID + "/" + f.Namespace + "/" + f.Address.Address.String()
}

// BlockRecord returns the key of a block of an elan-instance.
func BlockRecord(elan string, prefix netip.Prefix) string {
	return blockKind + elan + "/" + prefix.String()
}

// ELANRecord returns the key of an elan-instance.
func ELANRecord(name string) string { return elanKind + name }

// VPNRecord returns the key of a vpn-instance.
func VPNRecord(name string) string { return vpnKind + name }

// ServiceRecord returns the key of a service with a chosen address.
func ServiceRecord(uid string) string { return ServiceKind + uid }

// NodeRecord returns the key of the node with an address.
func NodeRecord(a netip.Addr) string { return NodeKind + a.String() }

// IsLease reports whether a record is one of a lease.
func IsLease(record string) bool { return strings.HasPrefix(record, LeaseKind) }

// LeaseOf returns the key of a lease from the key of its record; see LeaseRecord.
func LeaseOf(record string) coe.LeaseKey {
	pod, iface, _ := strings.Cut(strings.TrimPrefix(record, LeaseKind), "/")
	return coe.LeaseKey{PodUID: pod, InterfaceUID: iface}
}

// Records are decoded records.
type Records struct {
	Leases   []*coe.Lease
	Formers  []*Former
	Blocks   []*coe.Block
	ELANs    []*coe.ELANFact
	VPNs     []*coe.VPNFact
	Services []*coe.ServiceFact
	Nodes    []*coe.NodeFact
	Networks []*coe.Networks // at most one
	Adopting bool            // there is an AdoptingRecord
}

// errUnknownKind is the error of a record that another release may have written.
var errUnknownKind = errors.New("this release knows no such kind of record")

// Decode adds a record to the others. After an error, they are unchanged.
func (j *Records) Decode(key string, value []byte) error {
	switch key[:strings.IndexByte(key, '/')+1] {
	case LeaseKind:
		return decodeTo(&j.Leases, key, value, func(l *coe.Lease) string { return LeaseRecord(l.Key()) }, validLease)
	case FormerKind:
		return decodeTo(&j.Formers, key, value, FormerRecord, validFormer)
	case blockKind:
		return decodeTo(&j.Blocks, key, value, func(b *coe.Block) string { return BlockRecord(b.ELAN, b.Prefix) }, validBlock)
	case elanKind:
		return decodeTo(&j.ELANs, key, value, func(e *coe.ELANFact) string { return ELANRecord(e.Name) },
			func(e *coe.ELANFact) bool { return e.Name != "" && e.VNI != 0 })
	case vpnKind:
		return decodeTo(&j.VPNs, key, value, func(v *coe.VPNFact) string { return VPNRecord(v.Name) },
			func(v *coe.VPNFact) bool { return v.Name != "" && v.Namespace != "" && v.RD != 0 })
	case ServiceKind:
		return decodeTo(&j.Services, key, value, func(s *coe.ServiceFact) string { return ServiceRecord(s.UID) },
			func(s *coe.ServiceFact) bool { return s.UID != "" && s.Namespace != "" && s.Address.IsValid() })
	case NodeKind:
		return decodeTo(&j.Nodes, key, value, func(n *coe.NodeFact) string { return NodeRecord(n.Node) },
			func(n *coe.NodeFact) bool { return n.Node.IsValid() })
	case NetworksRecord:
		return decodeTo(&j.Networks, key, value, func(*coe.Networks) string { return NetworksRecord },
			(*coe.Networks).Valid)
	case AdoptingRecord:
		j.Adopting = true
		return nil
	}
	return errUnknownKind
}

// decodeTo appends a record to the list of its kind. The record must be complete, and its
// content must belong to its key.
func decodeTo[T any](list *[]*T, key string, value []byte, name func(*T) string, valid func(*T) bool) error {
	v := new(T)
	if err := json.Unmarshal(value, v); err != nil {
		return err
	}
	if !valid(v) {
		return errors.New("it is incomplete")
	}
	if own := name(v); own != key {
		return fmt.Errorf("it is a copy of record %q", own)
	}
	*list = append(*list, v)
	return nil
}

func validLease(l *coe.Lease) bool {
	return l.PodUID != "" && l.InterfaceUID != "" && l.Namespace != "" && l.Pod != "" && l.Node.IsValid() &&
		len(l.Addresses) > 0 && !slices.ContainsFunc(l.Addresses, func(x coe.LeasedAddress) bool { return !validAddress(x) })
}

func validFormer(f *Former) bool {
	return f.PodUID != "" && f.InterfaceUID != "" && f.Namespace != "" && f.Node.IsValid() && validAddress(f.Address)
}

func validAddress(x coe.LeasedAddress) bool {
	return x.Address.IsValid() && x.Network.IsValid() && x.Network == x.Network.Masked() && x.Gateway.IsValid()
}

func validBlock(b *coe.Block) bool {
	shared := !b.Shared.IsValid() || b.Shared == b.Shared.Masked() && b.Shared.Contains(b.Gateway) && b.Prefix == netip.PrefixFrom(b.Gateway, b.Gateway.BitLen())
	return b.ELAN != "" && b.Prefix.IsValid() && b.Prefix == b.Prefix.Masked() && b.Gateway.IsValid() && shared
}

package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// former is a resting address: a lease had it before, and has other addresses now.
type former struct {
	PodUID       string            `json:"pod-uid"`
	InterfaceUID string            `json:"interface-uid"`
	Namespace    string            `json:"namespace"`
	Node         netip.Addr        `json:"node"`
	Address      coe.LeasedAddress `json:"address"`
	Released     int64             `json:"released"`
}

func (f *former) key() coe.LeaseKey {
	return coe.LeaseKey{PodUID: f.PodUID, InterfaceUID: f.InterfaceUID}
}

// name returns the key of the former in the Store.
func (f *former) name() coe.Former {
	return coe.Former{PodUID: f.PodUID, InterfaceUID: f.InterfaceUID, Namespace: f.Namespace, Address: f.Address.Address}
}

// blockFact is a block with the namespace of its elan.
type blockFact struct {
	*coe.Block
	namespace string
}

// elanFact is the choice for an elan, with its namespace.
type elanFact struct {
	*coe.ELANFact
	namespace string
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// The journal's keys begin with the kind of their record.
const (
	leaseKind   = "lease/"
	formerKind  = "former/"
	blockKind   = "block/"
	elanKind    = "elan/"
	vpnKind     = "vpn/"
	serviceKind = "service/"
	nodeKind    = "node/"
	// networksRecord has the networks that nodes route.
	networksRecord = "networks/"
	// adoptingRecord exists from the start of an adopt until all its leases are recorded.
	adoptingRecord = "adopting/"
)

func leaseRecord(k coe.LeaseKey) string { return leaseKind + k.PodUID + "/" + k.InterfaceUID }
func formerRecord(f *former) string {
	return formerKind + f.PodUID + "/" + f.InterfaceUID + "/" + f.Namespace + "/" + f.Address.Address.String()
}
func blockRecord(k blockKey) string     { return blockKind + k.elan + "/" + k.prefix.String() }
func elanRecord(name string) string     { return elanKind + name }
func vpnRecord(name string) string      { return vpnKind + name }
func serviceRecord(uid string) string   { return serviceKind + uid }
func nodeRecord(a netip.Addr) string    { return nodeKind + a.String() }
func saidOwner(addr netip.Addr) string  { return "said/" + addr.String() }
func isLeaseRecord(owner string) bool   { return strings.HasPrefix(owner, leaseKind) }
func isServiceRecord(owner string) bool { return strings.HasPrefix(owner, serviceKind) }

// leaseOf returns the key of a lease from the key of its record; see leaseRecord.
func leaseOf(record string) coe.LeaseKey {
	pod, iface, _ := strings.Cut(strings.TrimPrefix(record, leaseKind), "/")
	return coe.LeaseKey{PodUID: pod, InterfaceUID: iface}
}

// journalled has the decoded records of a journal.
type journalled struct {
	leases   []*coe.Lease
	formers  []*former
	blocks   []*coe.Block
	elans    []*coe.ELANFact
	vpns     []*coe.VPNFact
	services []*coe.ServiceFact
	nodes    []*coe.NodeFact
	networks []*coe.Networks // at most one
	adopting bool
}

// errUnknownKind is the error of a record that another release may have written.
var errUnknownKind = errors.New("this release knows no such kind of record")

// decode reads one record. After an error, j is unchanged.
func (j *journalled) decode(key string, value []byte) error {
	switch key[:strings.IndexByte(key, '/')+1] {
	case leaseKind:
		return decodeTo(&j.leases, key, value, func(l *coe.Lease) string { return leaseRecord(l.Key()) }, validLease)
	case formerKind:
		return decodeTo(&j.formers, key, value, formerRecord, validFormer)
	case blockKind:
		return decodeTo(&j.blocks, key, value, func(b *coe.Block) string { return blockRecord(blockKey{b.ELAN, b.Prefix}) }, validBlock)
	case elanKind:
		return decodeTo(&j.elans, key, value, func(e *coe.ELANFact) string { return elanRecord(e.Name) },
			func(e *coe.ELANFact) bool { return e.Name != "" && e.VNI != 0 })
	case vpnKind:
		return decodeTo(&j.vpns, key, value, func(v *coe.VPNFact) string { return vpnRecord(v.Name) },
			func(v *coe.VPNFact) bool { return v.Name != "" && v.Namespace != "" && v.RD != 0 })
	case serviceKind:
		return decodeTo(&j.services, key, value, func(s *coe.ServiceFact) string { return serviceRecord(s.UID) },
			func(s *coe.ServiceFact) bool { return s.UID != "" && s.Namespace != "" && s.Address.IsValid() })
	case nodeKind:
		return decodeTo(&j.nodes, key, value, func(n *coe.NodeFact) string { return nodeRecord(n.Node) },
			func(n *coe.NodeFact) bool { return n.Node.IsValid() })
	case networksRecord:
		return decodeTo(&j.networks, key, value, func(*coe.Networks) string { return networksRecord },
			(*coe.Networks).Valid)
	case adoptingRecord:
		j.adopting = true
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

func validFormer(f *former) bool {
	return f.PodUID != "" && f.InterfaceUID != "" && f.Namespace != "" && f.Node.IsValid() && validAddress(f.Address)
}

func validAddress(x coe.LeasedAddress) bool {
	return x.Address.IsValid() && x.Network.IsValid() && x.Network == x.Network.Masked() && x.Gateway.IsValid()
}

func validBlock(b *coe.Block) bool {
	shared := !b.Shared.IsValid() || b.Shared == b.Shared.Masked() && b.Shared.Contains(b.Gateway) && b.Prefix == host(b.Gateway)
	return b.ELAN != "" && b.Prefix.IsValid() && b.Prefix == b.Prefix.Masked() && b.Gateway.IsValid() && shared
}

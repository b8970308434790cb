package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// former is an address that a lease gave up while its interface lives on, and
// that rests before another gets it. Only the journal has it.
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

// blockFact is a block, and the namespace of its elan.
type blockFact struct {
	*coe.Block
	namespace string
}

// elanFact is what was chosen for an elan, and its namespace.
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
	// networksRecord is what nodes have to know of.
	networksRecord = "networks/"
	// adoptingRecord is there until every lease was made of what the backend had
	// when there was none.
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

// leaseOf reads what leaseRecord wrote.
func leaseOf(record string) coe.LeaseKey {
	pod, iface, _ := strings.Cut(strings.TrimPrefix(record, leaseKind), "/")
	return coe.LeaseKey{PodUID: pod, InterfaceUID: iface}
}

// journalled is all that a journal holds.
type journalled struct {
	leases   []*coe.Lease
	formers  []*former
	blocks   []*coe.Block
	elans    []*coe.ELANFact
	vpns     []*coe.VPNFact
	services []*coe.ServiceFact
	nodes    []*coe.NodeFact
	networks []*coe.Networks // one at most
	adopting bool
}

// decode reads one record; it must be under the key that it names itself.
func (j *journalled) decode(key string, value []byte) error {
	var want string
	var err error
	switch key[:strings.IndexByte(key, '/')+1] {
	case leaseKind:
		want, err = decodeTo(&j.leases, value, func(l *coe.Lease) string { return leaseRecord(l.Key()) })
	case formerKind:
		want, err = decodeTo(&j.formers, value, formerRecord)
	case blockKind:
		want, err = decodeTo(&j.blocks, value, func(b *coe.Block) string { return blockRecord(blockKey{b.ELAN, b.Prefix}) })
	case elanKind:
		want, err = decodeTo(&j.elans, value, func(e *coe.ELANFact) string { return elanRecord(e.Name) })
	case vpnKind:
		want, err = decodeTo(&j.vpns, value, func(v *coe.VPNFact) string { return vpnRecord(v.Name) })
	case serviceKind:
		want, err = decodeTo(&j.services, value, func(s *coe.ServiceFact) string { return serviceRecord(s.UID) })
	case nodeKind:
		want, err = decodeTo(&j.nodes, value, func(n *coe.NodeFact) string { return nodeRecord(n.Node) })
	case networksRecord:
		want, err = decodeTo(&j.networks, value, func(*coe.Networks) string { return networksRecord })
	case adoptingRecord:
		want, j.adopting = adoptingRecord, true
	default:
		return fmt.Errorf("no record of this version has such a key")
	}
	if err == nil && want != key {
		err = fmt.Errorf("it is a record of %q", want)
	}
	return err
}

func decodeTo[T any](list *[]*T, value []byte, key func(*T) string) (string, error) {
	v := new(T)
	if err := json.Unmarshal(value, v); err != nil {
		return "", err
	}
	*list = append(*list, v)
	return key(v), nil
}

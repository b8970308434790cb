package nodeports

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// The sets and maps of the table.
const (
	services  = "services"  // protocol . port : cluster address . port of the service
	locals    = "locals"    // protocol . port
	endpoints = "endpoints" // protocol . port . slot : address . port of an endpoint
	stickies  = "stickies"  // the same for sticky ports
	nodesSet  = "nodes"     // addresses of nodes
)

// key identifies an element of a set.
type key struct{ set, key string }

// elements are the elements of all sets: the value of each key, which is empty in a set that is not a map.
type elements map[key]string

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// elementsOf returns the elements for ports, without the invalid ones, which it reports.
func elementsOf(ports []Port, nodes []netip.Addr) (all elements, invalid error) {
	all = elements{}
	for _, p := range ports {
		if err := p.check(); err != nil {
			invalid = errors.Join(invalid, err)
			continue
		}
		at := string([]byte{protocols[p.Protocol], 0, 0, 0}) + portOf(p.Number)
		all[key{services, at}] = addressOf(p.Service)
		if !p.Local {
			continue
		}
		all[key{locals, at}] = ""
		for slot := range min(len(p.Endpoints), 1) * Slots {
			set := endpoints
			if p.Sticky {
				set = stickies
			}
			all[key{set, at + string(binary.NativeEndian.AppendUint32(nil, uint32(slot)))}] = addressOf(p.Endpoints[slot%len(p.Endpoints)])
		}
	}
	for _, n := range nodes {
		if n.Is4() {
			all[key{nodesSet, string(n.AsSlice())}] = ""
		}
	}
	return all, invalid
}

func (p Port) check() error {
	if protocols[p.Protocol] == 0 || p.Number == 0 {
		return fmt.Errorf("node port %s %d: the protocol or the port is invalid", p.Protocol, p.Number)
	}
	for _, a := range append([]netip.AddrPort{p.Service}, p.Endpoints...) {
		if !a.Addr().Is4() || a.Port() == 0 {
			return fmt.Errorf("node port %s %d: %s is not an IPv4 address with a port", p.Protocol, p.Number, a)
		}
	}
	return nil
}

// portOf returns a port in the form of nftables, padded to a register.
func portOf(port uint16) string {
	return string(binary.BigEndian.AppendUint16(nil, port)) + "\x00\x00"
}

func addressOf(a netip.AddrPort) string { return string(a.Addr().AsSlice()) + portOf(a.Port()) }

// diff returns the keys whose elements differ, in order.
func (e elements) diff(want elements) (changed []key) {
	for k, value := range want {
		if has, found := e[k]; !found || has != value {
			changed = append(changed, k)
		}
	}
	for k := range e {
		if _, wanted := want[k]; !wanted {
			changed = append(changed, k)
		}
	}
	slices.SortFunc(changed, func(a, b key) int { return cmp.Or(strings.Compare(a.set, b.set), strings.Compare(a.key, b.key)) })
	return changed
}

// port returns the protocol and the number of the port that an element belongs to; zero for an element
// of a node.
func (k key) port() (protocol byte, number uint16) {
	if k.set == nodesSet {
		return 0, 0
	}
	return k.key[0], binary.BigEndian.Uint16([]byte(k.key[4:6]))
}

func table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName}
}

// sets returns the sets of the table.
func sets() []*nftables.Set {
	at := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	slot := append(slices.Clone(at), nftables.TypeMark) // a number in the order of the processor
	to := nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
	return []*nftables.Set{
		{Table: table(), Name: services, IsMap: true, KeyType: nftables.MustConcatSetType(at...), DataType: to},
		{Table: table(), Name: endpoints, IsMap: true, KeyType: nftables.MustConcatSetType(slot...), DataType: to},
		{Table: table(), Name: stickies, IsMap: true, KeyType: nftables.MustConcatSetType(slot...), DataType: to},
		{Table: table(), Name: locals, KeyType: nftables.MustConcatSetType(at...)},
		{Table: table(), Name: nodesSet, KeyType: nftables.TypeIPAddr},
	}
}

// targets returns where a port leads.
func (e elements) targets() map[[2]uint16]map[string]bool {
	all := map[[2]uint16]map[string]bool{}
	for k, value := range e {
		protocol, number := k.port()
		if protocol == 0 || value == "" {
			continue
		}
		at := [2]uint16{uint16(protocol), number}
		if all[at] == nil {
			all[at] = map[string]bool{}
		}
		all[at][value] = true
	}
	return all
}

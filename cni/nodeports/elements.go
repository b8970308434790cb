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
	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// The sets and maps of the table. A port with one endpoint is in singles, with several in endpoints or
// stickies, and a local port without any is in locals. The address of a port on every address of the node
// is everyAddress.
const (
	services  = "services"  // address . protocol . port : cluster address . port of the service
	singles   = "singles"   // address . protocol . port : address . port of the endpoint
	endpoints = "endpoints" // address . protocol . port . slot : address . port of an endpoint
	stickies  = "stickies"  // the same for sticky ports
	locals    = "locals"    // address . protocol . port
	externals = "externals" // the external addresses of services
	hosts     = "hosts"     // address . protocol . port : address . port of the pod

	restricted = "restricted" // address . protocol . port, if only some clients reach it
	sources    = "sources"    // address . protocol . port . these clients: intervals

	nodesSet = "nodes" // addresses of nodes
)

// everyAddress stands for every address of the node in a key.
var everyAddress = netip.IPv4Unspecified()

// key identifies an element of a set.
type key struct{ set, key string }

// elements are the elements of all sets: the value of each key, which is empty in a set that is not a map.
type elements map[key]string

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// elementsOf returns the elements for ports, without invalid ports and endpoints, which it reports.
func elementsOf(ports Ports, nodes []netip.Addr) (all elements, invalid error) {
	all = elements{}
	for _, p := range ports.Services {
		invalid = errors.Join(invalid, all.add(p))
	}
	for _, p := range ports.Hosts {
		invalid = errors.Join(invalid, all.addHost(p))
	}
	for _, n := range nodes {
		if n.Is4() {
			all[key{nodesSet, string(n.AsSlice())}] = ""
		}
	}
	return all, invalid
}

// add adds the elements of a port.
func (e elements) add(p Port) (invalid error) {
	at := portKey{everyAddress, protocols[p.Protocol], p.Number}.bytes()
	switch {
	case protocols[p.Protocol] == 0 || p.Number == 0:
		return fmt.Errorf("%s: the protocol or the port is invalid", p)
	case !valid(p.Service):
		return fmt.Errorf("%s: the cluster address %s is not an IPv4 address with a port", p, p.Service)
	case p.Address.Is4() && !p.Address.IsUnspecified():
		at = portKey{p.Address, protocols[p.Protocol], p.Number}.bytes()
		e[key{externals, string(p.Address.AsSlice())}] = ""
	case p.Address.IsValid():
		return fmt.Errorf("%s: the address is not an IPv4 address of a service", p)
	}
	e[key{services, at}] = addressOf(p.Service)
	if p.Restricted {
		e[key{restricted, at}] = ""
		for _, r := range ranges(p.Sources) {
			e[key{sources, at + string(r.From().AsSlice()) + at + string(r.To().AsSlice())}] = ""
		}
	}
	if !p.Local {
		return nil
	}
	var to []string
	for _, a := range p.Endpoints {
		if valid(a) {
			to = append(to, addressOf(a))
		} else {
			invalid = errors.Join(invalid, fmt.Errorf("%s: the endpoint %s is not an IPv4 address with a port", p, a))
		}
	}
	switch len(to) {
	case 0:
		e[key{locals, at}] = ""
	case 1:
		e[key{singles, at}] = to[0]
	default:
		set := endpoints
		if p.Sticky {
			set = stickies
		}
		for slot := range Slots {
			e[key{set, at + string(binary.NativeEndian.AppendUint32(nil, uint32(slot)))}] = to[slot%len(to)]
		}
	}
	return invalid
}

// copyHosts copies the host ports to another table, and reports whether there are any.
func (e elements) copyHosts(to elements) (copied bool) {
	for k, pod := range e {
		if k.set == hosts {
			to[k], copied = pod, true
		}
	}
	return copied
}

// addHost adds the element of a host port.
func (e elements) addHost(p HostPort) (invalid error) {
	at := key{hosts, portKey{p.Address, protocols[p.Protocol], p.Number}.bytes()}
	switch {
	case protocols[p.Protocol] == 0 || p.Number == 0 || !p.Address.Is4():
		return fmt.Errorf("%s: the address, the protocol or the port is invalid", p)
	case !valid(p.Pod):
		return fmt.Errorf("%s: the pod's address %s is not an IPv4 address with a port", p, p.Pod)
	case e[at] != "" && e[at] != addressOf(p.Pod):
		return fmt.Errorf("%s: it belongs to another pod than %s", p, p.Pod)
	}
	e[at] = addressOf(p.Pod)
	return nil
}

// ranges returns the IPv4 addresses of prefixes, as ranges that do not overlap.
func ranges(prefixes []netip.Prefix) []netipx.IPRange {
	var all netipx.IPSetBuilder
	for _, p := range prefixes {
		if p.Addr().Is4() {
			all.AddPrefix(p)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil // none of the prefixes is valid
	}
	return set.Ranges()
}

// element returns an element with a value. The key of an interval has two halves.
func (k key) element(value string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(k.key), Val: []byte(value)}
	if k.set == sources {
		e.Key, e.KeyEnd = e.Key[:len(e.Key)/2], e.Key[len(e.Key)/2:]
	}
	return e
}

func valid(a netip.AddrPort) bool { return a.Addr().Is4() && a.Port() != 0 }

// portOf returns a port in the form of nftables, padded to a register.
func portOf(port uint16) string {
	return string(binary.BigEndian.AppendUint16(nil, port)) + "\x00\x00"
}

func addressOf(a netip.AddrPort) string { return string(a.Addr().AsSlice()) + portOf(a.Port()) }

// diff returns the keys whose elements differ. Those of one port are together.
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
	slices.SortFunc(changed, func(a, b key) int {
		return cmp.Or(a.port().compare(b.port()), strings.Compare(a.set, b.set), strings.Compare(a.key, b.key))
	})
	return changed
}

// portKey identifies a port; zero for elements that belong to none.
type portKey struct {
	address  netip.Addr // everyAddress for a port on every address of the node
	protocol byte
	number   uint16
}

func (p portKey) compare(o portKey) int {
	return cmp.Or(p.address.Compare(o.address), cmp.Compare(p.protocol, o.protocol), cmp.Compare(p.number, o.number))
}

// bytes returns the begin of the keys of the port's elements.
func (p portKey) bytes() string {
	return string(p.address.AsSlice()) + string([]byte{p.protocol, 0, 0, 0}) + portOf(p.number)
}

// port returns the port that an element belongs to.
func (k key) port() portKey {
	if k.set == nodesSet || k.set == externals {
		return portKey{}
	}
	address, _ := netip.AddrFromSlice([]byte(k.key[:4]))
	return portKey{address, k.key[4], binary.BigEndian.Uint16([]byte(k.key[8:10]))}
}

// batches divides changes, in the order of diff, into transactions of at most most elements. All
// elements of a port are in one transaction: with a part of them, a local port would lead to its service.
func batches(changes []key, most int) (all [][]key) {
	for len(changes) > 0 {
		n := together(changes)
		for n < len(changes) && n+together(changes[n:]) <= most {
			n += together(changes[n:])
		}
		all = append(all, changes[:n])
		changes = changes[n:]
	}
	return all
}

// together returns how many of the first changes belong together.
func together(changes []key) int {
	port := changes[0].port()
	if port == (portKey{}) {
		return 1
	}
	if n := slices.IndexFunc(changes, func(k key) bool { return k.port() != port }); n > 0 {
		return n
	}
	return len(changes)
}

func table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName}
}

// sets returns the sets of the table.
func sets() []*nftables.Set {
	at := []nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService}
	slot := append(slices.Clone(at), nftables.TypeMark) // a number in the order of the processor
	to := nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
	return []*nftables.Set{
		{Table: table(), Name: services, IsMap: true, KeyType: nftables.MustConcatSetType(at...), DataType: to},
		{Table: table(), Name: singles, IsMap: true, KeyType: nftables.MustConcatSetType(at...), DataType: to},
		{Table: table(), Name: endpoints, IsMap: true, KeyType: nftables.MustConcatSetType(slot...), DataType: to},
		{Table: table(), Name: stickies, IsMap: true, KeyType: nftables.MustConcatSetType(slot...), DataType: to},
		{Table: table(), Name: locals, KeyType: nftables.MustConcatSetType(at...)},
		{Table: table(), Name: restricted, KeyType: nftables.MustConcatSetType(at...)},
		{Table: table(), Name: sources, KeyType: nftables.MustConcatSetType(append(slices.Clone(at), nftables.TypeIPAddr)...), Interval: true, Concatenation: true},
		{Table: table(), Name: externals, KeyType: nftables.TypeIPAddr},
		{Table: table(), Name: hosts, IsMap: true, KeyType: nftables.MustConcatSetType(at...), DataType: to},
		{Table: table(), Name: nodesSet, KeyType: nftables.TypeIPAddr},
	}
}

// targets returns where each port leads.
func (e elements) targets() map[portKey]map[string]bool {
	all := map[portKey]map[string]bool{}
	for k, value := range e {
		at := k.port()
		if at == (portKey{}) {
			continue
		}
		if all[at] == nil {
			all[at] = map[string]bool{}
		}
		if value != "" {
			all[at][value] = true
		}
	}
	return all
}

// restricted returns the clients of each restricted port.
func (e elements) restricted() map[portKey][]netipx.IPRange {
	all := map[portKey][]netipx.IPRange{}
	for k := range e {
		switch at := k.port(); k.set {
		case restricted:
			if _, found := all[at]; !found {
				all[at] = nil
			}
		case sources:
			from, _ := netip.AddrFromSlice([]byte(k.key[12:16]))
			to, _ := netip.AddrFromSlice([]byte(k.key[28:32]))
			all[at] = append(all[at], netipx.IPRangeFrom(from, to))
		}
	}
	return all
}

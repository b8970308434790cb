package nodeports

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// The sets and maps of the table. The address of a port on every address of the node is Family.Every.
const (
	Services  = "services"  // address . protocol . port : cluster address . port of the service
	balancers = "balancers" // address . protocol . port : the chain that chooses a slot
	endpoints = "endpoints" // address . protocol . port . slot : address . port of an endpoint
	edged     = "edged"     // address . protocol . port, if endpoints see the edge address instead of the client
	refused   = "refused"   // address . protocol . port, if clients are refused
	Externals = "externals" // the external addresses of services
	HostPorts = "hosts"     // address . protocol . port : address . port of the pod

	// The chains for the node's own programs: to endpoints on the node, and to endpoints elsewhere.
	here      = "own-here"      // cluster address . protocol . port : the chain that chooses a slot
	elsewhere = "own-elsewhere" // address of a node . protocol . port : the chain that chooses a slot

	// Insiders are the chains for clients inside the cluster, if they reach other endpoints.
	Insiders = "insiders" // address . protocol . port : the chain that chooses a slot

	restricted = "restricted" // address . protocol . port, if only some clients reach it
	sources    = "sources"    // address . protocol . port . these clients: intervals

	Nodes = "nodes" // addresses of nodes

	// clients has the endpoints that clients of services with affinity had, for a time after the last connection. The rules
	// fill it.
	clients = "clients" // client . address . port of its endpoint . number of the port of the service

	// clientChains and insideChains are not sets: their elements are the chains of ports with affinity, and the chains of insiders.
	clientChains = "client-chains" // address . protocol . port : the affinity in text
	insideChains = "inside-chains" // address . protocol . port : the affinity in text, or the number of endpoints

	// fresh has all protocols while the endpoints of edged ports, and those elsewhere, are known to be current. They expire.
	fresh = "fresh"
)

// verdicts are the maps that lead to chains.
var verdicts = []string{balancers, here, elsewhere, Insiders}

// insideSlots is the first slot of the endpoints of insiders.
const insideSlots = MaxEndpoints

// Group identifies elements that change together, in one transaction. With a part of them, a port would lead
// elsewhere.
type Group struct {
	// Set is Services for all elements of a port of a service, Insiders for those that lead clients inside the cluster, otherwise the set
	// of the only element.
	Set string
	// At is a port, or only an address.
	At PortKey
}

// Compare orders groups.
func (g Group) Compare(o Group) int {
	return cmp.Or(strings.Compare(g.Set, o.Set), g.At.Address.Compare(o.At.Address), cmp.Compare(g.At.Protocol, o.At.Protocol), cmp.Compare(g.At.Number, o.At.Number))
}

// IsPort reports whether the node answers on a port because of the group.
func (g Group) IsPort() bool { return g.Set == Services || g.Set == Insiders || g.Set == HostPorts }

// Element is an element of a set. The value is empty in a set that is not a map.
type Element struct{ Set, Key, Value string }

// Compare orders the elements of a group by their set and key.
func (e Element) Compare(o Element) int {
	return cmp.Or(strings.Compare(e.Set, o.Set), strings.Compare(e.Key, o.Key))
}

// Content has elements by group, each group sorted.
type Content map[Group][]Element

// ContentSets returns the sets of a table whose elements are content: the rules fill clients, and the kernel empties fresh.
func (f *Family) ContentSets() []*nftables.Set {
	return slices.DeleteFunc(f.Sets(), func(s *nftables.Set) bool { return s.Name == fresh || s.Name == clients })
}

// Read adds the elements of a set that were read from the table.
func (c Content) Read(f *Family, set *nftables.Set, list []nftables.SetElement) {
	for _, e := range list {
		c.add(f, Element{set.Name, string(e.Key) + string(e.KeyEnd), valueOf(set, e)})
	}
}

// ReadChain adds the chain of a port that was read from the table, with the texts of its rules. It returns false if it is another chain.
func (c Content) ReadChain(f *Family, name string, texts []string) (is bool) {
	e, is := f.readClientChain(name, texts)
	if is {
		c.add(f, e)
	}
	return is
}

// Sort sorts the elements of each group, after all have been read.
func (c Content) Sort() {
	for _, elements := range c {
		slices.SortFunc(elements, Element.Compare)
	}
}

// add adds an element that was read.
func (c Content) add(f *Family, e Element) {
	g := Group{Set: e.Set}
	switch e.Set {
	case Nodes, Externals:
		g.At.Address, _ = netip.AddrFromSlice([]byte(e.Key))
	case HostPorts:
		g.At = f.parse(e.Key)
	default:
		if g.Set = Services; f.ofInsiders(e) {
			g.Set = Insiders
		}
		g.At = f.parse(e.Key)
	}
	c[g] = append(c[g], e)
}

// ofInsiders reports whether an element of a port of a service is for clients inside the cluster.
func (f *Family) ofInsiders(e Element) bool {
	return e.Set == Insiders || e.Set == insideChains || e.Set == endpoints && f.slotOf(e.Key) >= insideSlots
}

// Service returns the elements of a port of a service, without invalid endpoints. A port that is invalid has none.
func (f *Family) Service(p Port) (at PortKey, all []Element, err error) {
	at, err = f.KeyOf(p.Address, p.Protocol, p.Number)
	switch {
	case err != nil:
	case !f.leadsTo(p.Service):
		err = fmt.Errorf("the cluster address %s is not an %s address with a port", p.Service, f.name)
	}
	if err != nil {
		return at, nil, fmt.Errorf("%s: %w", p, err)
	}
	key := at.bytes()
	to, invalid := f.endpoints(p)
	if p.Inside {
		return at, f.inside(p, at, to), invalid
	}
	chain := chainOf(at.Address == f.Every, len(to))
	if affine := affinityOf(p, to); affine != "" {
		chain = f.clientChain(at)
		all = append(all, Element{clientChains, at.bytes(), affine})
	}
	if p.Own {
		all = append(all, f.own(p, key, chain, len(to))...)
	} else {
		all = append(all, f.forOthers(p, key, chain, len(to))...)
	}
	for slot, endpoint := range to {
		all = append(all, Element{endpoints, key + numberOf(uint32(slot)), endpoint})
	}
	slices.SortFunc(all, Element.Compare)
	return at, all, invalid
}

// inside returns the elements of a port for clients inside the cluster; none without endpoints.
func (f *Family) inside(p Port, at PortKey, to []string) []Element {
	if len(to) == 0 {
		return nil
	}
	key, text := at.bytes(), affinityOf(p, to)
	if text == "" {
		text = strconv.Itoa(len(to))
	}
	all := []Element{{Insiders, key, f.insideChain(at)}, {insideChains, key, text}}
	for slot, endpoint := range to {
		all = append(all, Element{endpoints, key + numberOf(uint32(insideSlots+slot)), endpoint})
	}
	slices.SortFunc(all, Element.Compare)
	return all
}

// own returns the elements of a port for the node's own programs, except the elements of its n endpoints.
func (f *Family) own(p Port, key, chain string, n int) []Element {
	switch {
	case n == 0 && p.Local && p.Refuses:
		return []Element{{here, key, ownRefused}}
	case p.Local:
		return []Element{{here, key, chain}}
	case n > 0:
		return []Element{{elsewhere, key, chain}}
	}
	return nil
}

// forOthers returns the elements of a port for all clients, except the elements of its n endpoints.
func (f *Family) forOthers(p Port, key, chain string, n int) (all []Element) {
	all = []Element{{Services, key, addressOf(p.Service)}}
	if p.Restricted {
		all = append(all, Element{restricted, key, ""})
		for _, r := range f.ranges(p.Sources) {
			all = append(all, Element{sources, key + string(r.From().AsSlice()) + key + string(r.To().AsSlice()), ""})
		}
	}
	switch {
	case n == 0 && p.Local && p.Refuses:
		all = append(all, Element{balancers, key, refusing}, Element{refused, key, ""})
	case n > 0 || p.Local:
		all = append(all, Element{balancers, key, chain})
	}
	if n > 0 && !p.Local {
		all = append(all, Element{edged, key, ""})
	}
	return all
}

// endpoints returns the endpoints to which a port leads, at most MaxEndpoints. A port that is not local leads to all
// of them or to none.
func (f *Family) endpoints(p Port) (to []string, invalid error) {
	for _, a := range p.Endpoints {
		switch {
		case !f.leadsTo(a):
			invalid = errors.Join(invalid, fmt.Errorf("%s: the endpoint %s is not an %s address with a port", p, a, f.name))
		case len(to) == MaxEndpoints:
			invalid = errors.Join(invalid, fmt.Errorf("%s: the endpoint %s is one too many: want at most %d", p, a, MaxEndpoints))
		default:
			to = append(to, addressOf(a))
		}
	}
	if invalid != nil && !p.Local {
		return nil, invalid
	}
	return to, invalid
}

// Host returns the element of a host port.
func (f *Family) Host(p HostPort) (at PortKey, one []Element, err error) {
	at, err = f.KeyOf(p.Address, p.Protocol, p.Number)
	switch {
	case err != nil:
		return at, nil, fmt.Errorf("%s: %w", p, err)
	case !f.leadsTo(p.Pod):
		return at, nil, fmt.Errorf("%s: the pod's address %s is not an %s address with a port", p, p.Pod, f.name)
	}
	return at, []Element{{HostPorts, at.bytes(), addressOf(p.Pod)}}, nil
}

// ranges returns the addresses of the family in prefixes, as ranges that do not overlap.
func (f *Family) ranges(prefixes []netip.Prefix) []netipx.IPRange {
	var all netipx.IPSetBuilder
	for _, p := range prefixes {
		if f.Has(p.Addr()) {
			all.AddPrefix(p)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil // none of the prefixes is valid
	}
	return set.Ranges()
}

// chainOf returns the name of the chain that chooses one of n endpoints of a port: of every address of the node, or of one
// address.
func chainOf(every bool, n int) string {
	name := "any-of-"
	if n == 0 {
		return noEndpoint
	}
	if every {
		name = "node-" + name
	}
	return name + strconv.Itoa(n)
}

// keyOnly returns the element for nftables without its value. The key of an interval has two halves.
func (e Element) keyOnly() nftables.SetElement {
	if e.Set == sources {
		half := len(e.Key) / 2
		return nftables.SetElement{Key: []byte(e.Key[:half]), KeyEnd: []byte(e.Key[half:])}
	}
	return nftables.SetElement{Key: []byte(e.Key)}
}

// nft returns the element for nftables.
func (e Element) nft() nftables.SetElement {
	n := e.keyOnly()
	if slices.Contains(verdicts, e.Set) {
		n.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Value}
	} else {
		n.Val = []byte(e.Value)
	}
	return n
}

// valueOf returns the value of an element of a set that was read: of verdicts the name of the chain.
func valueOf(set *nftables.Set, e nftables.SetElement) string {
	if !slices.Contains(verdicts, set.Name) {
		return string(e.Val)
	}
	attributes, err := nl.ParseRouteAttr(e.Val)
	if err != nil {
		return ""
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.NFTA_VERDICT_CHAIN {
			return string(bytes.TrimRight(a.Value, "\x00"))
		}
	}
	return ""
}

// Sets returns the sets of a table. Their IDs are different, as a transaction needs them: the library would count in a variable that goroutines
// share, and could give two sets of a transaction the same ID.
func (f *Family) Sets() []*nftables.Set {
	table := f.Table()
	number := nftables.TypeMark // in the order of the processor
	at := []nftables.SetDatatype{f.address, nftables.TypeInetProto, nftables.TypeInetService}
	with := func(more nftables.SetDatatype) nftables.SetDatatype {
		return nftables.MustConcatSetType(append(slices.Clone(at), more)...)
	}
	client := nftables.MustConcatSetType(f.address, f.address, nftables.TypeInetService, number)
	port, to := nftables.MustConcatSetType(at...), nftables.MustConcatSetType(f.address, nftables.TypeInetService)
	all := []*nftables.Set{
		{Table: table, Name: Services, IsMap: true, KeyType: port, DataType: to},
		{Table: table, Name: balancers, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: here, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: elsewhere, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: Insiders, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: endpoints, IsMap: true, KeyType: with(number), DataType: to},
		{Table: table, Name: clients, KeyType: client, Dynamic: true, HasTimeout: true, Size: maxClients},
		{Table: table, Name: edged, KeyType: port},
		{Table: table, Name: refused, KeyType: port},
		{Table: table, Name: restricted, KeyType: port},
		{Table: table, Name: sources, KeyType: with(f.address), Interval: true, Concatenation: true},
		{Table: table, Name: Externals, KeyType: f.address},
		{Table: table, Name: HostPorts, IsMap: true, KeyType: port, DataType: to},
		{Table: table, Name: Nodes, KeyType: f.address},
		{Table: table, Name: fresh, KeyType: nftables.TypeInetProto, HasTimeout: true},
	}
	for i, set := range all {
		set.ID = uint32(i + 1)
	}
	return all
}

// OfAddress returns the group and the element of an address in the set Externals or Nodes.
func OfAddress(set string, a netip.Addr) (Group, []Element) {
	return Group{set, PortKey{Address: a}}, []Element{{set, string(a.AsSlice()), ""}}
}

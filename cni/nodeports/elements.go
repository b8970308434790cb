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

// The sets and maps of the table. The address of a port on every address of the node is family.every.
const (
	services  = "services"  // address . protocol . port : cluster address . port of the service
	balancers = "balancers" // address . protocol . port : the chain that chooses a slot
	endpoints = "endpoints" // address . protocol . port . slot : address . port of an endpoint
	edged     = "edged"     // address . protocol . port, if endpoints see the edge address instead of the client
	refused   = "refused"   // address . protocol . port, if clients are refused
	externals = "externals" // the external addresses of services
	hosts     = "hosts"     // address . protocol . port : address . port of the pod

	// The chains for the node's own programs: to endpoints on the node, and to endpoints elsewhere.
	here      = "own-here"      // cluster address . protocol . port : the chain that chooses a slot
	elsewhere = "own-elsewhere" // address of a node . protocol . port : the chain that chooses a slot

	// insiders are the chains for clients inside the cluster, if they reach other endpoints.
	insiders = "insiders" // address . protocol . port : the chain that chooses a slot

	restricted = "restricted" // address . protocol . port, if only some clients reach it
	sources    = "sources"    // address . protocol . port . these clients: intervals

	nodesSet = "nodes" // addresses of nodes

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
var verdicts = []string{balancers, here, elsewhere, insiders}

// insideSlots is the first slot of the endpoints of insiders.
const insideSlots = MaxEndpoints

// group identifies elements that change together, in one transaction. With a part of them, a port would lead
// elsewhere.
type group struct {
	// set is services for all elements of a port of a service, insiders for those that lead clients inside the cluster, otherwise the set
	// of the only element.
	set string
	// at is a port, or only an address.
	at portKey
}

func (g group) compare(o group) int {
	return cmp.Or(strings.Compare(g.set, o.set), g.at.address.Compare(o.at.address), cmp.Compare(g.at.protocol, o.at.protocol), cmp.Compare(g.at.number, o.at.number))
}

// isPort reports whether the node answers on a port because of the group.
func (g group) isPort() bool { return g.set == services || g.set == insiders || g.set == hosts }

// element is an element of a set. The value is empty in a set that is not a map.
type element struct{ set, key, value string }

func (e element) compare(o element) int {
	return cmp.Or(strings.Compare(e.set, o.set), strings.Compare(e.key, o.key))
}

// content has elements by group, each group sorted.
type content map[group][]element

// add adds an element that was read from the table.
func (c content) add(f *family, e element) {
	g := group{set: e.set}
	switch e.set {
	case nodesSet, externals:
		g.at.address, _ = netip.AddrFromSlice([]byte(e.key))
	case hosts:
		g.at = f.parse(e.key)
	default:
		if g.set = services; f.ofInsiders(e) {
			g.set = insiders
		}
		g.at = f.parse(e.key)
	}
	c[g] = append(c[g], e)
}

// ofInsiders reports whether an element of a port of a service is for clients inside the cluster.
func (f *family) ofInsiders(e element) bool {
	return e.set == insiders || e.set == insideChains || e.set == endpoints && f.slotOf(e.key) >= insideSlots
}

// service returns the elements of a port of a service, without invalid endpoints. A port that is invalid has none.
func (f *family) service(p Port) (at portKey, all []element, err error) {
	at, err = f.keyOf(p.Address, p.Protocol, p.Number)
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
	chain := chainOf(at.address == f.every, len(to))
	if affine := affinityOf(p, to); affine != "" {
		chain = f.clientChain(at)
		all = append(all, element{clientChains, at.bytes(), affine})
	}
	if p.Own {
		all = append(all, f.own(p, key, chain, len(to))...)
	} else {
		all = append(all, f.forOthers(p, key, chain, len(to))...)
	}
	for slot, endpoint := range to {
		all = append(all, element{endpoints, key + numberOf(uint32(slot)), endpoint})
	}
	slices.SortFunc(all, element.compare)
	return at, all, invalid
}

// inside returns the elements of a port for clients inside the cluster; none without endpoints.
func (f *family) inside(p Port, at portKey, to []string) []element {
	if len(to) == 0 {
		return nil
	}
	key, text := at.bytes(), affinityOf(p, to)
	if text == "" {
		text = strconv.Itoa(len(to))
	}
	all := []element{{insiders, key, f.insideChain(at)}, {insideChains, key, text}}
	for slot, endpoint := range to {
		all = append(all, element{endpoints, key + numberOf(uint32(insideSlots+slot)), endpoint})
	}
	slices.SortFunc(all, element.compare)
	return all
}

// own returns the elements of a port for the node's own programs, except the elements of its n endpoints.
func (f *family) own(p Port, key, chain string, n int) []element {
	switch {
	case n == 0 && p.Local && p.Refuses:
		return []element{{here, key, ownRefused}}
	case p.Local:
		return []element{{here, key, chain}}
	case n > 0:
		return []element{{elsewhere, key, chain}}
	}
	return nil
}

// forOthers returns the elements of a port for all clients, except the elements of its n endpoints.
func (f *family) forOthers(p Port, key, chain string, n int) (all []element) {
	all = []element{{services, key, addressOf(p.Service)}}
	if p.Restricted {
		all = append(all, element{restricted, key, ""})
		for _, r := range f.ranges(p.Sources) {
			all = append(all, element{sources, key + string(r.From().AsSlice()) + key + string(r.To().AsSlice()), ""})
		}
	}
	switch {
	case n == 0 && p.Local && p.Refuses:
		all = append(all, element{balancers, key, refusing}, element{refused, key, ""})
	case n > 0 || p.Local:
		all = append(all, element{balancers, key, chain})
	}
	if n > 0 && !p.Local {
		all = append(all, element{edged, key, ""})
	}
	return all
}

// endpoints returns the endpoints to which a port leads, at most MaxEndpoints. A port that is not local leads to all
// of them or to none.
func (f *family) endpoints(p Port) (to []string, invalid error) {
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

// host returns the element of a host port.
func (f *family) host(p HostPort) (at portKey, one []element, err error) {
	at, err = f.keyOf(p.Address, p.Protocol, p.Number)
	switch {
	case err != nil:
		return at, nil, fmt.Errorf("%s: %w", p, err)
	case !f.leadsTo(p.Pod):
		return at, nil, fmt.Errorf("%s: the pod's address %s is not an %s address with a port", p, p.Pod, f.name)
	}
	return at, []element{{hosts, at.bytes(), addressOf(p.Pod)}}, nil
}

// ranges returns the addresses of the family in prefixes, as ranges that do not overlap.
func (f *family) ranges(prefixes []netip.Prefix) []netipx.IPRange {
	var all netipx.IPSetBuilder
	for _, p := range prefixes {
		if f.has(p.Addr()) {
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
func (e element) keyOnly() nftables.SetElement {
	if e.set == sources {
		half := len(e.key) / 2
		return nftables.SetElement{Key: []byte(e.key[:half]), KeyEnd: []byte(e.key[half:])}
	}
	return nftables.SetElement{Key: []byte(e.key)}
}

// nft returns the element for nftables.
func (e element) nft() nftables.SetElement {
	n := e.keyOnly()
	if slices.Contains(verdicts, e.set) {
		n.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.value}
	} else {
		n.Val = []byte(e.value)
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

// change is a changed element: what the table has, and what is wanted.
type change struct {
	element
	has, wanted bool
	of          *table
}

// changesOf returns the elements that differ. One with another value is removed and added.
func (t *table) changesOf(have, want []element) (all []change) {
	for len(have)+len(want) > 0 {
		order := 0
		switch {
		case len(have) == 0:
			order = 1
		case len(want) == 0:
			order = -1
		default:
			order = have[0].compare(want[0])
		}
		switch {
		case order < 0:
			all, have = append(all, change{have[0], true, false, t}), have[1:]
		case order > 0:
			all, want = append(all, change{want[0], false, true, t}), want[1:]
		default:
			if have[0] != want[0] {
				all = append(all, change{want[0], true, true, t})
			}
			have, want = have[1:], want[1:]
		}
	}
	return all
}

// weight returns how much of a transaction a change needs: 1 for an element, and 1 for two rules, which an endpoint has in the chain of
// a port with affinity.
func (c change) weight() int {
	return 1 + strings.Count(c.value, " ")*number(c.set == clientChains || c.set == insideChains)
}

// batches divides the changes of groups into transactions of at most the weight most. All changes of a group are in one
// transaction, also if they weigh more.
func batches(groups [][]change, most int) (all [][]change) {
	room := 0
	for _, g := range groups {
		weight := 0
		for _, c := range g {
			weight += c.weight()
		}
		if weight > room {
			all, room = append(all, nil), most
		}
		last := len(all) - 1
		all[last], room = append(all[last], g...), room-weight
	}
	return all
}

// sets returns the sets of a table. Their IDs are different, as a transaction needs them: the library would count in a variable that goroutines
// share, and could give two sets of a transaction the same ID.
func (f *family) sets() []*nftables.Set {
	table := f.nftable()
	number := nftables.TypeMark // in the order of the processor
	at := []nftables.SetDatatype{f.address, nftables.TypeInetProto, nftables.TypeInetService}
	with := func(more nftables.SetDatatype) nftables.SetDatatype {
		return nftables.MustConcatSetType(append(slices.Clone(at), more)...)
	}
	client := nftables.MustConcatSetType(f.address, f.address, nftables.TypeInetService, number)
	port, to := nftables.MustConcatSetType(at...), nftables.MustConcatSetType(f.address, nftables.TypeInetService)
	all := []*nftables.Set{
		{Table: table, Name: services, IsMap: true, KeyType: port, DataType: to},
		{Table: table, Name: balancers, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: here, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: elsewhere, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: insiders, IsMap: true, KeyType: port, DataType: nftables.TypeVerdict},
		{Table: table, Name: endpoints, IsMap: true, KeyType: with(number), DataType: to},
		{Table: table, Name: clients, KeyType: client, Dynamic: true, HasTimeout: true, Size: maxClients},
		{Table: table, Name: edged, KeyType: port},
		{Table: table, Name: refused, KeyType: port},
		{Table: table, Name: restricted, KeyType: port},
		{Table: table, Name: sources, KeyType: with(f.address), Interval: true, Concatenation: true},
		{Table: table, Name: externals, KeyType: f.address},
		{Table: table, Name: hosts, IsMap: true, KeyType: port, DataType: to},
		{Table: table, Name: nodesSet, KeyType: f.address},
		{Table: table, Name: fresh, KeyType: nftables.TypeInetProto, HasTimeout: true},
	}
	for i, set := range all {
		set.ID = uint32(i + 1)
	}
	return all
}

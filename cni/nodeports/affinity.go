package nodeports

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// maxClients is how many endpoints of clients a node remembers in each family. A client that it cannot remember keeps its
// endpoint while the endpoints stay the same.
const maxClients = 1 << 16

// affinity says which rules a port with affinity has. The time is in the rules, and nft cannot list a rule that looks up an
// endpoint and then remembers it. So each of these ports has a chain with rules for each endpoint.
type affinity struct {
	seconds   int
	service   netip.AddrPort
	endpoints []netip.AddrPort
}

// affinityOf returns the affinity of a port with these endpoints, in text; empty if it has none.
func affinityOf(p Port, endpoints []string) string {
	a := affinity{seconds: int(p.Affinity / time.Second), service: p.Service}
	if a.seconds == 0 || len(endpoints) == 0 {
		return ""
	}
	for _, e := range endpoints {
		a.endpoints = append(a.endpoints, addressIn(e))
	}
	return a.String()
}

func (a affinity) String() string {
	text := strconv.Itoa(a.seconds) + " " + a.service.String()
	for _, e := range a.endpoints {
		text += " " + e.String()
	}
	return text
}

// parseAffinity returns the affinity of a text of String.
func parseAffinity(text string) (a affinity) {
	parts := strings.Fields(text)
	a.seconds, _ = strconv.Atoi(parts[0])
	a.service = netip.MustParseAddrPort(parts[1])
	for _, e := range parts[2:] {
		a.endpoints = append(a.endpoints, netip.MustParseAddrPort(e))
	}
	return a
}

// The prefixes of the names of chains of ports with affinity, and of chains of insiders.
const (
	clientPrefix = "client-"
	insidePrefix = "inside-"
)

// clientChain returns the name of the chain of a port with affinity, and insideChain that of the chain of insiders of a port.
func (f *Family) clientChain(at PortKey) string { return f.portChain(clientPrefix, at) }
func (f *Family) insideChain(at PortKey) string { return f.portChain(insidePrefix, at) }

func (f *Family) portChain(prefix string, at PortKey) string {
	name := fmt.Sprintf("%s%s-%d", prefix, nameOf(at.Protocol), at.Number)
	if at.Address != f.Every {
		name += "-" + strings.ReplaceAll(at.Address.String(), ":", "_")
	}
	return name
}

// portOfChain returns the port of a chain with a name of portChain.
func (f *Family) portOfChain(prefix, chain string) (at PortKey, is bool) {
	name, is := strings.CutPrefix(chain, prefix)
	parts := strings.SplitN(name, "-", 3)
	if !is || len(parts) < 2 {
		return at, false
	}
	address, number := f.Every, uint64(0)
	var err error
	if len(parts) == 3 {
		address, err = netip.ParseAddr(strings.ReplaceAll(parts[2], "_", ":"))
	}
	if err == nil {
		number, err = strconv.ParseUint(parts[1], 10, 16)
	}
	if err != nil {
		return at, false
	}
	at, err = f.KeyOf(address, parts[0], uint16(number))
	return at, err == nil && f.portChain(prefix, at) == chain
}

func nameOf(protocol byte) string {
	for name, p := range protocols {
		if p == protocol {
			return name
		}
	}
	return ""
}

// chainIn returns the name of the chain that an element of clientChains or insideChains is, empty for another element.
func (f *Family) chainIn(e Element) string {
	switch e.Set {
	case clientChains:
		return f.clientChain(f.parse(e.Key))
	case insideChains:
		return f.insideChain(f.parse(e.Key))
	}
	return ""
}

// rulesIn returns the rules of this chain.
func (f *Family) rulesIn(e Element) []rule {
	at := f.parse(e.Key)
	if e.Set == clientChains {
		return f.clientRules(at, parseAffinity(e.Value), 0)
	}
	if n, err := strconv.Atoi(e.Value); err == nil {
		return []rule{f.anyInside(at, n)}
	}
	return f.clientRules(at, parseAffinity(e.Value), insideSlots)
}

// readClientChain returns the element of the chain of a port that has rules of these texts; false if it is another
// chain. The value is empty, so it differs from that of each port, if the rules belong to no port.
func (f *Family) readClientChain(name string, texts []string) (e Element, is bool) {
	for set, prefix := range map[string]string{clientChains: clientPrefix, insideChains: insidePrefix} {
		if at, of := f.portOfChain(prefix, name); of {
			e, is = Element{Set: set, Key: at.bytes()}, true
		}
	}
	if !is {
		return e, false
	}
	with := e
	if with.Value = affinityIn(texts); e.Set == insideChains && len(texts) == 1 {
		var n int
		_, _ = fmt.Sscanf(texts[0], insideText, &n)
		with.Value = strconv.Itoa(n)
	}
	if with.Value == "" {
		return e, true
	}
	var want []string
	for _, r := range f.rulesIn(with) {
		want = append(want, r.text)
	}
	if slices.Equal(texts, want) {
		e = with
	}
	return e, true
}

// affinityIn returns the affinity of a chain whose rules have these texts; empty if they have none.
func affinityIn(texts []string) string {
	var a affinity
	for _, text := range texts {
		var service, endpoint string
		if _, err := fmt.Sscanf(text, againText, &service, &endpoint, &a.seconds); err != nil {
			break
		}
		to, err := netip.ParseAddrPort(endpoint)
		if a.service, _ = netip.ParseAddrPort(service); err != nil || !a.service.IsValid() {
			return ""
		}
		a.endpoints = append(a.endpoints, to)
	}
	if len(a.endpoints) == 0 {
		return ""
	}
	return a.String()
}

// The texts of rules for an endpoint.
const (
	againText = "of %s to %s again, for %d s"
	otherText = "of %s to %s, one of %d, for %d s"

	insideText = "clients inside the cluster, to one of %d"
)

// clientRules returns the rules of the chain of a port with affinity:
//
//  1. A client goes to an endpoint that it had in the last time, to the first of them.
//  2. Another client goes to a random one, which is remembered.
//  3. If it cannot be remembered, a hash of the address of the client chooses. slot is the first one of the endpoints.
func (f *Family) clientRules(at PortKey, a affinity, slot uint32) (all []rule) {
	number := a.number(at.Protocol)
	for _, e := range a.endpoints {
		all = append(all, rule{fmt.Sprintf(againText, a.service, e, a.seconds), slices.Concat(
			f.had(e, number), []expr.Any{&expr.Lookup{SourceRegister: first, SetName: clients}, a.remember(unix.NFT_DYNSET_OP_UPDATE)}, f.dnatTo(e),
		)})
	}
	for i, e := range a.endpoints {
		left := len(a.endpoints) - i
		all = append(all, rule{fmt.Sprintf(otherText, a.service, e, left, a.seconds), slices.Concat(
			oneOf(left), f.had(e, number), []expr.Any{a.remember(unix.NFT_DYNSET_OP_ADD)}, f.dnatTo(e),
		)})
	}
	n := uint32(len(a.endpoints))
	return append(all, rule{
		fmt.Sprintf("a client too many, to one of %d", n), slices.Concat(f.askedAt(at), f.slotOfClient(slot, max(n, 1)), f.dnat(endpoints)),
	})
}

// anyInside returns the rule of a chain of insiders without affinity.
func (f *Family) anyInside(at PortKey, n int) rule {
	slot := &expr.Numgen{Register: f.behind(2), Modulus: uint32(max(n, 1)), Offset: insideSlots, Type: unix.NFT_NG_RANDOM}
	return rule{fmt.Sprintf(insideText, n), slices.Concat(f.askedAt(at), []expr.Any{slot}, f.dnat(endpoints))}
}

// askedAt loads the key of a port for packets to it.
func (f *Family) askedAt(at PortKey) []expr.Any {
	if at.Address == f.Every {
		return f.askedOfNode()
	}
	return f.asked()
}

// number stands for the port of the service, so that all ports that lead to it share what is remembered.
func (a affinity) number(protocol byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(append(binary.BigEndian.AppendUint16(a.service.Addr().AsSlice(), a.service.Port()), protocol))
	return h.Sum32()
}

// had loads the key of the client's element in clients for an endpoint.
func (f *Family) had(e netip.AddrPort, number uint32) []expr.Any {
	return append(f.load(f.source, first),
		&expr.Immediate{Register: f.behind(0), Data: e.Addr().AsSlice()},
		&expr.Immediate{Register: f.behind(f.size / 4), Data: binary.BigEndian.AppendUint16(nil, e.Port())},
		&expr.Immediate{Register: f.behind(f.size/4 + 1), Data: binaryutil.NativeEndian.PutUint32(number)},
	)
}

// remember writes the loaded key into clients. It does not match if the set is full.
func (a affinity) remember(operation uint32) expr.Any {
	return &expr.Dynset{SrcRegKey: first, SetName: clients, Operation: operation, Timeout: time.Duration(a.seconds) * time.Second}
}

// oneOf matches one of n packets, at random.
func oneOf(n int) []expr.Any {
	if n == 1 {
		return nil
	}
	return []expr.Any{
		&expr.Numgen{Register: first, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

// dnatTo translates the destination to an endpoint.
func (f *Family) dnatTo(e netip.AddrPort) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: first, Data: e.Addr().AsSlice()},
		&expr.Immediate{Register: f.behind(0), Data: binary.BigEndian.AppendUint16(nil, e.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.translate, RegAddrMin: first, RegProtoMin: f.behind(0)},
	}
}

// slotOfClient loads one of n slots from a first one on, by the source address. The seed is fixed, so that a client has the same slot when the rules are
// created again.
func (f *Family) slotOfClient(slot, n uint32) []expr.Any {
	return append(f.load(f.source, other),
		&expr.Hash{SourceRegister: other, DestRegister: f.behind(2), Length: f.size, Modulus: n, Seed: 1, Offset: slot, Type: expr.HashTypeJenkins},
	)
}

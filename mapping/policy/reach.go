package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/coe"
)

// PortRange is ports of a protocol. All ports are 1 to 65535.
type PortRange struct {
	Protocol    string
	First, Last uint16
}

// String returns the ports as FIRST-LAST/PROTOCOL; all ports of a protocol as PROTOCOL.
func (r PortRange) String() string {
	switch {
	case r.First == 1 && r.Last == lastPort:
		return r.Protocol
	case r.First == r.Last:
		return fmt.Sprintf("%d/%s", r.First, r.Protocol)
	}
	return fmt.Sprintf("%d-%d/%s", r.First, r.Last, r.Protocol)
}

// PortsText returns ranges for people; all ports as "all".
func PortsText(ranges []PortRange) string {
	if slices.Equal(ranges, AllPorts()) {
		return "all"
	}
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// AllPorts are all ports of all protocols, as OpenPorts returns them.
func AllPorts() []PortRange {
	all := make([]PortRange, len(protocols))
	for i, p := range protocols {
		all[i] = PortRange{p, 1, lastPort}
	}
	return all
}

var protocols = [...]string{"tcp", "udp", "sctp"}

const lastPort = 65535

// OpenPorts returns the ports of an end that another may connect to: maximal ranges, sorted.
func (c *Cluster) OpenPorts(from, to End) []PortRange {
	var sides [][]*rule // of the directions in which policies decide
	for _, d := range []coe.Direction{coe.Egress, coe.Ingress} {
		self, peer := subject(d, from, to), other(d, from, to)
		if exempt(d, self, peer) != "" {
			continue
		}
		rules := rulesFor(self, d, peer)
		if len(rules) == 0 {
			return nil
		}
		sides = append(sides, rules)
	}
	var open []PortRange
	for _, protocol := range protocols {
		ports := []PortRange{{protocol, 1, lastPort}}
		for _, rules := range sides {
			ports = common(ports, portsOf(rules, to, protocol))
		}
		open = append(open, ports...)
	}
	return open
}

// rulesFor returns the rules of an end in a direction that match a peer.
func rulesFor(self End, d coe.Direction, peer End) []*rule {
	var rules []*rule
	for r := range rulesOf(self, d) {
		if r.matchesPeer(peer) {
			rules = append(rules, r)
		}
	}
	return rules
}

// portsOf returns the ports of a protocol that rules allow: maximal ranges, sorted.
func portsOf(rules []*rule, to End, protocol string) []PortRange {
	var all []PortRange
	for _, r := range rules {
		if len(r.Ports) == 0 {
			return []PortRange{{protocol, 1, lastPort}}
		}
		for _, p := range r.Ports {
			switch {
			case p.Protocol != protocol:
			case p.Name != "":
				all = append(all, named(to, &p)...)
			case p.Last == 0:
				return []PortRange{{protocol, 1, lastPort}}
			default:
				all = append(all, PortRange{protocol, p.First, p.Last})
			}
		}
	}
	slices.SortFunc(all, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	var merged []PortRange
	for _, p := range all {
		if n := len(merged) - 1; n >= 0 && int(p.First) <= int(merged[n].Last)+1 {
			merged[n].Last = max(merged[n].Last, p.Last)
		} else {
			merged = append(merged, p)
		}
	}
	return merged
}

// named returns the ports that a destination has for a named port.
func named(to End, port *coe.PolicyPort) (ports []PortRange) {
	if !to.isPoliced() || port.Namespace != "" && port.Namespace != to.pod.Namespace {
		return nil
	}
	for _, p := range to.pod.Ports {
		if p.Name == port.Name && p.Protocol == port.Protocol {
			ports = append(ports, PortRange{p.Protocol, p.Port, p.Port})
		}
	}
	return ports
}

// common returns the ports that are in both lists of sorted ranges.
func common(a, b []PortRange) (both []PortRange) {
	for len(a) > 0 && len(b) > 0 {
		if first, last := max(a[0].First, b[0].First), min(a[0].Last, b[0].Last); first <= last {
			both = append(both, PortRange{a[0].Protocol, first, last})
		}
		if a[0].Last < b[0].Last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// rulesOf returns the rules of all policies that isolate an end in a direction.
func rulesOf(e End, d coe.Direction) func(yield func(*rule) bool) {
	return func(yield func(*rule) bool) {
		if !e.isPoliced() {
			return
		}
		for _, s := range *e.pod.sides(d) {
			for i := range s.rules {
				if !yield(&s.rules[i]) {
					return
				}
			}
		}
	}
}

// Path is the ports that are open between a pod and a peer: another pod, a node, or a block of
// addresses outside of the cluster.
type Path struct {
	Peer  End
	Block *coe.AddressBlock // if not nil, Peer is one of its addresses
	Ports []PortRange
}

// Reach returns the open paths of an end of a pod: with Egress where it may connect to, with
// Ingress who may connect to it. First are pods, then nodes, then blocks, each sorted. Pods
// on the host network are not listed: they count as their node.
func (c *Cluster) Reach(self End, d coe.Direction) []Path {
	var paths []Path
	add := func(peer End, block *coe.AddressBlock) {
		from, to := peer, self
		if d == coe.Egress {
			from, to = self, peer
		}
		if ports := c.OpenPorts(from, to); len(ports) > 0 {
			paths = append(paths, Path{peer, block, ports})
		}
	}
	for _, peer := range c.Pods() {
		if peer.isPoliced() && SameFamily(self, peer) {
			add(peer, nil)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(c.nodes)) {
		for _, peer := range c.nodeEnds(node) {
			if SameFamily(self, peer) {
				add(peer, nil)
			}
		}
	}
	for _, block := range blocks(d, self) {
		if a := anyOf(block); a.IsValid() {
			add(Outside(a), block)
		}
	}
	return paths
}

// Sources returns the blocks of addresses outside of the cluster, of the family of an end, that may connect to a port of it;
// all reports whether these are all addresses. With clients, which are of the same family, only addresses in these ranges count.
func (c *Cluster) Sources(to End, port Port, clients ...netip.Prefix) (admitted []*coe.AddressBlock, all bool) {
	all = true
	prefixes := prefixesOf(coe.Ingress, to)
	for _, p := range clients {
		prefixes[p] = true
	}
	for _, block := range divide(prefixes) {
		a := anyOf(block)
		switch {
		case !a.IsValid(), len(clients) > 0 && !slices.ContainsFunc(clients, func(p netip.Prefix) bool { return p.Contains(a) }):
		case c.Allowed(Outside(a), to, port):
			admitted = append(admitted, block)
		default:
			all = false
		}
	}
	return admitted, all
}

// nodeEnds returns the ends of a node, one for each address.
func (c *Cluster) nodeEnds(node string) []End {
	if len(c.nodes[node]) == 0 {
		return []End{{node: node}}
	}
	var ends []End
	for _, a := range c.nodes[node] {
		ends = append(ends, End{node: node, addr: a})
	}
	return ends
}

// SameFamily reports whether a connection between two ends is possible: their addresses are of
// the same family, as far as they are known.
func SameFamily(a, b End) bool {
	return !a.addr.IsValid() || !b.addr.IsValid() || a.addr.Is4() == b.addr.Is4()
}

// blocks divides all addresses of the families of an end into blocks, so that the policies that
// isolate the end treat all addresses of a block alike. If the end is given more than once, from
// several Clusters, the policies of all of them do.
func blocks(d coe.Direction, same ...End) []*coe.AddressBlock { return divide(prefixesOf(d, same...)) }

// prefixesOf returns the prefixes of the policies that isolate an end, and a prefix of all addresses for each of its families.
func prefixesOf(d coe.Direction, same ...End) map[netip.Prefix]bool {
	prefixes := map[netip.Prefix]bool{}
	add := func(p netip.Prefix) {
		if SameFamily(same[0], End{addr: p.Addr()}) {
			prefixes[p] = true
		}
	}
	add(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	add(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	for _, self := range same {
		for r := range rulesOf(self, d) {
			for _, peer := range r.Peers {
				if peer.Block != nil {
					add(peer.Block.CIDR)
					for _, except := range peer.Block.Except {
						add(except)
					}
				}
			}
		}
	}
	return prefixes
}

// divide returns a block for each prefix: its addresses that are not in a longer prefix of the set.
func divide(prefixes map[netip.Prefix]bool) []*coe.AddressBlock {
	sorted := slices.SortedFunc(maps.Keys(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	all := make([]*coe.AddressBlock, len(sorted))
	for i, prefix := range sorted {
		all[i] = &coe.AddressBlock{CIDR: prefix}
		// The prefixes inside follow, each directly before those inside of it, which are already
		// left out with it.
		except := &all[i].Except
		for _, inside := range sorted[i+1:] {
			if !prefix.Overlaps(inside) {
				break
			}
			if n := len(*except); n == 0 || !(*except)[n-1].Overlaps(inside) {
				*except = append(*except, inside)
			}
		}
	}
	return all
}

// anyOf returns an address of a block; the zero value if the block is empty.
func anyOf(b *coe.AddressBlock) netip.Addr {
	if first := b.CIDR.Addr(); b.Contains(first) {
		return first
	}
	for _, e := range b.Except {
		if next := netipx.PrefixLastIP(e).Next(); next.IsValid() && b.Contains(next) {
			return next
		}
	}
	return netip.Addr{}
}

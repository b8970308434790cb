package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/coe"
)

// PortRange is ports of a protocol. All ports are 1 to 65535.
type PortRange struct {
	Protocol    string
	First, Last uint16
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
	var open []PortRange
	for _, protocol := range protocols {
		begins := begins(from, to, protocol)
		for i, first := range begins {
			last := uint16(lastPort)
			if i+1 < len(begins) {
				last = begins[i+1] - 1
			}
			if !c.Allowed(from, to, Port{protocol, first}) {
				continue
			}
			if n := len(open); n > 0 && open[n-1].Protocol == protocol && open[n-1].Last == first-1 {
				open[n-1].Last = last
			} else {
				open = append(open, PortRange{protocol, first, last})
			}
		}
	}
	return open
}

// begins returns the ports at which an answer can change, sorted. Between two of them all ports
// have the same answer.
func begins(from, to End, protocol string) []uint16 {
	all := []uint16{1}
	add := func(first, last uint16) {
		all = append(all, first)
		if last < lastPort {
			all = append(all, last+1)
		}
	}
	for _, d := range []coe.Direction{coe.Egress, coe.Ingress} {
		for r := range rulesOf(subject(d, from, to), d) {
			for _, p := range r.Ports {
				if p.Last != 0 {
					add(p.First, p.Last)
				}
			}
		}
	}
	if to.isPoliced() {
		for _, p := range to.pod.Ports {
			if p.Protocol == protocol {
				add(p.Port, p.Port)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
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
	for _, block := range blocks(self, d) {
		if a := anyOf(block); a.IsValid() {
			add(Outside(a), block)
		}
	}
	return paths
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
// isolate the end treat all addresses of a block alike.
func blocks(self End, d coe.Direction) []*coe.AddressBlock {
	prefixes := map[netip.Prefix]bool{}
	add := func(p netip.Prefix) {
		if SameFamily(self, End{addr: p.Addr()}) {
			prefixes[p] = true
		}
	}
	add(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	add(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
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
	sorted := slices.SortedFunc(maps.Keys(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	all := make([]*coe.AddressBlock, len(sorted))
	for i, prefix := range sorted {
		all[i] = &coe.AddressBlock{CIDR: prefix}
		// The prefixes inside follow. A prefix inside another of them is already left out.
		for _, inside := range sorted[i+1:] {
			if prefix.Overlaps(inside) && all[i].Contains(inside.Addr()) {
				all[i].Except = append(all[i].Except, inside)
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

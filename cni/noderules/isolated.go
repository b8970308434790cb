package noderules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// isolatedRules returns the rules for the links of isolated namespaces:
//
//   - own-pods drops packets to the node whose source the node does not route to the same link: from pods of other nodes, and from
//     pods whose address another pod has. The node would answer to somebody else. A link-local address is on each link, so it is only
//     for ICMPv6. It also drops packets to other addresses of the node: the endpoint of a service can be one. ICMPv6 finds neighbours.
//   - no-forward drops everything that the node would forward to or from these links. Otherwise a pod could reach other namespaces and
//     other networks through its node. If the node leads to services, what it has translated leaves by the link that it came in by, and
//     what is still for a cluster address is refused. A packet to the edge address that is not translated would go round between node
//     and router until its time to live ends.
//   - no-redirect drops what tells pods to ask the router for services, as the node does because it sends by the same link. It also
//     drops what the kernel answers before own-sources and no-forward see a packet: that it is too big, or that its header is wrong.
//   - own-sources drops packets whose source the node does not route to the same link, before the kernel can answer them. It would
//     answer to somebody else: a refusal, or what it sends when the time to live ends, has the content of the packet. Answers of
//     endpoints come from anywhere. Pods whose address another pod has may send to services too, and get no refusal.
func (w Wanted) isolatedRules() (all []rule) {
	own := NamespacePrefix + "*"
	if w.Balances {
		all = append(all, w.withinNamespaces()...)
	}
	for _, here := range []netip.Addr{w.IPv4.Source, w.IPv6.Source} {
		if !here.IsValid() {
			continue
		}
		other := notTo(here)
		if here.Is6() {
			other = append(other, notICMPv6()...)
		}
		all = append(all, rule{tableBoth(), ownPods, fmt.Sprintf("from %s to no address but %s", own, here), slices.Concat(matches.InBy(own), other, dropped())})
	}
	return append(all, []rule{
		{tableBoth(), ownPods, fmt.Sprintf("from %s only from pods that are routed there", own), slices.Concat(matches.InBy(own), noRouteBack(), dropped())},
		{tableBoth(), ownPods, fmt.Sprintf("from %s with link-local addresses only ICMPv6", own), slices.Concat(matches.InBy(own), linkLocalNotICMP(), dropped())},
		{tableBoth(), noForward, fmt.Sprintf("from %s nowhere else", own), slices.Concat(matches.InBy(own), dropped())},
		{tableBoth(), noForward, fmt.Sprintf("to %s from nowhere else", own), slices.Concat(matches.OutBy(own), dropped())},
	}...)
}

// withinNamespaces returns the rules for what the node leads to services in isolated namespaces.
func (w Wanted) withinNamespaces() (all []rule) {
	own := NamespacePrefix + "*"
	all = append(all, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s no redirects", own), slices.Concat(matches.OutBy(own), icmp(redirect), dropped()),
	}, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s nothing about headers", own), slices.Concat(matches.OutBy(own), icmp(parameterProblem), dropped()),
	}, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s nothing about sizes", own), slices.Concat(matches.OutBy(own), icmp(unreachable, tooBig), dropped()),
	})
	all = append(all, w.ownSources()...)
	all = append(all, w.refusals()...)
	for _, n := range w.Namespaces {
		all = append(all, rule{
			tableBoth(), noForward, fmt.Sprintf("from %s back to it what is translated", n.Link),
			slices.Concat(matches.InBy(n.Link), matches.OutBy(n.Link), matches.Translated(), accepted()),
		})
	}
	return all
}

// ownSources returns the rules for the sources of packets from isolated namespaces.
func (w Wanted) ownSources() (all []rule) {
	own := NamespacePrefix + "*"
	all = append(all, rule{
		tableBoth(), ownSources, fmt.Sprintf("from %s not at the end of the time to live, except from pods that are routed there", own),
		slices.Concat(matches.InBy(own), lastHop(), noRouteBack(), dropped()),
	})
	for _, n := range w.Namespaces {
		for _, a := range n.Unrouted {
			all = append(all, rule{
				tableBoth(), ownSources, fmt.Sprintf("from %s also from %s", n.Link, a), slices.Concat(matches.InBy(n.Link), ofFamily(a), source(single(a)), accepted()),
			})
		}
	}
	return append(all, []rule{
		{tableBoth(), ownSources, fmt.Sprintf("from %s answers", own), slices.Concat(matches.InBy(own), answers(), accepted())},
		{tableBoth(), ownSources, fmt.Sprintf("from %s only from pods that are routed there", own), slices.Concat(matches.InBy(own), noRouteBack(), dropped())},
	}...)
}

// refusals returns the rules that refuse packets to cluster addresses. The refusal of a packet whose source is not routed to its link
// would go to somebody else, so there is none.
func (w Wanted) refusals() (all []rule) {
	own := NamespacePrefix + "*"
	for _, to := range w.IPv4.Services {
		for _, n := range w.Namespaces {
			for _, a := range n.Unrouted {
				all = append(all, rule{
					tableBoth(), noForward, fmt.Sprintf("from %s with %s to services %s: nobody serves, no answer", n.Link, a, to),
					slices.Concat(matches.InBy(n.Link), ofFamily(a), source(single(a)), destination(to), dropped()),
				})
			}
		}
		all = append(all, rule{
			tableBoth(), noForward, fmt.Sprintf("from %s to services %s: nobody serves", own, to),
			slices.Concat(matches.InBy(own), ofFamily(to.Addr()), destination(to), []expr.Any{
				&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH},
			}),
		})
	}
	return all
}

// Types of ICMP, and a code of unreachable (RFC 792).
const (
	unreachable, tooBig = 3, 4
	redirect            = 5
	parameterProblem    = 12
)

// icmp matches messages of ICMP that begin with some bytes: the type, and perhaps the code.
func icmp(first ...byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_ICMP}},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Len: uint32(len(first))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: first},
	}
}

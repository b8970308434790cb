package node

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// addNamespaces adds a pair for each namespace with interfaces on the node, and the routes to
// their addresses of the families of the node's addresses. If several interfaces have one
// address, the interface that is routed now keeps the route. A namespace whose interfaces have no address of these families has no
// pair: the bridge has no such port, and OpenDaylight would never program it.
func (w *wanted) addNamespaces(p *uplink.Place, interfaces map[string]*uplink.Record, routed map[netip.Addr]string) {
	sorted := slices.SortedFunc(maps.Values(interfaces), func(a, b *uplink.Record) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	owners := w.owners(p, sorted, routed)
	pairs := map[string]pair{}
	for _, r := range sorted {
		if !slices.ContainsFunc(r.Addresses, func(a uplink.Address) bool { return w.family(a.IP).source.IsValid() }) {
			w.unreached = append(w.unreached, fmt.Sprintf("%s/%s: it has no address of the family of the node's address %s", r.Namespace, r.Pod, p.Address))
			continue
		}
		to := pairs[r.Namespace]
		if to.link == "" {
			to = pair{link: linkOf(r.Namespace), port: portOf(r.Namespace), iface: p.PortOf(r.Namespace), mac: w.mac, ipv6: p.Address.Is6()}
		}
		w.allowIPv6(&to, r)
		for _, a := range r.Addresses {
			owner := owners[a.IP]
			if owner != r && w.balances && a.IP.Is4() {
				to.unrouted = append(to.unrouted, a.IP)
			}
			switch {
			case owner == r:
				to.routes = append(to.routes, route{to: single(a.IP)})
			case owner != nil:
				w.unreached = append(w.unreached, fmt.Sprintf("%s/%s: pod %s/%s of this node has the same address %s",
					r.Namespace, r.Pod, owner.Namespace, owner.Pod, a.IP))
			case w.family(a.IP).source.IsValid():
				w.unreached = append(w.unreached, fmt.Sprintf("%s/%s: its address %s is in no pool; if pods may have it, name its range with --pod-network",
					r.Namespace, r.Pod, a.IP))
			}
		}
		pairs[r.Namespace] = to
	}
	w.pairs = slices.SortedFunc(maps.Values(pairs), func(a, b pair) int { return cmp.Compare(a.link, b.link) })
	if !w.balances {
		return
	}
	for i := range w.pairs {
		w.pairs[i].gateway, w.pairs[i].filter = p.Gateway, "0"
	}
}

// owners returns the interface that has the route to an address, by address.
func (w *wanted) owners(p *uplink.Place, sorted []*uplink.Record, routed map[netip.Addr]string) map[netip.Addr]*uplink.Record {
	owners := map[netip.Addr]*uplink.Record{}
	for _, r := range sorted {
		for _, a := range r.Addresses {
			if !w.family(a.IP).source.IsValid() || !slices.ContainsFunc(p.Pods, func(n netip.Prefix) bool { return n.Contains(a.IP) }) {
				continue
			}
			if owners[a.IP] == nil || linkOf(r.Namespace) == routed[a.IP] {
				owners[a.IP] = r
			}
		}
	}
	return owners
}

// allowIPv6 gives the node's own end of a pair IPv6 if an interface behind it has an IPv6 address. A node with an internal
// IPv6 address has it anyway.
func (w *wanted) allowIPv6(to *pair, r *uplink.Record) {
	has := slices.ContainsFunc(r.Addresses, func(a uplink.Address) bool { return a.IP.Is6() })
	if has && w.ipv6.source.IsValid() && !to.ipv6 {
		to.ipv6, to.addresses = true, []netip.Addr{w.ipv6.source}
	}
}

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
func (w wanted) isolatedRules() (all []rule) {
	own := linkPrefix + "*"
	if w.balances {
		all = append(all, w.withinNamespaces()...)
	}
	for _, here := range []netip.Addr{w.ipv4.source, w.ipv6.source} {
		if !here.IsValid() {
			continue
		}
		other := notTo(here)
		if here.Is6() {
			other = append(other, notICMPv6()...)
		}
		all = append(all, rule{tableBoth(), ownPods, fmt.Sprintf("from %s to no address but %s", own, here), slices.Concat(inBy(own), other, dropped())})
	}
	return append(all, []rule{
		{tableBoth(), ownPods, fmt.Sprintf("from %s only from pods that are routed there", own), slices.Concat(inBy(own), noRouteBack(), dropped())},
		{tableBoth(), ownPods, fmt.Sprintf("from %s with link-local addresses only ICMPv6", own), slices.Concat(inBy(own), linkLocalNotICMP(), dropped())},
		{tableBoth(), noForward, fmt.Sprintf("from %s nowhere else", own), slices.Concat(inBy(own), dropped())},
		{tableBoth(), noForward, fmt.Sprintf("to %s from nowhere else", own), slices.Concat(outBy(own, expr.CmpOpEq), dropped())},
	}...)
}

// withinNamespaces returns the rules for what the node leads to services in isolated namespaces.
func (w wanted) withinNamespaces() (all []rule) {
	own := linkPrefix + "*"
	all = append(all, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s no redirects", own), slices.Concat(outBy(own, expr.CmpOpEq), icmp(redirect), dropped()),
	}, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s nothing about headers", own), slices.Concat(outBy(own, expr.CmpOpEq), icmp(parameterProblem), dropped()),
	}, rule{
		tableBoth(), noRedirect, fmt.Sprintf("by %s nothing about sizes", own), slices.Concat(outBy(own, expr.CmpOpEq), icmp(unreachable, tooBig), dropped()),
	})
	all = append(all, w.ownSources()...)
	all = append(all, w.refusals()...)
	for _, p := range w.pairs {
		if p.gateway.IsValid() {
			all = append(all, rule{
				tableBoth(), noForward, fmt.Sprintf("from %s back to it what is translated", p.link),
				slices.Concat(inBy(p.link), outBy(p.link, expr.CmpOpEq), translated(), accepted()),
			})
		}
	}
	return all
}

// ownSources returns the rules for the sources of packets from isolated namespaces.
func (w wanted) ownSources() (all []rule) {
	own := linkPrefix + "*"
	all = append(all, rule{
		tableBoth(), ownSources, fmt.Sprintf("from %s not at the end of the time to live, except from pods that are routed there", own),
		slices.Concat(inBy(own), lastHop(), noRouteBack(), dropped()),
	})
	for _, p := range w.pairs {
		for _, a := range p.unrouted {
			all = append(all, rule{
				tableBoth(), ownSources, fmt.Sprintf("from %s also from %s", p.link, a), slices.Concat(inBy(p.link), ofFamily(a), source(single(a)), accepted()),
			})
		}
	}
	return append(all, []rule{
		{tableBoth(), ownSources, fmt.Sprintf("from %s answers", own), slices.Concat(inBy(own), answers(), accepted())},
		{tableBoth(), ownSources, fmt.Sprintf("from %s only from pods that are routed there", own), slices.Concat(inBy(own), noRouteBack(), dropped())},
	}...)
}

// refusals returns the rules that refuse packets to cluster addresses. The refusal of a packet whose source is not routed to its link
// would go to somebody else, so there is none.
func (w wanted) refusals() (all []rule) {
	own := linkPrefix + "*"
	for _, to := range w.ipv4.services {
		for _, p := range w.pairs {
			for _, a := range p.unrouted {
				all = append(all, rule{
					tableBoth(), noForward, fmt.Sprintf("from %s with %s to services %s: nobody serves, no answer", p.link, a, to),
					slices.Concat(inBy(p.link), ofFamily(a), source(single(a)), destination(to), dropped()),
				})
			}
		}
		all = append(all, rule{
			tableBoth(), noForward, fmt.Sprintf("from %s to services %s: nobody serves", own, to),
			slices.Concat(inBy(own), ofFamily(to.Addr()), destination(to), []expr.Any{
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

// routers returns the routers of isolated namespaces, by the links by which their pods send to services.
func (w wanted) routers() map[string]netip.Addr {
	all := map[string]netip.Addr{}
	for _, p := range w.pairs {
		if p.gateway.IsValid() {
			all[p.link] = p.gateway
		}
	}
	return all
}

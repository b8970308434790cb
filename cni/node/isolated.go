package node

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/noderules"
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
	pairs, unrouted := map[string]pair{}, map[string][]netip.Addr{}
	for _, r := range sorted {
		if !slices.ContainsFunc(r.Addresses, func(a uplink.Address) bool { return w.family(a.IP).Source.IsValid() }) {
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
			if owner != r && a.IP.Is4() {
				unrouted[to.link] = append(unrouted[to.link], a.IP)
			}
			switch {
			case owner == r:
				to.routes = append(to.routes, route{to: single(a.IP)})
			case owner != nil:
				w.unreached = append(w.unreached, fmt.Sprintf("%s/%s: pod %s/%s of this node has the same address %s",
					r.Namespace, r.Pod, owner.Namespace, owner.Pod, a.IP))
			case w.family(a.IP).Source.IsValid():
				w.unreached = append(w.unreached, fmt.Sprintf("%s/%s: its address %s is in no pool; if pods may have it, name its range with --pod-network",
					r.Namespace, r.Pod, a.IP))
			}
		}
		pairs[r.Namespace] = to
	}
	w.pairs = slices.SortedFunc(maps.Values(pairs), func(a, b pair) int { return cmp.Compare(a.link, b.link) })
	if !w.Balances {
		return
	}
	for i := range w.pairs {
		w.pairs[i].gateway, w.pairs[i].filter = p.Gateway, "0"
		w.Namespaces = append(w.Namespaces, noderules.Namespace{Link: w.pairs[i].link, Unrouted: unrouted[w.pairs[i].link]})
	}
}

// owners returns the interface that has the route to an address, by address.
func (w *wanted) owners(p *uplink.Place, sorted []*uplink.Record, routed map[netip.Addr]string) map[netip.Addr]*uplink.Record {
	owners := map[netip.Addr]*uplink.Record{}
	for _, r := range sorted {
		for _, a := range r.Addresses {
			if !w.family(a.IP).Source.IsValid() || !slices.ContainsFunc(p.Pods, func(n netip.Prefix) bool { return n.Contains(a.IP) }) {
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
	if has && w.IPv6.Source.IsValid() && !to.ipv6 {
		to.ipv6, to.addresses = true, []netip.Addr{w.IPv6.Source}
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

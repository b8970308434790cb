package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// nodeRouterPort begins the name of the router port that is a gateway of a node, in ovn.LayoutNode.
const nodeRouterPort = "router:node:"

// gateways are the gateways of nodes in ovn.LayoutNode, with the lengths of their blocks, by the address of the node. The bridge chooses them,
// so they are read from the rows. The other rows of the layout follow from them. They are nil in ovn.LayoutELAN.
type gateways map[netip.Addr][]netip.Prefix

// gatewaysOf returns the gateways in the rows, in the order of their names.
func (t *tables) gatewaysOf(layout ovn.Layout) gateways {
	if layout != ovn.LayoutNode {
		return nil
	}
	all := gateways{}
	for i := range t.gateways {
		name, is := strings.CutPrefix(t.gateways[i].Name, nodeRouterPort)
		if text, _, cut := strings.Cut(name, "/"); is && cut {
			node := netip.MustParseAddr(text)
			for _, n := range t.gateways[i].Networks {
				all[node] = append(all[node], netip.MustParsePrefix(n))
			}
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	}
	return all
}

// holding returns the external_ids of the rows that only hold an object of a kind. These rows are of ovn.LayoutNode.
func (t *tables) holding(kind string) (all []map[string]string) {
	for _, d := range t.dhcp {
		if d.Cidr == "" && d.ExternalIDs["coe-bridge/kind"] == kind {
			all = append(all, d.ExternalIDs)
		}
	}
	return all
}

// of returns the gateway of an address on a node.
func (g gateways) of(node, address netip.Addr) netip.Prefix {
	for _, gateway := range g[node] {
		if gateway.Contains(address) {
			return gateway
		}
	}
	return netip.Prefix{}
}

// switches adds the rows of the switches of nodes. It fails if a gateway is of no lease, or if two have one block.
func (w *wantedRows) switches(f *fresh, leases []lease) error {
	if w.gateways == nil {
		return nil
	}
	for _, address := range f.nodes {
		w.add("switch node:%s", address)
	}
	used := map[string]bool{}
	for _, l := range leases { // with the ones that rest
		for _, a := range l.Addresses {
			used[fmt.Sprint(l.Node, w.gateways.of(l.Node, a))] = true
		}
	}
	var (
		blocks []netip.Prefix
		errs   []error
	)
	for node, all := range w.gateways {
		w.add("switch node:%s", node)
		var inports []string
		for _, g := range all {
			at := fmt.Sprintf("node:%s/%s", node, g.Addr())
			w.add("router port router:%s of transit:100:1: %s", at, g)
			w.add("port switch:%s on node:%s: router router:%s", at, node, at)
			if g.Addr().Is4() {
				inports = append(inports, strconv.Quote("router:"+at))
			}
			if !used[fmt.Sprint(node, g)] {
				errs = append(errs, fmt.Errorf("gateway %s of node %s is of no lease", g, node))
			}
			if other := cmp.Or(w.holders[g.Addr()], w.holders[g.Masked().Addr()]); other != "" {
				errs = append(errs, fmt.Errorf("gateway %s of node %s is in use by %s", g, node, other))
			}
			blocks = append(blocks, g)
		}
		if p, found := w.joined.places[node]; found {
			w.add("policy of transit:100:1: 100 reroute %s where %s && inport == {%s} && ip4", p.Address, w.joined.wayOut(), strings.Join(inports, ", "))
		}
	}
	for i, a := range blocks {
		for _, b := range blocks[:i] {
			if a.Overlaps(b) {
				errs = append(errs, fmt.Errorf("gateways %s and %s have one block", a, b))
			}
		}
	}
	return errors.Join(errs...)
}

// onNode adds the rows that hold the instances of a pod. It fails if the pod has another gateway than its address.
func (w *wantedRows) onNode(namespace string, node netip.Addr, i annotation) error {
	w.add("vpn-instance %s", namespace)
	w.add("elan-instance %s", i.Network)
	for n, ip := range i.IPs {
		if g := w.gateways.of(node, ip.Addr()); g.Addr() != i.Gateways[n] || !ip.IsSingleIP() {
			return fmt.Errorf("pod %s on %s is annotated %+v, and the gateway of its address is %s", i.Name, node, i, g)
		}
		w.add("subnet %s %s", i.Network, netip.PrefixFrom(i.Gateways[n], i.Gateways[n].BitLen()))
	}
	return nil
}

// networkOf returns the network of an address on a node.
func (w *wantedRows) networkOf(node netip.Addr, ip netip.Prefix) netip.Prefix {
	if w.gateways != nil {
		return w.gateways.of(node, ip.Addr()).Masked()
	}
	return ip.Masked()
}

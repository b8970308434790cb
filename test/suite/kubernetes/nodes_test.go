package kubernetes

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/test/lab/agents"
)

// nodeNetwork is the default network of the nodes' management ports. Most tests use it.
var nodeNetwork = netip.MustParsePrefix("100.96.0.0/16")

// joined is how the bridge has joined the nodes. The bridge chooses addresses in the network
// for each node, and sends them to its agent. The rows follow from these addresses.
type joined struct {
	network netip.Prefix // zero for none
	places  map[netip.Addr]agents.Place
}

// size returns the number of nodes for which the network has addresses: three per node, without the
// addresses of the network and the gateway, and the last one.
func (j joined) size() int {
	if !j.network.IsValid() {
		return 0
	}
	return (1<<(32-j.network.Bits()) - 3) / 3
}

func (j joined) gateway() netip.Addr { return j.network.Addr().Next() }

// wayOut is an OVN match for packets that the network of the pods has no route for.
func (j joined) wayOut() string {
	return fmt.Sprintf("outport == %q", "router:nodes:way-out/"+j.network.String())
}

// nodes adds the rows of the nodes' connections. It fails if a node with an address has no place, if
// another address has one, or if a place is wrong.
func (w *wantedRows) nodes(f *fresh) error {
	names, told := map[netip.Addr]string{}, len(w.joined.places)
	for name, address := range f.nodes {
		names[address] = name
	}
	if has := min(len(names), w.joined.size()); told != has {
		return fmt.Errorf("%d agents of nodes got a place, want %d", told, has)
	}
	if told == 0 {
		return nil
	}
	at := w.joined.network.String()
	w.add("switch nodes:%s", at)
	w.add("port switch:nodes:%s on nodes:%s: router router:nodes:%s", at, at, at)
	w.add("router port router:nodes:%s of transit:100:1: %s", at, netip.PrefixFrom(w.joined.gateway(), w.joined.network.Bits()))
	w.add("router port router:nodes:way-out/%s of transit:100:1: 169.254.0.1/30", at)
	w.add("route of transit:100:1: 0.0.0.0/0 via 169.254.0.2 by router:nodes:way-out/%s", at)
	w.add("policy of transit:100:1: 1 drop where %s", w.joined.wayOut())
	var errs []error
	for node, p := range w.joined.places {
		if names[node] == "" {
			errs = append(errs, fmt.Errorf("the agent of %s, which is not a node, got the place %+v", node, p))
			continue
		}
		errs = append(errs, w.place(node, names[node], p))
	}
	return errors.Join(errs...)
}

// place adds the rows that join one node.
func (w *wantedRows) place(node netip.Addr, name string, p agents.Place) error {
	at, port, a := w.joined.network.String(), "node:"+node.String()+":management", p.Address
	if err := w.isPlace(node, p); err != nil {
		return err
	}
	sources := fmt.Sprintf("{%s, %s}", p.Service, p.Edge)
	w.add("port %s on nodes:%s: %s %s %s %s, chassis %s", port, at, p.MAC, a, p.Service, p.Edge, name)
	w.add("route of transit:100:1: %s/32 via %s by router:nodes:%s", node, a, at)
	w.add("policy of transit:100:1: 300 reroute %s where %s && ip4.src == %s", a, w.joined.wayOut(), sources)
	w.add("acl of nodes:%s: 1 to-lport allow-stateless where outport == %q && ip4.src == %s", at, port, sources)
	w.add("acl of nodes:%s: 1 from-lport allow-stateless where inport == %q && ip4.dst == %s", at, port, sources)
	return nil
}

// leaves adds the policy by which packets from a network to destinations outside the cluster
// leave through a node. It adds nothing if the node has no place.
func (w *wantedRows) leaves(node netip.Addr, from netip.Prefix) {
	if p, found := w.joined.places[node]; found && from.Addr().Is4() {
		w.add("policy of transit:100:1: 100 reroute %s where %s && ip4.src == %s", p.Address, w.joined.wayOut(), from)
	}
}

// isPlace returns an error if a place is wrong. A place is a pair of addresses of the network and one
// counted from its end, which no other node and no pod has.
func (w *wantedRows) isPlace(node netip.Addr, p agents.Place) error {
	o, first := p.Address.As16(), binary.BigEndian.Uint32(w.joined.network.Addr().AsSlice())
	offset := int(binary.BigEndian.Uint32(o[12:])) - int(first)
	edge := binary.BigEndian.AppendUint32(nil, first+1<<(32-w.joined.network.Bits())-1-uint32(offset/2))
	mac := fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", o[12], o[13], o[14], o[15])
	if !w.joined.network.Contains(p.Address) || offset < 2 || offset%2 != 0 || offset/2 > w.joined.size() || p.Service != p.Address.Next() || !slices.Equal(p.Edge.AsSlice(), edge) || p.MAC != mac ||
		p.Gateway != w.joined.gateway() || p.Length != w.joined.network.Bits() || p.Name != "node:"+node.String()+":management" {
		return fmt.Errorf("node %s has the place %+v", node, p)
	}
	for _, a := range []netip.Addr{p.Address, p.Service, p.Edge} {
		if other := w.holders[a]; other != "" {
			return fmt.Errorf("node %s and %s both have %s", node, other, a)
		}
		w.holders[a] = "node " + node.String()
	}
	return nil
}

// reachable returns an error if the place of a node lacks a route to a pod or a service.
func (w *wantedRows) reachable(f *fresh) error {
	var services []netip.Addr
	for _, s := range f.services {
		for _, text := range s.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(text); err == nil { // or "None"
				services = append(services, a)
			}
		}
	}
	for _, p := range w.joined.places {
		in := append([]netip.Prefix{w.joined.network}, p.Pods...)
		for a, holder := range w.holders {
			if !within(in, a) {
				return fmt.Errorf("node %s has routes to the pods in %s, which do not contain %s of %s", p.Node, p.Pods, a, holder)
			}
		}
		for _, a := range services {
			if !within(p.Services, a) {
				return fmt.Errorf("node %s has routes to the services in %s, which do not contain %s", p.Node, p.Services, a)
			}
		}
	}
	return nil
}

// within reports whether an address is in one of the IPv4 ranges.
func within(ranges []netip.Prefix, a netip.Addr) bool {
	return !a.Is4() || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// isNodePort reports whether a port belongs to a node. The third part of the name of a pod's port, if
// any, is a UUID.
func isNodePort(p *nb.LogicalSwitchPort) bool {
	return p.Type == "" && strings.HasPrefix(p.Name, "node:") && strings.HasSuffix(p.Name, ":management")
}

// isPodPort reports whether a port belongs to a pod.
func isPodPort(p *nb.LogicalSwitchPort) bool { return p.Type == "" && !isNodePort(p) }

// filterLines returns the policies of routers and the ACLs of switches, one in each line.
func (t *tables) filterLines() (out []string) {
	policyOf, aclOf := map[string]string{}, map[string]string{}
	for _, r := range t.routers {
		note(policyOf, r.Name, r.Policies)
	}
	for _, s := range t.switches {
		note(aclOf, s.Name, s.ACLs)
	}
	for _, p := range t.policies {
		does := strings.Join(append([]string{p.Action}, p.Nexthops...), " ")
		out = append(out, fmt.Sprintf("policy of %s: %d %s where %s", policyOf[p.UUID], p.Priority, does, p.Match))
	}
	for _, a := range t.acls {
		out = append(out, fmt.Sprintf("acl of %s: %d %s %s where %s", aclOf[a.UUID], a.Priority, a.Direction, a.Action, a.Match))
	}
	return out
}

// checkLinks fails unless each link between routers has its own network with both ends, and matching
// routes.
func (t *tables) checkLinks() error {
	var errs []error
	ports, link := map[string]*nb.LogicalRouterPort{}, map[netip.Prefix]string{}
	for i := range t.gateways {
		ports[t.gateways[i].Name] = &t.gateways[i]
	}
	for name, p := range ports {
		if p.Peer == nil {
			continue
		}
		peer := ports[*p.Peer]
		if peer == nil || peer.Peer == nil || *peer.Peer != name || len(p.Networks) != 1 || len(peer.Networks) != 1 || p.Networks[0] == peer.Networks[0] {
			errs = append(errs, fmt.Errorf("router port %+v has the peer %+v", p, peer))
			continue
		}
		network, ends := netip.MustParsePrefix(p.Networks[0]).Masked(), min(name, *p.Peer)
		if other := cmp.Or(link[network], ends); other != ends || network != netip.MustParsePrefix(peer.Networks[0]).Masked() {
			errs = append(errs, fmt.Errorf("router port %s has network %s, its peer %s, and a port of %s too", name, network, peer.Networks[0], other))
		}
		link[network] = ends
	}
	for _, r := range t.routes {
		p := ports[*r.OutputPort]
		if p == nil || p.Peer == nil || ports[*p.Peer] == nil {
			continue
		}
		peer, via := ports[*p.Peer], netip.MustParseAddr(r.Nexthop)
		if want := netip.MustParsePrefix(peer.Networks[0]).Addr(); via != want && via != linkLocal(peer.MAC) {
			errs = append(errs, fmt.Errorf("route to %s by %s is via %s: its peer has %s", r.IPPrefix, p.Name, via, want))
		}
	}
	return errors.Join(errs...)
}

// linkLocal is the IPv6 address that OVN gives a router port (RFC 4291, appendix A).
func linkLocal(mac string) netip.Addr {
	var o [6]byte
	if _, err := fmt.Sscanf(mac, "%x:%x:%x:%x:%x:%x", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5]); err != nil {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: o[0] ^ 2, 9: o[1], 10: o[2], 11: 0xff, 12: 0xfe, 13: o[3], 14: o[4], 15: o[5]})
}

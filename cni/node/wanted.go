package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/remotes"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// The names of the pair of links of the management port: the node's own end, which has the
// address, and the end in the switch.
const (
	linkName = noderules.Link
	portName = "coe0-port"
)

// The prefixes of the names of the pairs of links of egress addresses. The number of the EgressIP and of the port follows.
const (
	egressLink = noderules.EgressPrefix
	egressPort = "coeg"
)

// The prefixes of the names of links in namespaces: isolated ones, or all if pods send to services by them.
const (
	linkPrefix = noderules.NamespacePrefix
	portPrefix = "coep"
)

// tapPrefix begins the names of ports that OpenDaylight recognises.
const tapPrefix = "tap"

// furtherLinks returns the names of the links beside the management port by which packets of pods come in.
func furtherLinks(openDaylight bool) string {
	if openDaylight {
		return linkPrefix + "*"
	}
	return egressLink + "*"
}

// wanted is the wanted state of the node.
type wanted struct {
	noderules.Wanted
	pairs []pair           // sorted by link
	mac   net.HardwareAddr // of pairs, except pairs of egress addresses
	// unreached says for each pod that the node does not reach why; sorted.
	unreached []string

	mtu               int
	softwareChecksums bool
}

// family returns what is wanted for the family of an address.
func (w *wanted) family(of netip.Addr) *noderules.Family {
	if of.Is4() {
		return &w.IPv4
	}
	return &w.IPv6
}

// pair is a pair of links of the node, and the port in the switch.
type pair struct {
	link  string // the node's own end
	port  string // the end in the switch
	iface string // the iface-id of the port
	// addresses are the addresses of the node's own end. mac is the MAC address of both ends.
	addresses []netip.Addr
	mac       net.HardwareAddr
	ipv6      bool // the node's own end has IPv6
	// filter is the rp_filter of the link; empty leaves it. With 2 packets come in from sources that are routed to another link, and
	// with 0 also from sources that have no route.
	filter string
	// gateway is the router to which the node sends what comes in by the link, if it leads the pods of an isolated namespace to
	// services.
	gateway netip.Addr
	routes  []route // starting with the route that the others need
}

func (p pair) nodePort() ovs.NodePort {
	return ovs.NodePort{Name: p.port, Interface: p.iface, MAC: p.mac.String()}
}

// route is a route of the node to the pod network.
type route struct {
	to  netip.Prefix
	via netip.Addr // zero: directly connected
}

// newWanted returns the wanted state of a node with interfaces. routed has the link of each
// address that the node routes singly now.
func newWanted(p *uplink.Place, interfaces map[string]*uplink.Record, routed map[netip.Addr]string) (w wanted, err error) {
	w = wanted{Wanted: noderules.Wanted{Isolated: p.Isolated, Balances: p.WayOut != nil}}
	if w.mac, err = net.ParseMAC(p.MAC); err != nil || len(w.mac) != 6 {
		return w, fmt.Errorf("node-changed from the bridge: MAC address %q: want six octets", p.MAC)
	}
	switch {
	case !p.Isolated:
		if err := w.addManagement(p); err != nil || p.WayOut == nil {
			return w, err
		}
		return w, w.addWaysOut(p, interfaces)
	case !p.Address.IsValid():
		return w, fmt.Errorf("node-changed from the bridge: address %q is invalid", p.Address)
	}
	w.family(p.Address).Source = p.Address
	if w.Balances {
		w.IPv4.Services = only4(p.Services)
	}
	if p.Address.Is4() && p.IPv6.Address.Is6() {
		w.IPv6.Source = p.IPv6.Address
	}
	w.addNamespaces(p, interfaces, routed)
	return w, nil
}

// addManagement adds the pair of the management port.
func (w *wanted) addManagement(p *uplink.Place) error {
	management := pair{link: linkName, port: portName, iface: p.Name, mac: w.mac}
	if err := w.addFamily(p, &management, p.IPv4(), netip.Addr.Is4, "IPv4"); err != nil {
		return err
	}
	if p.IPv6 != (uplink.PlaceAddresses{}) {
		management.ipv6 = true
		if err := w.addFamily(p, &management, p.IPv6, netip.Addr.Is6, "IPv6"); err != nil {
			return err
		}
	}
	w.pairs = []pair{management}
	return nil
}

// addWaysOut adds a pair for each namespace with interfaces on the node. The kernel takes packets from the pods by it,
// although they are routed to the management port: so the link has filter 2, which needs an address.
func (w *wanted) addWaysOut(p *uplink.Place, interfaces map[string]*uplink.Record) error {
	mac, err := net.ParseMAC(p.WayOut.MAC)
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("node-changed from the bridge: MAC address %q: want six octets", p.WayOut.MAC)
	}
	namespaces := map[string]bool{}
	for _, r := range interfaces {
		if !namespaces[r.Namespace] {
			namespaces[r.Namespace] = true
			w.pairs = append(w.pairs, pair{
				link: linkOf(r.Namespace), port: portOf(r.Namespace), iface: p.PortOf(r.Namespace), mac: mac, addresses: []netip.Addr{p.Address}, filter: "2",
			})
		}
	}
	slices.SortFunc(w.pairs, func(a, b pair) int { return cmp.Compare(a.link, b.link) })
	return nil
}

// namePorts gives the ports in the switch names of the form that OpenDaylight recognises on every switch: tap, and ten
// digits of a hash of the iface-id (see the module coe-agent).
func (w *wanted) namePorts() {
	w.OfPorts = true
	for i := range w.pairs {
		sum := sha256.Sum256([]byte(w.pairs[i].iface + "\x00"))
		w.pairs[i].port = fmt.Sprintf("%s%x-%x", tapPrefix, sum[:4], sum[4:5])
	}
}

// addFamily adds the addresses and routes of one family to the pair of the management port. The service address and the
// edge address are routed through the gateway too: only the switch has them.
func (w *wanted) addFamily(p *uplink.Place, to *pair, at uplink.PlaceAddresses, is func(netip.Addr) bool, name string) error {
	for _, a := range []netip.Addr{at.Address, at.Service, at.Gateway} {
		if !is(a) {
			return fmt.Errorf("node-changed from the bridge: address %q is not an %s address", a, name)
		}
	}
	f := noderules.Family{Source: at.Address, Nodes: netip.PrefixFrom(at.Address, at.Length).Masked(), Service: at.Service}
	if !f.Nodes.IsValid() {
		return fmt.Errorf("node-changed from the bridge: prefix length %d is invalid: want 0 to %d", at.Length, at.Address.BitLen())
	}
	f.Services, f.Routed = only(is, p.Services), only(is, p.NoMasquerade)
	to.addresses = append(to.addresses, at.Address)
	to.routes = append(to.routes, route{to: f.Nodes}, route{single(at.Service), at.Gateway})
	if is(at.Edge) {
		f.Edge = at.Edge
		to.routes = append(to.routes, route{single(at.Edge), at.Gateway})
	}
	for _, prefix := range slices.Concat(only(is, p.Pods), f.Services) {
		to.routes = append(to.routes, route{prefix, at.Gateway})
	}
	*w.family(at.Address) = f
	return nil
}

var nameHash = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// hashed returns 55 bits of the hash of a namespace: as much as fits in the name of a link.
func hashed(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return nameHash.EncodeToString(sum[:])[:11]
}

func linkOf(namespace string) string { return linkPrefix + hashed(namespace) }
func portOf(namespace string) string { return portPrefix + hashed(namespace) }

// databasePorts returns the ports of the southbound database in a switch's settings, without
// the default ports.
func databasePorts(settings map[string]string) (all []uint16) {
	for _, r := range remotes.Southbound(settings) {
		if !noderules.OfDatabase(r.Port) {
			all = append(all, r.Port)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func only4(all []netip.Prefix) []netip.Prefix { return only(netip.Addr.Is4, all) }

// only returns the prefixes of one family.
func only(is func(netip.Addr) bool, all []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !is(p.Addr()) })
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

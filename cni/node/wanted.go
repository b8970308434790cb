package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// The names of the pair of links: the node's own end, which has the address, and the end in
// the switch.
const (
	linkName = "coe0"
	portName = "coe0-port"
)

// wanted is the wanted state of the node.
type wanted struct {
	iface             string // the iface-id of the port
	mac               net.HardwareAddr
	address, service  netip.Addr
	gateway           netip.Addr
	nodes             netip.Prefix // all nodes' addresses
	pods, services    []netip.Prefix
	mtu               int
	softwareChecksums bool
	databases         []uint16 // further ports of OVN's databases, in order
}

func newWanted(p *uplink.Place) (wanted, error) {
	w := wanted{
		iface: p.Name, address: p.Address, service: p.Service, gateway: p.Gateway,
		nodes: netip.PrefixFrom(p.Address, p.Length).Masked(), pods: only4(p.Pods), services: only4(p.Services),
	}
	for _, a := range []netip.Addr{p.Address, p.Service, p.Gateway} {
		if !a.Is4() {
			return w, fmt.Errorf("node-changed from the bridge: address %q is not an IPv4 address", a)
		}
	}
	mac, err := net.ParseMAC(p.MAC)
	if err != nil || len(mac) != 6 || !w.nodes.IsValid() {
		return w, fmt.Errorf("node-changed from the bridge: MAC address %q or prefix length %d is invalid: want six octets, and 0 to 32", p.MAC, p.Length)
	}
	w.mac = mac
	return w, nil
}

// databasePorts returns the ports of the southbound database in a switch's settings, without
// the default ports.
func databasePorts(settings map[string]string) (all []uint16) {
	for _, r := range ovs.SouthboundRemotes(settings) {
		if r.Port < firstDatabase || r.Port > lastDatabase {
			all = append(all, r.Port)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func only4(all []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !p.Addr().Is4() })
}

func (w wanted) port() ovs.NodePort {
	return ovs.NodePort{Name: portName, Interface: w.iface, MAC: w.mac.String()}
}

// route is a route of the node to the pod network. Its source is the node's address there.
type route struct {
	to  netip.Prefix
	via netip.Addr // zero: directly connected
}

// routes returns the node's routes, starting with the route that the others need. The
// service address is routed through the gateway too: only the switch has it.
func (w wanted) routes() []route {
	all := []route{{to: w.nodes}, {netip.PrefixFrom(w.service, 32), w.gateway}}
	for _, to := range slices.Concat(w.pods, w.services) {
		all = append(all, route{to, w.gateway})
	}
	return all
}

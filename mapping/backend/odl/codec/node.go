package codec

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// networkVNI is the segmentation-id of the elan-instance of a NodeNetwork. Elan-instances of namespaces have higher ones
// (ipam.Config). It has 16 bits: with more, Netvirt fails when a member of an elan-instance on several switches is removed.
const networkVNI = 65000

// The names of entries of nodes. No namespace and no node has such a name.
const (
	networkPrefix    = "nodes:" // an elan-instance; the NodeNetwork's address, a dash and the length follow
	nodePrefix       = "node:"
	managementSuffix = ":management"
)

// NetworkName returns the name of the elan-instance of a NodeNetwork.
func NetworkName(prefix netip.Prefix) string {
	return fmt.Sprintf("%s%s-%d", networkPrefix, prefix.Addr(), prefix.Bits())
}

// parseNetworkName returns the Prefix of the NodeNetwork whose elan-instance has a name.
func parseNetworkName(name string) (p netip.Prefix, ok bool) {
	text, found := strings.CutPrefix(name, networkPrefix)
	address, bits, split := strings.Cut(text, "-")
	p, err := netip.ParsePrefix(address + "/" + bits)
	return p, found && split && err == nil && NetworkName(p) == name
}

// parseNodeName returns the node of a ManagementPort or a NodePort by its name. namespace is empty for a ManagementPort.
func parseNodeName(name string) (node netip.Addr, namespace string, ok bool) {
	text, found := strings.CutPrefix(name, nodePrefix)
	if !found {
		return node, "", false
	}
	if at, is := strings.CutSuffix(text, managementSuffix); is {
		node, err := netip.ParseAddr(at)
		return node, "", err == nil && netvirt.ManagementPortName(node) == name
	}
	return netvirt.ParseNodePort(name)
}

func nodePortOf(node netip.Addr, namespace string) netvirt.NodePort {
	return netvirt.NodePort{ELAN: netvirt.ELANName(node, namespace)}
}

// OfNode reports whether units of a kind are ports of nodes.
func OfNode(k netvirt.Kind) bool { return k == netvirt.KindManagementPort || k == netvirt.KindNodePort }

// damagedPort returns the object of a port of a node whose entries an external writer has changed.
func damagedPort(name string) netvirt.Object {
	node, namespace, _ := parseNodeName(name)
	if namespace == "" {
		return netvirt.ManagementPort{Node: node, Chassis: damagedMark}
	}
	port := nodePortOf(node, namespace)
	port.Chassis = damagedMark
	return port
}

// encodeNetwork returns the elan-instance of the management ports. Netvirt has no leaf for the other values.
func encodeNetwork(objects []netvirt.Object) Entry {
	o, ok := head[netvirt.NodeNetwork](objects)
	if !ok {
		return nil
	}
	words := []word{{"gateway", o.Gateway.String()}, {"transit", o.Transit}}
	if o.PrefixIPv6.IsValid() {
		words = append(words, word{"ipv6", o.PrefixIPv6.String()}, word{"ipv6-gateway", o.GatewayIPv6.String()})
	}
	if o.OneWay {
		words = append(words, word{"one-way", "true"})
	}
	if o.OnNode != "" {
		words = append(words, word{"on-node", string(o.OnNode)})
	}
	if o.GatewayLinks != "" {
		words = append(words, word{"gateway-links", string(o.GatewayLinks)})
	}
	return &ELANInstance{
		Name: NetworkName(o.Prefix), SegmentType: "elan:" + string(netvirt.SegmentVXLAN), SegmentationID: networkVNI, Description: describe(words...),
	}
}

func decodeNetwork(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[ELANInstances].(*ELANInstance)
	if !ok {
		return objects
	}
	o := netvirt.NodeNetwork{}
	o.Prefix, _ = parseNetworkName(e.Name)
	for name, value := range words(e.Description) {
		switch name {
		case "gateway":
			o.Gateway, _ = netip.ParseAddr(value)
		case "transit":
			o.Transit = value
		case "ipv6":
			o.PrefixIPv6, _ = netip.ParsePrefix(value)
		case "ipv6-gateway":
			o.GatewayIPv6, _ = netip.ParseAddr(value)
		case "one-way":
			o.OneWay = value == "true"
		case "on-node":
			o.OnNode = netvirt.PrefixList(value)
		case "gateway-links":
			o.GatewayLinks = netvirt.PrefixList(value)
		}
	}
	return append(objects, o)
}

// encodeManagementPort returns the entries of a node's port in the NodeNetwork: it is a member of the network's
// elan-instance and of the Transit's vpn-instance, which routes the addresses that nodes use on OpenDaylight there (decision 82). It
// has at most two adjacencies: Neon never removes the operational state of a vpn-interface with three.
func (c *codec) encodeManagementPort(objects []netvirt.Object) (out Content) {
	o, ok := head[netvirt.ManagementPort](objects)
	if !ok {
		return out
	}
	network := c.networks[o.Network]
	words := []word{{"network", o.Network.String()}, {"mac", o.MAC}}
	add := func(name string, a netip.Addr) {
		if a.IsValid() {
			words = append(words, word{name, a.String()})
		}
	}
	if o.Chassis != "" {
		words = append(words, word{"chassis", o.Chassis})
	}
	add("second", o.Second)
	add("address", o.Address)
	add("service", o.ServiceAddress)
	add("edge", o.EdgeAddress)
	add("ipv6-address", o.IPv6.Address)
	add("ipv6-service", o.IPv6.Service)
	add("ipv6-edge", o.IPv6.Edge)
	elan := NetworkName(o.Network)
	macs := &ELANInterface{Name: o.Name(), ELAN: elan, MACEntries: []macEntry{{o.MAC, o.Address.String()}}, Description: describe()}
	adjacencies := c.routed(subnet{elan, o.Network}, o.MAC, network.Gateway, o.Address, o.EdgeAddress)
	out[Interfaces], out[ELANInterfaces] = nodeInterface(o.Name(), words), macs
	out[VPNInterfaces] = c.nodeVPN(o.Name(), TransitPrefix+network.Transit, adjacencies)
	return out
}

// routed returns the adjacencies of a port of a node for its valid addresses.
func (c *codec) routed(in subnet, mac string, gateway netip.Addr, addresses ...netip.Addr) (all []adjacency) {
	for _, a := range addresses {
		if a.IsValid() {
			all = append(all, adjacency{
				Address: netip.PrefixFrom(a, a.BitLen()).String(), MAC: mac, Type: primary, SubnetID: c.Subnets.id(in), Gateway: addressText(gateway),
			})
		}
	}
	return all
}

// nodeVPN returns the vpn-interface of a port of a node.
func (c *codec) nodeVPN(name, vpn string, adjacencies []adjacency) Entry {
	e := &VPNInterface{Name: name, moved: c.form != Nested, Adjacencies: adjacencies, VPNs: []VPNName{{vpn, subnetType(true, false)}}}
	e.Normalize()
	return e
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// nodeInterface returns the interface of a port of a node. Its port has a name of the form that OpenDaylight knows on
// every switch.
func nodeInterface(name string, words []word) Entry {
	secured := false
	return &IETFInterface{
		Name: name, Type: "iana-if-type:l2vlan", Enabled: true, L2VLANMode: "trunk", Parent: netvirt.NodePortName(name),
		Description: describe(words...), Secured: &secured,
	}
}

func decodeManagementPort(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[Interfaces].(*IETFInterface)
	if !ok {
		return objects
	}
	o := netvirt.ManagementPort{}
	o.Node, _, _ = parseNodeName(e.Name)
	addresses := map[string]*netip.Addr{
		"address": &o.Address, "service": &o.ServiceAddress, "edge": &o.EdgeAddress,
		"second": &o.Second, "ipv6-address": &o.IPv6.Address, "ipv6-service": &o.IPv6.Service, "ipv6-edge": &o.IPv6.Edge,
	}
	for name, value := range words(e.Description) {
		switch to := addresses[name]; {
		case to != nil:
			*to, _ = netip.ParseAddr(value)
		case name == "network":
			o.Network, _ = netip.ParsePrefix(value)
		case name == "mac":
			o.MAC = value
		case name == "chassis":
			o.Chassis = value
		}
	}
	return append(objects, o)
}

// encodeNodePort returns the entries of a node's port in an elan-instance, whose pods are its neighbours. It is a member of the
// vpn-instance if it has an edge address.
func (c *codec) encodeNodePort(objects []netvirt.Object) (out Content) {
	o, ok := head[netvirt.NodePort](objects)
	if !ok {
		return out
	}
	words := []word{{"mac", o.MAC}, {"vpn", o.VPN}}
	add := func(name, value string, valid bool) {
		if valid {
			words = append(words, word{name, value})
		}
	}
	add("chassis", o.Chassis, o.Chassis != "")
	add("network", o.Network.String(), o.Network.IsValid())
	add("ipv6", o.IPv6.String(), o.IPv6.IsValid())
	add("ipv6-network", o.NetworkIPv6.String(), o.NetworkIPv6.IsValid())
	add("edge", o.Edge.String(), o.Edge.IsValid())
	add("edge-gateway", o.EdgeGateway.String(), o.EdgeGateway.IsValid())
	out[Interfaces] = nodeInterface(o.Name(), words)
	out[ELANInterfaces] = &ELANInterface{
		Name: o.Name(), ELAN: o.ELAN, MACEntries: []macEntry{{o.MAC, o.Address.String()}}, Description: describe(),
	}
	if o.Edge.IsValid() {
		out[VPNInterfaces] = c.nodeVPN(o.Name(), o.VPN, c.routed(subnet{o.ELAN, o.Network}, o.MAC, o.EdgeGateway, o.Edge))
	}
	return out
}

func decodeNodePort(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[Interfaces].(*IETFInterface)
	if !ok {
		return objects
	}
	node, namespace, _ := parseNodeName(e.Name)
	o := nodePortOf(node, namespace)
	o.Address = node
	for name, value := range words(e.Description) {
		switch name {
		case "mac":
			o.MAC = value
		case "vpn":
			o.VPN = value
		case "chassis":
			o.Chassis = value
		case "network":
			o.Network, _ = netip.ParsePrefix(value)
		case "ipv6":
			o.IPv6, _ = netip.ParseAddr(value)
		case "ipv6-network":
			o.NetworkIPv6, _ = netip.ParsePrefix(value)
		case "edge":
			o.Edge, _ = netip.ParseAddr(value)
		case "edge-gateway":
			o.EdgeGateway, _ = netip.ParseAddr(value)
		}
	}
	return append(objects, o)
}

// nodeKey returns the key of the only object of a unit of nodes; is is false for another unit.
func nodeKey(u Unit) (k netvirt.Key, is bool) {
	switch u.Kind {
	case netvirt.KindNodeNetwork:
		prefix, _ := parseNetworkName(u.Name)
		return netvirt.NodeNetwork{Prefix: prefix}.Key(), true
	case netvirt.KindManagementPort, netvirt.KindNodePort:
		return damagedPort(u.Name).Key(), true
	}
	return k, false
}

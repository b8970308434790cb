package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// defaultLease is the lease time of DHCP if the settings have none, in seconds.
const defaultLease = 3600

// elan returns the namespace's elan-instance on a node.
func (b *builder) elan(node netip.Addr) *elan {
	e := b.elans[node]
	if e == nil {
		name := netvirt.ELANName(node, b.Namespace)
		e = &elan{name: name, at: node}
		b.revalue(e, b.ELANs[name])
		b.elans[node] = e
		b.touch(e)
	}
	return e
}

// touch notes that an elan has to be settled.
func (b *builder) touch(e *elan) {
	if !e.touched {
		e.touched = true
		b.touched = append(b.touched, e)
	}
}

// renew notes that the objects of an elan and of its interfaces have to be made again.
func (b *builder) renew(e *elan) {
	e.renewed = true
	b.touch(e)
}

// followELANs renews the elans whose values have changed, and adds those that are kept without an interface.
func (b *builder) followELANs() {
	otherVPN, otherFacts := b.VPN != b.view.VPN, !same(b.ELANs, b.view.ELANs)
	for _, e := range b.elans {
		fact := e.fact
		if otherFacts {
			fact = b.ELANs[e.name]
		}
		if b.revalue(e, fact) || otherVPN {
			b.renew(e)
		}
	}
	if otherVPN || otherFacts {
		for name, fact := range b.ELANs {
			if node, _, err := netvirt.ParseELANName(name); err == nil && b.keeps(fact) {
				b.elan(node)
			}
		}
	}
	for block, isNew := range coe.Differences(b.view.Blocks, b.Blocks, (*coe.Block).Compare) {
		key := blockKey{block.ELAN, block.Prefix}
		if isNew {
			b.blocks[key] = block
		} else {
			delete(b.blocks, key)
		}
		if e := b.elans[block.Node()]; e != nil && e.name == block.ELAN {
			b.touch(e)
			e.renewed = e.renewed || slices.Contains(e.blocks, block)
		}
	}
}

// revalue updates the values of an elan, and reports whether they have changed.
func (b *builder) revalue(e *elan, fact *coe.ELANFact) (changed bool) {
	before := *e
	e.fact, e.node = fact, b.Nodes[e.at]
	e.edge = b.edge(e)
	return e.fact != before.fact || e.node != before.node || e.edge != before.edge
}

// keeps reports whether an elan-instance stays without an interface, while ipam keeps its record for the addresses
// that rest. It has all its blocks then, so that what depends on them stays when the last interface goes,
// and before all sources have reported their pods. It does not stay if its segment depends on an interface, or if its
// record does not say so.
func (b *builder) keeps(fact *coe.ELANFact) bool {
	return b.Limits.KeepsELANs && b.VPN != nil && fact != nil && fact.NetworkType == coe.VXLAN
}

// settle follows the interfaces of an elan. An elan without any use is forgotten. One that is as before keeps its part.
func (b *builder) settle(e *elan) {
	before, renewed := *e, e.renewed
	e.first, e.iface, e.blocks, e.families, e.dhcp = nil, nil, nil, 0, false
	e.kept, e.touched, e.renewed = b.keeps(e.fact), false, false
	for _, a := range e.interfaces {
		e.add(a)
		e.dhcp = e.dhcp || b.hasDHCP(a)
	}
	if e.kept {
		at, _ := slices.BinarySearchFunc(b.Blocks, e.name, func(block *coe.Block, name string) int { return strings.Compare(block.ELAN, name) })
		for _, block := range b.Blocks[at:] {
			if block.ELAN != e.name {
				break
			}
			e.subnet(block)
		}
	}
	slices.SortFunc(e.blocks, (*coe.Block).Compare)
	switch {
	case !e.used():
		delete(b.elans, e.at)
		if e.part != nil {
			b.changed[e.part.Name] = nil
		}
	case e.part == nil || renewed || !e.sameSegment(&before) || e.dhcp != before.dhcp || !slices.Equal(e.blocks, before.blocks):
		e.part = netvirt.NewPart(b.elanObjects(e)...)
		b.changed[e.part.Name] = e.part
	}
}

// add follows one of the elan's interfaces.
func (e *elan) add(a *attached) {
	if e.first == nil || cmp.Or(cmp.Compare(a.lease.Seq, e.first.Seq), a.lease.Compare(e.first)) < 0 {
		e.first, e.iface = a.lease, a.iface
	}
	for _, block := range a.blocks {
		if block != nil {
			e.subnet(block)
		}
	}
	if a.membership == nil {
		return
	}
	for _, addr := range a.lease.Addresses {
		e.families |= familyOf(addr.Address)
	}
}

// subnet adds the subnet of a block, once.
func (e *elan) subnet(block *coe.Block) {
	if !slices.Contains(e.blocks, block) {
		e.blocks = append(e.blocks, block)
	}
}

// sameSegment reports whether the interfaces that decide on the segments of two elans request the same.
func (e *elan) sameSegment(other *elan) bool {
	return e.iface == other.iface ||
		e.iface != nil && other.iface != nil && e.iface.NetworkType == other.iface.NetworkType && e.iface.SegmentationID == other.iface.SegmentationID
}

// used reports whether the elan-instance is in the model.
func (e *elan) used() bool { return e.first != nil || e.kept }

// vpnInstance returns the namespace's vpn-instance.
func (b *builder) vpnInstance() netvirt.VPNInstance {
	return netvirt.VPNInstance{
		Name:               b.VPN.Name,
		Namespace:          b.Namespace,
		RouteDistinguisher: fmt.Sprintf("100:%d", b.VPN.RD),
		Transit:            b.transit(),
	}
}

// elanInstance returns the object of an elan. The physical network of the namespace decides on the segment. Otherwise, the
// segmentation-id of VXLAN and GRE was chosen for it, that of VLAN is the tag of the first interface, and FLAT has none.
func (b *builder) elanInstance(e *elan) netvirt.ELANInstance {
	o := netvirt.ELANInstance{Name: e.name, SegmentType: netvirt.SegmentVXLAN, SegmentationID: e.fact.VNI}
	if p := b.physical(); p != nil {
		o.SegmentType, o.SegmentationID = netvirt.SegmentFlat, 0
		if p.VLAN != 0 {
			o.SegmentType, o.SegmentationID = netvirt.SegmentVLAN, uint32(p.VLAN)
		}
		o.PhysicalNetwork, o.Subnets = p.Name, netvirt.NewPrefixList(p.Subnets...)
		return o
	}
	if e.iface == nil {
		return o
	}
	switch e.iface.NetworkType {
	case "FLAT":
		o.SegmentType, o.SegmentationID = netvirt.SegmentFlat, 0
	case "VLAN":
		o.SegmentType, o.SegmentationID = netvirt.SegmentVLAN, e.iface.SegmentationID
	case "GRE":
		o.SegmentType = netvirt.SegmentGRE
	}
	return o
}

// elanObjects returns the objects of an elan-instance, and those that belong to it alone.
func (b *builder) elanObjects(e *elan) []netvirt.Object {
	objects := []netvirt.Object{b.elanInstance(e)}
	var lease uint32
	if e.dhcp {
		lease = b.LeaseTime()
	}
	for _, block := range e.blocks {
		objects = append(objects, netvirt.Subnet{
			ELAN: block.ELAN, VPN: b.VPN.Name, Prefix: block.Prefix, Gateway: block.Gateway,
			DNS: netvirt.NewAddrList(block.DNS...), LeaseTime: lease,
		})
	}
	if port, has := b.nodePort(e); has {
		objects = append(objects, port)
	}
	return objects
}

// nodePort returns the port of a node in its elan-instance, if the namespace is isolated. It has an address in each family that pods
// have, and that the node has. A port without an address does not exist. Agents decide in the same way: they know the addresses of their
// pods, and the node's from node-changed. If nodes balance, it is the way of pods to services and to what is outside, and has no network.
func (b *builder) nodePort(e *elan) (port netvirt.NodePort, has bool) {
	if !b.Isolated() && (!b.nodesBalance() || e.node == nil) { // a node that is not known has no management port
		return port, false
	}
	port = netvirt.NodePort{ELAN: e.name, VPN: b.VPN.Name, Address: e.at, MAC: netvirt.NodePortMAC(e.at), Chassis: e.chassis()}
	if !b.Isolated() {
		return port, true
	}
	if e.edge.IsValid() {
		port.Edge, port.EdgeGateway = e.edge, b.Networks.Nodes.Gateway()
	}
	if block := e.gatewayFor(e.at); block != nil {
		port.Network = block.Prefix
	}
	six := nodenet.IsolatedIPv6(e.at)
	if block := e.gatewayFor(six); six.IsValid() && block != nil {
		port.IPv6, port.NetworkIPv6 = six, block.Prefix
	}
	return port, len(port.Addresses()) > 0
}

// edge returns the source of what a node leads to services, if the namespace is isolated; zero if it leads nobody.
func (b *builder) edge(e *elan) netip.Addr {
	if !b.Isolated() || !b.nodesBalance() || e.node == nil {
		return netip.Addr{}
	}
	return b.Networks.IsolatedEdge(b.Numbers[e.at])
}

// gatewayFor returns the first block of the family of an address; nil if there is none.
func (e *elan) gatewayFor(a netip.Addr) *coe.Block {
	var first *coe.Block
	for _, block := range e.blocks {
		if block.Prefix.Addr().Is4() == a.Is4() && (first == nil || block.Prefix.Compare(first.Prefix) < 0) {
			first = block
		}
	}
	return first
}

// chassis returns the host name of the node; empty if it is unknown.
func (e *elan) chassis() string {
	if e.node == nil {
		return ""
	}
	return e.node.HostName
}

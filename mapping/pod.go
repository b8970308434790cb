package mapping

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// pod maps each interface of a pod to an interface, an elan-interface and a
// vpn-interface, with the instances that they need (Netvirt COE Integration, "Create Pod"). If
// the pod's node is not known any more, the pod stays on the node of its lease: it may still
// run there.
func (b *builder) pod(p *coe.Pod) {
	if p.NoNetwork {
		return
	}
	attached, problems := len(b.attached), len(b.problems)
	b.podInterfaces(p)
	complete := len(b.problems) == problems
	notEnforced := b.notEnforcedOfPod(p, b.attached[attached:])
	b.problems = append(b.problems, notEnforced...)
	if complete {
		b.markComplete(p, attached, notEnforced)
	}
}

func (b *builder) podInterfaces(p *coe.Pod) {
	switch {
	case p.Name == "":
		b.podProblem(p, coe.NoName, "the pod has no name, so its interface can't be named; send name")
		return
	case !p.HostIP.IsValid():
		b.podProblem(p, coe.NoNode, noNode(p))
	case b.Misplaced(p):
		b.podProblem(p, coe.NoNode, fmt.Sprintf("the pod's node %s reports the address %s of node %s; correct the address of one of the two",
			p.NodeName, p.HostIP, b.Nodes[p.HostIP].HostName))
	}
	interfaces := p.AllInterfaces()
	for n := range interfaces {
		b.podInterface(p, &interfaces[n])
	}
}

func (b *builder) podInterface(p *coe.Pod, i *coe.PodInterface) {
	key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
	refusal, refused := b.Refusals[key]
	if refused {
		b.podProblem(p, refusal.Reason, refusal.Message)
	}
	lease := b.Leases.Get(key)
	if lease != nil && lease.Released == 0 && b.leased(p, lease, i) {
		return
	}
	if !refused && p.HostIP.IsValid() && !b.Misplaced(p) {
		b.podProblem(p, coe.Waiting, "an address is being chosen for interface "+i.UID)
	}
}

// noNode returns the message for a pod without the address of its node.
func noNode(p *coe.Pod) string {
	if p.NodeName != "" {
		return fmt.Sprintf("the address of the pod's node %s is not known: no source knows such a node, or it has no address yet; send the node with its address, or the pod with host-ip-address", p.NodeName)
	}
	return "the pod has no node: it is not scheduled yet, or it was sent without host-ip-address, the address of its node; send host-ip-address, or wait for the scheduler"
}

func (b *builder) podProblem(p *coe.Pod, reason coe.Reason, message string) {
	b.problems = append(b.problems, coe.Problem{
		Namespace: b.Namespace, Kind: "pod", UID: p.UID, Name: p.Name, Reason: reason, Message: message,
	})
}

// leased maps one interface with the values of its lease. It returns false if something
// that the interface needs is not chosen yet.
func (b *builder) leased(p *coe.Pod, l *coe.Lease, i *coe.PodInterface) bool {
	a := placed{&attached{
		pod: p, lease: l, iface: i, seq: l.Seq,
		segment: i.NetworkType != "" || i.SegmentationID != 0, hostPorts: len(p.HostPorts) > 0 && b.servesHostPorts(p),
	}, b.elan(l.Node)}
	if b.VPN == nil || a.elan.fact == nil || len(l.Addresses) == 0 {
		return false
	}
	for n, addr := range l.Addresses {
		a.blocks[n] = b.blocks[blockKey{a.elan.name, addr.Network}]
		if a.blocks[n] == nil {
			return false
		}
	}
	a.membership = b.membership(p, l)
	b.attach(a)
	b.changed[l.Name] = netvirt.NewPart(b.attachment(a)...)
	return true
}

// attach records an interface of the model, and adds the subnets that it needs.
func (b *builder) attach(a placed) {
	e := a.elan
	if e.first == nil || a.seq < e.first.Seq {
		e.first, e.iface = a.lease, a.iface
	}
	for _, block := range a.blocks {
		if block != nil {
			e.subnet(block)
		}
	}
	if len(b.Services) > 0 {
		for _, addr := range a.lease.Addresses {
			b.pods[addr.Address] = a.lease
		}
	}
	if a.segment {
		b.segments = append(b.segments, a)
	}
	b.noteMember(a)
	b.attached = append(b.attached, a)
}

// subnet adds the subnet of a block, once.
func (e *elan) subnet(block *coe.Block) {
	if !slices.Contains(e.blocks, block) {
		e.blocks = append(e.blocks, block)
	}
}

// attachment returns the objects that attach an interface.
func (b *builder) attachment(a placed) []netvirt.Object {
	l, elan := a.lease, a.elan.name
	objects := []netvirt.Object{
		netvirt.Interface{
			Name: l.Name, Namespace: l.Namespace, Pod: l.Pod, PodUID: l.PodUID, UID: l.InterfaceUID,
			ParentInterface: netvirt.PortName(l.Name, l.PodUID), DHCP: b.hasDHCP(a),
		},
		netvirt.ELANInterface{Name: l.Name, Namespace: l.Namespace, ELAN: elan, Chassis: a.elan.chassis()},
		netvirt.VPNInterface{Name: l.Name, Namespace: l.Namespace, VPN: b.VPN.Name},
	}
	for n, addr := range l.Addresses {
		block := a.blocks[n]
		objects = append(objects,
			netvirt.MACEntry{Interface: l.Name, Namespace: l.Namespace, MAC: l.MAC, Address: addr.Address},
			netvirt.Adjacency{
				Interface: l.Name, Namespace: l.Namespace, Address: addr.Address, MAC: l.MAC,
				ELAN: elan, Network: block.Prefix, Gateway: block.Gateway,
			})
	}
	if acl, has := interfaceACL(a.attached); has {
		objects = append(objects, acl)
	}
	return objects
}

// hasDHCP reports whether the pod or the pool of one of its addresses asks for DHCP. Without it a port has half the
// logical flows.
func (b *builder) hasDHCP(a placed) bool {
	asked := a.pod.DHCP || slices.ContainsFunc(a.blocks[:len(a.lease.Addresses)], func(block *coe.Block) bool { return block.DHCP })
	return asked && !b.Limits.NoDHCP
}

// elan returns the namespace's elan-instance on a node.
func (b *builder) elan(node netip.Addr) *elan {
	e := b.elans[node]
	if e == nil {
		name := netvirt.ELANName(node, b.Namespace)
		e = &elan{name: name, fact: b.ELANs[name], node: b.Nodes[node]}
		b.elans[node] = e
	}
	return e
}

// keepELANs keeps the elan-instances that have no interface any more, while ipam keeps their records for the addresses
// that rest. Each elan-instance has all its blocks then, so that what depends on them stays when the last interface goes,
// and before all sources have reported their pods. An elan-instance is not kept if its segment depends on an interface, or if its
// record does not say so.
func (b *builder) keepELANs() {
	kept := make(map[string]*elan, len(b.ELANs))
	for name, fact := range b.ELANs {
		if node, _, err := netvirt.ParseELANName(name); err == nil && fact.NetworkType == coe.VXLAN {
			kept[name] = b.elan(node)
			kept[name].kept = true
		}
	}
	for _, block := range b.Blocks {
		if e := kept[block.ELAN]; e != nil {
			e.subnet(block)
		}
	}
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

// elanParts adds the elan-instances with their subnets, and reports whether there are any. It forgets the elans without interfaces. One
// that is as before keeps its part.
func (b *builder) elanParts() (used bool) {
	for node, e := range b.elans {
		if !e.used() {
			delete(b.elans, node)
			continue
		}
		used = true
		old := b.before.elans[node]
		if old != nil && old.part != nil && b.VPN == b.before.vpn && e.equals(old) {
			e.part = old.part
			continue
		}
		e.part = netvirt.NewPart(b.elanObjects(node, e)...)
		b.changed[e.part.Name] = e.part
	}
	for node, old := range b.before.elans {
		if b.elans[node] == nil && old.part != nil {
			b.changed[old.part.Name] = nil
		}
	}
	return used
}

// equals reports whether two elans have the same objects, if their vpn-instance is the same.
func (e *elan) equals(other *elan) bool {
	sameSegment := e.iface == other.iface ||
		e.iface != nil && other.iface != nil && e.iface.NetworkType == other.iface.NetworkType && e.iface.SegmentationID == other.iface.SegmentationID
	return sameSegment && e.fact == other.fact && e.node == other.node && slices.Equal(e.blocks, other.blocks)
}

func (b *builder) elanObjects(node netip.Addr, e *elan) []netvirt.Object {
	objects := []netvirt.Object{b.elanInstance(e)}
	for _, block := range e.blocks {
		objects = append(objects, netvirt.Subnet{
			ELAN: block.ELAN, VPN: b.VPN.Name, Prefix: block.Prefix, Gateway: block.Gateway,
			DNS: netvirt.NewAddrList(block.DNS...), LeaseTime: b.DHCPLeaseTime,
		})
	}
	if port, has := b.nodePort(node, e); has {
		objects = append(objects, port)
	}
	return objects
}

// nodePort returns the port of a node in its elan-instance, if the namespace is isolated. It has an address in each family that pods
// have. If nodes balance, it is the way of pods to services and to what is outside, and has no network.
func (b *builder) nodePort(node netip.Addr, e *elan) (port netvirt.NodePort, has bool) {
	if !b.Isolated() && (!b.nodesBalance() || e.node == nil) { // a node that is not known has no management port
		return port, false
	}
	port = netvirt.NodePort{ELAN: e.name, VPN: b.VPN.Name, Address: node, MAC: netvirt.NodePortMAC(node), Chassis: e.chassis()}
	if !b.Isolated() {
		return port, true
	}
	if block := e.gatewayFor(node); block != nil {
		port.Network = block.Prefix
	}
	six := coe.IsolatedIPv6(node)
	if block := e.gatewayFor(six); six.IsValid() && block != nil {
		port.IPv6, port.NetworkIPv6 = six, block.Prefix
	}
	return port, len(port.Addresses()) > 0
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

package mapping

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// pod maps each interface of a pod to ietf-interface, elan-interface and
// vpn-interface, and makes the instances that they need (spec, "Create Pod"). One
// whose node is not known any more stays where its lease says: it may run there.
func (b *builder) pod(p *coe.Pod) {
	switch {
	case p.NoNetwork:
		return
	case p.Name == "":
		b.podProblem(p, coe.NoName, "the pod has no name, so its interface can't be named; send name")
		return
	case !p.HostIP.IsValid():
		b.podProblem(p, coe.NoNode, noNode(p))
	}
	for _, i := range p.AllInterfaces() {
		key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
		if refusal, refused := b.Refusals[key]; refused {
			b.podProblem(p, refusal.Reason, refusal.Message)
		}
		lease := b.Leases[key]
		if lease != nil && lease.Released == 0 && b.leased(lease, i) {
			continue
		}
		if _, refused := b.Refusals[key]; !refused && p.HostIP.IsValid() {
			b.podProblem(p, coe.Waiting, "an address is being chosen for interface "+i.UID)
		}
	}
}

// noNode says why the address of a pod's node is not known.
func noNode(p *coe.Pod) string {
	if p.NodeName != "" {
		return fmt.Sprintf("the address of the pod's node %s is not known: no source knows such a node, or it has no address yet", p.NodeName)
	}
	return "the pod has no node: it is not scheduled yet, or came without host-ip-address, the address of its node"
}

func (b *builder) podProblem(p *coe.Pod, reason coe.Reason, message string) {
	b.problems = append(b.problems, coe.Problem{
		Namespace: b.Namespace, Kind: "pod", UID: p.UID, Name: p.Name, Reason: reason, Message: message,
	})
}

// leased maps one interface as its lease says; it reports false while something
// that the lease needs is not chosen yet.
func (b *builder) leased(l *coe.Lease, i coe.PodInterface) bool {
	e := b.elan(l.Node)
	if b.VPN == nil || e.fact == nil || len(l.Addresses) == 0 {
		return false
	}
	by := basis{vpn: b.VPN, node: e.node}
	for n, a := range l.Addresses {
		block := b.blocks[blockKey{e.name, a.Network}]
		if block == nil {
			return false
		}
		by.blocks[n] = block
	}
	if e.first == nil || l.Seq < e.first.Seq {
		e.first, e.iface = l, i
	}
	for n, a := range l.Addresses {
		if len(b.Services) > 0 {
			b.pods[a.Address] = l
		}
		b.subnet(by.blocks[n])
	}
	b.parts[l.Name] = b.attachment(l, e.name, by)
	return true
}

// subnet adds a block that a mapped pod has an address of.
func (b *builder) subnet(block *coe.Block) {
	if b.shown[block] {
		return
	}
	b.shown[block] = true
	b.rest.Add(netvirt.Subnet{
		ELAN: block.ELAN, VPN: b.VPN.Name, Prefix: block.Prefix, Gateway: block.Gateway,
		DNS: netvirt.NewAddrList(block.DNS...), LeaseTime: b.DHCPLeaseTime,
	})
}

// attachment is what attaches an interface: made anew, or as it was made before
// of the same lease on the same basis.
func (b *builder) attachment(l *coe.Lease, elan string, by basis) *netvirt.Part {
	made := b.before[l]
	if made == nil || made.basis != by {
		made = &attachment{by, netvirt.NewPart(attaching(l, elan, by)...)}
	}
	if b.after != nil {
		b.after[l] = made
	}
	return made.Part
}

// attaching makes the objects that attach an interface.
func attaching(l *coe.Lease, elan string, by basis) []netvirt.Object {
	var chassis string
	if by.node != nil {
		chassis = by.node.HostName
	}
	objects := []netvirt.Object{
		netvirt.Interface{
			Name: l.Name, Namespace: l.Namespace, Pod: l.Pod, PodUID: l.PodUID, UID: l.InterfaceUID,
			ParentInterface: netvirt.PortName(l.Name, l.PodUID),
		},
		netvirt.ELANInterface{Name: l.Name, Namespace: l.Namespace, ELAN: elan, Chassis: chassis},
		netvirt.VPNInterface{Name: l.Name, Namespace: l.Namespace, VPN: by.vpn.Name},
	}
	for n, a := range l.Addresses {
		block := by.blocks[n]
		objects = append(objects,
			netvirt.MACEntry{Interface: l.Name, Namespace: l.Namespace, MAC: l.MAC, Address: a.Address},
			netvirt.Adjacency{
				Interface: l.Name, Namespace: l.Namespace, Address: a.Address, MAC: l.MAC,
				ELAN: elan, Network: block.Prefix, Gateway: block.Gateway,
			})
	}
	return objects
}

// elan is the namespace's elan-instance on a node.
func (b *builder) elan(node netip.Addr) *elan {
	e := b.elans[node]
	if e == nil {
		name := netvirt.ELANName(node, b.Namespace)
		e = &elan{name: name, fact: b.ELANs[name], node: b.Nodes[node]}
		b.elans[node] = e
	}
	return e
}

// vpnInstance is the namespace's vpn-instance.
func (b *builder) vpnInstance() netvirt.VPNInstance {
	return netvirt.VPNInstance{
		Name:               b.VPN.Name,
		Namespace:          b.Namespace,
		RouteDistinguisher: fmt.Sprintf("100:%d", b.VPN.RD),
		Transit:            b.transit(),
	}
}

// elanInstance is one of a node and this namespace. VXLAN and GRE have the
// identifier that was chosen for it, VLAN the tag that the interface names, FLAT none.
func elanInstance(e *elan) netvirt.ELANInstance {
	o := netvirt.ELANInstance{Name: e.name, SegmentType: netvirt.SegmentVXLAN, SegmentationID: e.fact.VNI}
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

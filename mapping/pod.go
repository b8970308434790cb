package mapping

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// pod maps each interface of a pod to ietf-interface, elan-interface and
// vpn-interface, and makes the instances that they need (spec, "Create Pod").
func (b *builder) pod(p *coe.Pod) {
	switch {
	case p.NoNetwork:
		return
	case p.Name == "":
		b.podProblem(p, coe.NoName, "the pod has no name, so its interface can't be named; send name")
		return
	case !p.HostIP.IsValid():
		b.podProblem(p, coe.NoNode, noNode(p))
		return
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
		if _, refused := b.Refusals[key]; !refused {
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
	elan := b.elanName(l.Node)
	if b.VPN == nil || b.ELANs[elan] == nil || len(l.Addresses) == 0 {
		return false
	}
	by := basis{vpn: b.VPN, node: b.Nodes[l.Node]}
	for n, a := range l.Addresses {
		block := b.blocks[blockKey{elan, a.Network}]
		if block == nil {
			return false
		}
		by.blocks[n] = block
	}
	if first, found := b.seeds[elan]; !found || l.Seq < first.seq {
		b.seeds[elan] = seed{l.Seq, i}
	}
	for n, a := range l.Addresses {
		b.pods[a.Address] = l
		b.subnet(by.blocks[n])
	}
	for _, p := range b.attachment(l, elan, by) {
		b.model[p.key] = p.object
	}
	return true
}

// subnet adds a block that a mapped pod has an address of.
func (b *builder) subnet(block *coe.Block) {
	if b.shown[block] {
		return
	}
	b.shown[block] = true
	b.model.Add(netvirt.Subnet{
		ELAN: block.ELAN, VPN: b.VPN.Name, Prefix: block.Prefix, Gateway: block.Gateway,
		DNS: netvirt.NewAddrList(block.DNS...), LeaseTime: b.DHCPLeaseTime,
	})
}

// attachment is what attaches an interface: made anew, or as it was made before
// of the same lease on the same basis.
func (b *builder) attachment(l *coe.Lease, elan string, by basis) []part {
	made := b.before[l]
	if made == nil || made.basis != by {
		made = &attachment{by, parts(l, elan, by)}
	}
	if b.after != nil {
		b.after[l] = made
	}
	return made.parts
}

// parts makes the objects that attach an interface.
func parts(l *coe.Lease, elan string, by basis) []part {
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
	made := make([]part, len(objects))
	for n, o := range objects {
		made[n] = part{o.Key(), o}
	}
	return made
}

// elanName is the name of the namespace's elan-instance on a node.
func (b *builder) elanName(node netip.Addr) string {
	name, found := b.elanNames[node]
	if !found {
		name = netvirt.ELANName(node, b.Namespace)
		b.elanNames[node] = name
	}
	return name
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

// elanInstance is the elan-instance of a node and this namespace. VXLAN and GRE
// have the identifier that was chosen for it, VLAN the tag that the interface
// names, FLAT none.
func (b *builder) elanInstance(name string, s seed) netvirt.ELANInstance {
	e := netvirt.ELANInstance{Name: name, SegmentType: netvirt.SegmentVXLAN, SegmentationID: b.ELANs[name].VNI}
	switch s.NetworkType {
	case "FLAT":
		e.SegmentType, e.SegmentationID = netvirt.SegmentFlat, 0
	case "VLAN":
		e.SegmentType, e.SegmentationID = netvirt.SegmentVLAN, s.SegmentationID
	case "GRE":
		e.SegmentType = netvirt.SegmentGRE
	}
	return e
}

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
		b.podProblem(p, coe.NoNode, "the pod names no node; send host-ip-address, the address of its node")
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
	for _, a := range l.Addresses {
		if b.blocks[blockKey{elan, a.Network}] == nil {
			return false
		}
	}
	if first, found := b.seeds[elan]; !found || l.Seq < first.seq {
		b.seeds[elan] = seed{l.Seq, i}
	}
	vpn := b.VPN.Name
	b.model.Add(
		netvirt.Interface{
			Name: l.Name, Namespace: b.Namespace, Pod: l.Pod, PodUID: l.PodUID, UID: l.InterfaceUID,
			ParentInterface: netvirt.PortName(l.Name, l.PodUID),
		},
		netvirt.ELANInterface{Name: l.Name, Namespace: b.Namespace, ELAN: elan, Chassis: b.chassis(l)},
		netvirt.VPNInterface{Name: l.Name, Namespace: b.Namespace, VPN: vpn},
	)
	for _, a := range l.Addresses {
		b.address(l, elan, vpn, a)
	}
	return true
}

// address maps one address of an interface, and the subnet that it is of.
func (b *builder) address(l *coe.Lease, elan, vpn string, a coe.LeasedAddress) {
	block := b.blocks[blockKey{elan, a.Network}]
	b.pods[a.Address] = l
	if !b.shown[block] {
		b.shown[block] = true
		b.model.Add(netvirt.Subnet{
			ELAN: elan, VPN: vpn, Prefix: block.Prefix, Gateway: block.Gateway,
			DNS: netvirt.NewAddrList(block.DNS...), LeaseTime: b.DHCPLeaseTime,
		})
	}
	b.model.Add(
		netvirt.MACEntry{Interface: l.Name, Namespace: b.Namespace, MAC: l.MAC, Address: a.Address},
		netvirt.Adjacency{
			Interface: l.Name, Namespace: b.Namespace, Address: a.Address, MAC: l.MAC,
			ELAN: elan, Network: block.Prefix, Gateway: block.Gateway,
		},
	)
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

// chassis is the host name of the lease's node, where a node of that address is known.
func (b *builder) chassis(l *coe.Lease) string {
	if n := b.Nodes[l.Node]; n != nil {
		return n.HostName
	}
	return ""
}

package mapping

import (
	"fmt"
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
	problems := len(b.problems)
	interfaces := b.podInterfaces(p)
	complete := len(b.problems) == problems
	b.problems = append(b.problems, b.notEnforcedOfPod(p, interfaces)...)
	if own := b.problems[problems:]; len(own) > 0 {
		b.podProblems[p.UID], b.problems = slices.Clone(own), b.problems[:problems]
	}
	if !complete || slices.ContainsFunc(interfaces, func(a *attached) bool { return a.lease.Node != p.HostIP }) {
		b.waiting[p.UID] = true
	}
}

// podInterfaces maps the interfaces of a pod, and returns those that are in the model.
func (b *builder) podInterfaces(p *coe.Pod) (all []*attached) {
	switch {
	case p.Name == "":
		b.podProblem(p, coe.NoName, "the pod has no name, so its interface can't be named; send name")
		return nil
	case !p.HostIP.IsValid():
		b.podProblem(p, coe.NoNode, noNode(p))
	case b.Misplaced(p):
		b.podProblem(p, coe.NoNode, fmt.Sprintf("the pod's node %s reports the address %s of node %s; correct the address of one of the two",
			p.NodeName, p.HostIP, b.Nodes[p.HostIP].HostName))
	}
	interfaces := p.AllInterfaces()
	for n := range interfaces {
		if a := b.podInterface(p, &interfaces[n]); a != nil {
			all = append(all, a)
		}
	}
	return all
}

// podInterface maps an interface; it returns nil if something is missing.
func (b *builder) podInterface(p *coe.Pod, i *coe.PodInterface) *attached {
	key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
	refusal, refused := b.Refusals[key]
	if refused {
		b.podProblem(p, refusal.Reason, refusal.Message)
	}
	lease := b.Leases.Get(key)
	if lease != nil && lease.Released == 0 {
		if a := b.leased(p, lease, i); a != nil {
			return a
		}
	}
	if !refused && p.HostIP.IsValid() && !b.Misplaced(p) {
		b.podProblem(p, coe.Waiting, "an address is being chosen for interface "+i.UID)
	}
	return nil
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

// leased maps one interface with the values of its lease. It returns nil if something
// that the interface needs is not chosen yet.
func (b *builder) leased(p *coe.Pod, l *coe.Lease, i *coe.PodInterface) *attached {
	a := &attached{pod: p, lease: l, iface: i, elan: b.elan(l.Node)}
	if b.VPN == nil || a.elan.fact == nil || len(l.Addresses) == 0 {
		return nil
	}
	for n, addr := range l.Addresses {
		a.blocks[n] = b.blocks[blockKey{a.elan.name, addr.Network}]
		if a.blocks[n] == nil {
			return nil
		}
	}
	a.membership = b.membership(p, l)
	b.attach(a)
	return a
}

// attachment returns the objects that attach an interface.
func (b *builder) attachment(a *attached) []netvirt.Object {
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
	if acl, has := interfaceACL(a); has {
		objects = append(objects, acl)
	}
	return objects
}

// hasDHCP reports whether the pod or the pool of one of its addresses asks for DHCP. Without it a port has half the
// logical flows.
func (b *builder) hasDHCP(a *attached) bool {
	asked := a.pod.DHCP || slices.ContainsFunc(a.blocks[:len(a.lease.Addresses)], func(block *coe.Block) bool { return block.DHCP })
	return asked && !b.Limits.NoDHCP
}

package mapping

import (
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// physical returns the physical network of the namespace; nil if it has none, or the backend attaches none.
func (b *builder) physical() *coe.PhysicalNetwork {
	if b.Limits.NoPhysicalNetworks {
		return nil
	}
	return b.Physical.ForNamespace(b.Namespace)
}

// physicalProblems reports a physical network that the backend does not attach, and pods that do not reach its machines.
func (b *builder) physicalProblems() {
	p := b.Physical.ForNamespace(b.Namespace)
	switch {
	case p == nil || len(b.elans) == 0:
	case b.Limits.NoPhysicalNetworks:
		b.unenforced("namespace", b.Namespace, b.Namespace, fmt.Sprintf(
			"the physical network %s has no effect, because the backend makes every network an overlay: pods do not reach its machines", p))
	default:
		for a := range b.interfaces() {
			if !slices.ContainsFunc(a.lease.Addresses, func(addr coe.LeasedAddress) bool { return p.Subnet(addr.Address).IsValid() }) {
				b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
					"interface %s does not reach the machines of physical network %s: it has no address in %v; give the pool of network-id %q a part of the subnet, and create the pod again",
					a.iface.UID, p, p.Subnets, b.Namespace))
			}
		}
	}
}

// segmentOfPhysical reports an interface that requests another segment than the physical network of its namespace.
func (b *builder) segmentOfPhysical(a *attached, p *coe.PhysicalNetwork) {
	kind, id := p.Segment()
	if i := a.iface; i.Type() != coe.VXLAN && (i.Type() != kind || kind == "VLAN" && i.SegmentationID != id) {
		b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
			"network-type %s and segmentation-id %d of interface %s have no effect: the namespace has the physical network %s",
			i.Type(), i.SegmentationID, i.UID, p))
	}
}

package mapping

import (
	"fmt"

	"github.com/coe-bridge/coe-bridge/coe/physical"
)

// physical returns the physical network of the namespace; nil if it has none, or the backend attaches none.
func (b *builder) physical() *physical.Network {
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
			if why := p.Unreached(a.iface.UID, a.lease.Addresses); why != "" {
				b.unenforced("pod", a.pod.UID, a.pod.Name, why)
			}
		}
	}
}

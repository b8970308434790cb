package mapping

import (
	"cmp"
	"fmt"

	"github.com/coe-bridge/coe-bridge/coe"
)

// notEnforced adds a NotEnforced Problem for each object of the namespace with
// settings that have no effect. It is apart from what maps the objects: they are
// mapped all the same, and a pod with such a Problem is as quick to map again as
// any other.
func (b *builder) notEnforced() {
	if n := b.Ignored; n != nil {
		b.unenforced("namespace", n.UID, n.Name, n.Ignored.String())
	}
	for _, p := range b.Policies {
		b.problems = append(b.problems, policyProblem(p))
	}
	for _, p := range b.Pods {
		if p.Ignored != 0 && !p.NoNetwork {
			b.unenforced("pod", p.UID, p.Name, p.Ignored.String())
		}
	}
	for _, s := range b.Services {
		ignored := s.Ignored
		for _, p := range s.Ports {
			if p.NodePort != 0 {
				ignored |= coe.NodePort
			}
		}
		if ignored != 0 {
			b.unenforced("service", s.UID, s.Name, ignored.String())
		}
		if most := b.Limits.Affinity; most != 0 && s.Affinity > most {
			b.unenforced("service", s.UID, s.Name, fmt.Sprintf("a session affinity of %d s lasts %d s, the longest that the backend knows", s.Affinity, most))
		}
	}
	for n := range b.attached {
		b.segment(&b.attached[n])
	}
}

// segment reports what an interface asks of its elan-instance in vain. The interface
// that was there first decides on the segment of the elan-instance.
func (b *builder) segment(a *attached) {
	i, first := a.iface, a.elan.iface
	kind := cmp.Or(i.NetworkType, "VXLAN")
	switch {
	case i.NetworkType == "" && i.SegmentationID == 0: // it asks for nothing
	case kind != cmp.Or(first.NetworkType, "VXLAN"),
		kind != "FLAT" && i.SegmentationID != first.SegmentationID && (kind == "VLAN" || i.SegmentationID != 0):
		b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
			"interface %s asks for network-type %s and segmentation-id %d; its elan-instance has %s and %d, as its first interface asked: send both interfaces with the same values",
			i.UID, kind, i.SegmentationID, cmp.Or(first.NetworkType, "VXLAN"), first.SegmentationID))
	case b.Limits.OverlayOnly && kind != "VXLAN":
		b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
			"network-type %s of interface %s has no effect: the backend makes every network an overlay", kind, i.UID))
	}
}

func (b *builder) unenforced(kind, uid, name, message string) {
	b.problems = append(b.problems, coe.Problem{
		Namespace: b.Namespace, Kind: kind, UID: uid, Name: name, Reason: coe.NotEnforced, Message: message,
	})
}

// policyProblem reports that a policy is not enforced.
func policyProblem(p *coe.Policy) coe.Problem {
	message := "network policies are not enforced: traffic that it forbids is let through"
	if p.Kind == coe.AccessList {
		message = "access lists are not enforced: traffic that it forbids is let through"
	}
	return coe.Problem{
		Namespace: p.Namespace, Kind: string(p.Kind), UID: p.UID, Name: p.Name, Reason: coe.NotEnforced, Message: message,
	}
}

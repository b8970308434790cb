package mapping

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// notEnforced adds a NotEnforced problem for each object of the namespace with settings
// that have no effect. Such objects are mapped like all others, and a Mapper reuses their
// results too.
func (b *builder) notEnforced() {
	if n := b.Configured; n != nil {
		b.notEnforcedOf(n)
	}
	for _, p := range b.Policies {
		b.problems = append(b.problems, b.policyProblems(p)...)
	}
	b.portsOfSCTP()
	b.hostPorts()
	b.physicalProblems()
	for a := range b.segments {
		b.segment(a)
	}
}

// notEnforcedOfPod returns the problems of a pod that depend on the pod, its leases and the settings alone. A pod with host ports is
// noted for hostPorts.
func (b *builder) notEnforcedOfPod(p *coe.Pod, interfaces []*attached) (problems []coe.Problem) {
	ignored := p.Ignored
	switch {
	case !b.servesHostPorts(p):
		ignored |= coe.HostPort
	case len(p.HostPorts) > 0:
		b.hostPods[p.UID] = p
	}
	if ignored != 0 {
		problems = append(problems, b.unenforcedProblem("pod", p.UID, p.Name, ignored.String()))
	}
	for _, a := range interfaces {
		if l := a.lease; l.DeniedMAC != "" {
			problems = append(problems, b.unenforcedProblem("pod", p.UID, p.Name, fmt.Sprintf(
				"port-mac-address %s has no effect: it is that of %s; the pod has %s; send another one, or none",
				l.DeniedMAC, cmp.Or(l.DeniedBy, "another interface"), l.MAC)))
		}
	}
	return problems
}

// servesHostPorts reports whether nodes answer on all host ports of a pod.
func (b *builder) servesHostPorts(p *coe.Pod) bool {
	return !slices.ContainsFunc(p.HostPorts, func(port uint16) bool { return !b.servesHostPort(port) })
}

// hostPorts adds the problems of pods with host ports on nodes without an edge address.
func (b *builder) hostPorts() {
	if b.Networks == nil || len(b.hostPods) == 0 {
		return
	}
	numbers := newNumbering(b.Networks, b.Numbers)
	for _, p := range b.hostPods {
		if b.Nodes[p.HostIP] != nil && numbers.lacks(p.HostIP) != "" {
			b.unenforced("pod", p.UID, p.Name, "hostPort is not served: the node has no edge address, because --node-network is full; use a larger range, or remove nodes")
		}
	}
}

// notEnforcedOf adds the problems of the namespace's own settings.
func (b *builder) notEnforcedOf(n *coe.Namespace) {
	if n.Ignored != 0 {
		b.unenforced("namespace", n.UID, n.Name, n.Ignored.String())
	}
	if n.PolicyLog != "" && b.Limits.NoLogs {
		b.unenforced("namespace", n.UID, n.Name, "the annotation "+coe.PolicyLogAnnotation+" has no effect: the backend does not log what network policies decide")
	}
}

// segment reports an interface that requests another segment than its elan-instance has.
// The first interface of an elan-instance decides on the segment.
func (b *builder) segment(a *attached) {
	i, first := a.iface, a.elan.iface
	kind := i.Type()
	if p := b.physical(); p != nil {
		if why := p.OtherSegment(i); why != "" {
			b.unenforced("pod", a.pod.UID, a.pod.Name, why)
		}
		return
	}
	switch {
	case kind != first.Type(),
		kind != "FLAT" && i.SegmentationID != first.SegmentationID && (kind == "VLAN" || i.SegmentationID != 0):
		b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
			"interface %s requests network-type %s and segmentation-id %d; its elan-instance has %s and %d, which its first interface requested: send both interfaces with the same values",
			i.UID, kind, i.SegmentationID, first.Type(), first.SegmentationID))
	case b.Limits.OverlayOnly && kind != coe.VXLAN:
		b.unenforced("pod", a.pod.UID, a.pod.Name, fmt.Sprintf(
			"network-type %s of interface %s has no effect: the backend makes every network an overlay", kind, i.UID))
	}
}

func (b *builder) unenforced(kind, uid, name, message string) {
	b.problems = append(b.problems, b.unenforcedProblem(kind, uid, name, message))
}

func (b *builder) unenforcedProblem(kind, uid, name, message string) coe.Problem {
	return coe.Problem{Namespace: b.Namespace, Kind: kind, UID: uid, Name: name, Reason: coe.NotEnforced, Message: message}
}

// portsOfSCTP reports the policies of the namespace that allow ports of SCTP, if the backend has no
// rules for them.
func (b *builder) portsOfSCTP() {
	if !b.Limits.NoSCTPPorts || b.Limits.NoACLs || b.PolicySet == nil {
		return
	}
	for _, p := range b.PolicySet.Policies {
		if p.Namespace == b.Namespace && allowsPortOfSCTP(p) {
			b.unenforced(string(p.Kind), p.UID, p.Name, noPortsOfSCTP)
		}
	}
}

const noPortsOfSCTP = "the backend cannot match ports of SCTP: connections of SCTP that it allows for some ports are dropped; allow all ports of SCTP, or use another backend"

func allowsPortOfSCTP(p *coe.PolicySpec) bool {
	return slices.ContainsFunc(slices.Concat(p.Ingress.Rules, p.Egress.Rules), func(r coe.PolicyRule) bool {
		return slices.ContainsFunc(r.Ports, func(p coe.PolicyPort) bool {
			return p.Protocol == string(netvirt.SCTP) && (p.Name != "" || p.Last != 0)
		})
	})
}

// policyProblems reports that a policy is not enforced, or that it is invalid.
func (s Settings) policyProblems(p *coe.Policy) []coe.Problem {
	var message string
	switch {
	case s.Limits.NoACLs && p.Kind == coe.AccessList:
		message = "access lists are not enforced, because the backend has no ACLs: traffic that the list forbids is allowed"
	case s.Limits.NoACLs:
		message = "network policies are not enforced, because the backend has no ACLs: traffic that the policy forbids is allowed"
	case p.Invalid != "":
		message = "until then it isolates the pods that it selects, and allows nothing"
	default:
		return nil
	}
	reason := coe.NotEnforced
	if p.Invalid != "" {
		reason, message = coe.PolicyInvalid, fmt.Sprintf("the policy is invalid: %s; correct it; %s", p.Invalid, message)
	}
	return []coe.Problem{{
		Namespace: p.Namespace, Kind: string(p.Kind), UID: p.UID, Name: p.Name, Reason: reason, Message: message,
	}}
}

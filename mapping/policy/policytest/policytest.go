// Package policytest draws random policies and labels, for tests of what judges or enforces
// policies.
package policytest

import (
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Generator draws from few names, labels, numbers and addresses, so that many of them meet.
type Generator struct {
	*rand.Rand
	// Addresses are the addresses that blocks are made of.
	Addresses []netip.Addr
	// Simple leaves out the selectors that cyclonus misreads.
	Simple bool
}

// New returns a generator. Every second one is simple.
func New(seed uint64, addresses ...netip.Addr) Generator {
	return Generator{rand.New(rand.NewPCG(seed, 18)), addresses, seed%2 == 0}
}

// Pick returns one of some values.
func Pick[T any](g Generator, from ...T) T { return from[g.IntN(len(from))] }

// Some returns up to most values.
func Some[T any](g Generator, most int, value func() T) []T {
	var all []T
	for range g.IntN(most + 1) {
		all = append(all, value())
	}
	return all
}

// One reports true once in a number of calls, on average.
func (g Generator) One(in int) bool { return g.IntN(in) == 0 }

// Namespace returns the name of one of three namespaces.
func (g Generator) Namespace() string { return Pick(g, "shop", "shop", "bank", "ops") }

// Number returns the number of a port, from 80 to 84.
func (g Generator) Number() uint16 { return uint16(80 + g.IntN(5)) }

// PortName returns the name of a port.
func (g Generator) PortName() string { return Pick(g, "http", "dns", "metrics") }

// Protocol returns the protocol of a port.
func (g Generator) Protocol() corev1.Protocol {
	return Pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

// Labels returns the labels of a pod or a namespace.
func (g Generator) Labels() map[string]string {
	labels := map[string]string{}
	for range g.IntN(4) {
		labels[g.key()] = g.value()
	}
	return labels
}

func (g Generator) key() string   { return Pick(g, "app", "tier", "env") }
func (g Generator) value() string { return Pick(g, "a", "b", "c", "") }

// Policy returns a policy of one of the namespaces.
func (g Generator) Policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace(), Name: name}}
	if !g.One(3) {
		p.Spec.PodSelector = *g.selector()
	}
	for range g.IntN(4) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: Some(g, 3, g.peer), Ports: Some(g, 3, g.port)})
	}
	for range g.IntN(4) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: Some(g, 3, g.peer), Ports: Some(g, 3, g.port)})
	}
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	p.Spec.PolicyTypes = Pick(g, nil, []networkingv1.PolicyType{ingress}, []networkingv1.PolicyType{egress}, []networkingv1.PolicyType{egress, ingress})
	return p
}

func (g Generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range g.IntN(3) {
		if g.One(2) {
			s.MatchExpressions = append(s.MatchExpressions, g.expression())
			continue
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		value := g.value()
		if value == "" && g.Simple {
			value = "a"
		}
		s.MatchLabels[g.key()] = value
	}
	return s
}

func (g Generator) expression() metav1.LabelSelectorRequirement {
	e := metav1.LabelSelectorRequirement{Key: g.key()}
	e.Operator = Pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	if e.Operator == metav1.LabelSelectorOpNotIn && g.Simple {
		e.Operator = metav1.LabelSelectorOpIn
	}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = append(Some(g, 2, g.value), g.value())
	}
	return e
}

func (g Generator) peer() networkingv1.NetworkPolicyPeer {
	switch g.IntN(4) {
	case 0:
		return networkingv1.NetworkPolicyPeer{PodSelector: g.selector()}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: g.selector()}
	case 2:
		return networkingv1.NetworkPolicyPeer{PodSelector: g.selector(), NamespaceSelector: g.selector()}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: g.block()}
}

func (g Generator) block() *networkingv1.IPBlock {
	address := Pick(g, g.Addresses...)
	size := address.BitLen()
	prefix := func(bits int) string { return netip.PrefixFrom(address, bits).Masked().String() }
	bits := Pick(g, 0, size-5, size-4, size-3, size-2, size)
	b := &networkingv1.IPBlock{CIDR: prefix(bits)}
	for inside := range Some(g, 2, func() int { return 0 }) {
		if smaller := max(bits, size-5) + 1 + inside; smaller <= size {
			b.Except = append(b.Except, prefix(smaller))
		}
	}
	return b
}

func (g Generator) port() networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{}
	if !g.One(3) {
		protocol := g.Protocol()
		p.Protocol = &protocol
	}
	switch g.IntN(5) {
	case 0:
	case 1, 2:
		name := intstr.FromString(g.PortName())
		p.Port = &name
	case 3:
		first := g.Number()
		number, last := intstr.FromInt32(int32(first)), int32(first)+g.Int32N(4)
		p.Port, p.EndPort = &number, &last
	default:
		number := intstr.FromInt32(int32(g.Number()))
		p.Port = &number
	}
	return p
}

package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// generator makes small random worlds. It has few names, labels, numbers and addresses, so that
// many of them meet.
type generator struct {
	*rand.Rand
	simple bool // every second generator uses no selector that cyclonus misreads
}

func newGenerator(seed uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, 18)), seed%2 == 0}
}

// randomWorld is a World with its policies as Kubernetes has them.
type randomWorld struct {
	policy.World
	sources []*networkingv1.NetworkPolicy
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// some returns up to most values.
func some[T any](g generator, most int, value func() T) []T {
	var all []T
	for range g.IntN(most + 1) {
		all = append(all, value())
	}
	return all
}

func (g generator) one(in int) bool { return g.IntN(in) == 0 }

func (g generator) namespace() string { return pick(g, "shop", "shop", "bank", "ops") }
func (g generator) node() string      { return pick(g, "n1", "n2", "n3") }
func (g generator) key() string       { return pick(g, "app", "tier", "env") }
func (g generator) value() string     { return pick(g, "a", "b", "c", "") }
func (g generator) number() uint16    { return uint16(80 + g.IntN(5)) }
func (g generator) portName() string  { return pick(g, "http", "dns", "metrics") }

func (g generator) protocol() corev1.Protocol {
	return pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (g generator) labels() map[string]string {
	labels := map[string]string{}
	for range g.IntN(4) {
		labels[g.key()] = g.value()
	}
	return labels
}

// world returns a World in which pods have addresses of both families, IPv4 only, or IPv6 only.
func (g generator) world(t testing.TB) randomWorld {
	var w randomWorld
	for _, name := range []string{"shop", "bank", "ops"} {
		w.Namespaces = append(w.Namespaces, policy.Namespace{Name: name, Labels: g.labels()})
	}
	for n, name := range []string{"n1", "n2", "n3"} {
		w.Nodes = append(w.Nodes, policy.Node{Name: name, Addresses: []netip.Addr{address4(n), address6(n)}})
	}
	for n := range 3 + g.IntN(6) {
		w.Pods = append(w.Pods, g.pod(n))
	}
	for n := range g.IntN(9) {
		w.addPolicy(t, g.policy(fmt.Sprintf("p%d", n)))
	}
	return w
}

// addPolicy adds a policy in both forms.
func (w *randomWorld) addPolicy(t testing.TB, p *networkingv1.NetworkPolicy) {
	spec, err := kube.PolicySpec(p)
	require.NoError(t, err)
	w.Policies = append(w.Policies, spec)
	w.sources = append(w.sources, p)
}

// address4 and address6 are addresses of nodes (from 0), pods (from 8) and others (from 24).
func address4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
func address6(n int) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)}) }

func (g generator) pod(n int) policy.Pod {
	p := policy.Pod{
		Namespace: g.namespace(), Name: fmt.Sprintf("pod%d", n), Node: g.node(), Labels: g.labels(),
		HostNetwork: g.one(8), Finished: n > 0 && g.one(12),
		Ports: some(g, 4, func() coe.ContainerPort {
			return coe.ContainerPort{Name: g.portName(), Protocol: lower(g.protocol()), Port: g.number()}
		}),
	}
	if !p.HostNetwork {
		p.Addresses = pick(g, []netip.Addr{address4(8 + n), address6(8 + n)}, []netip.Addr{address4(8 + n)}, []netip.Addr{address6(8 + n)})
	}
	return p
}

func lower(p corev1.Protocol) string {
	return map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp", corev1.ProtocolSCTP: "sctp"}[p]
}

func (g generator) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace(), Name: name}}
	if !g.one(3) {
		p.Spec.PodSelector = *g.selector()
	}
	for range g.IntN(4) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: some(g, 3, g.peer), Ports: some(g, 3, g.port)})
	}
	for range g.IntN(4) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: some(g, 3, g.peer), Ports: some(g, 3, g.port)})
	}
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	p.Spec.PolicyTypes = pick(g, nil, []networkingv1.PolicyType{ingress}, []networkingv1.PolicyType{egress}, []networkingv1.PolicyType{egress, ingress})
	return p
}

func (g generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range g.IntN(3) {
		if g.one(2) {
			s.MatchExpressions = append(s.MatchExpressions, g.expression())
			continue
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		value := g.value()
		if value == "" && g.simple {
			value = "a"
		}
		s.MatchLabels[g.key()] = value
	}
	return s
}

func (g generator) expression() metav1.LabelSelectorRequirement {
	e := metav1.LabelSelectorRequirement{Key: g.key()}
	e.Operator = pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	if e.Operator == metav1.LabelSelectorOpNotIn && g.simple {
		e.Operator = metav1.LabelSelectorOpIn
	}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = append(some(g, 2, g.value), g.value())
	}
	return e
}

func (g generator) peer() networkingv1.NetworkPolicyPeer {
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

func (g generator) block() *networkingv1.IPBlock {
	address, size := address4(g.IntN(32)), 32
	if g.one(2) {
		address, size = address6(g.IntN(32)), 128
	}
	prefix := func(bits int) string { return netip.PrefixFrom(address, bits).Masked().String() }
	bits := pick(g, 0, size-5, size-4, size-3, size-2, size)
	b := &networkingv1.IPBlock{CIDR: prefix(bits)}
	for inside := range some(g, 2, func() int { return 0 }) {
		if smaller := max(bits, size-5) + 1 + inside; smaller <= size {
			b.Except = append(b.Except, prefix(smaller))
		}
	}
	return b
}

func (g generator) port() networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{}
	if !g.one(3) {
		protocol := g.protocol()
		p.Protocol = &protocol
	}
	switch g.IntN(5) {
	case 0:
	case 1, 2:
		name := intstr.FromString(g.portName())
		p.Port = &name
	case 3:
		first := g.number()
		number, last := intstr.FromInt32(int32(first)), int32(first)+g.Int32N(4)
		p.Port, p.EndPort = &number, &last
	default:
		number := intstr.FromInt32(int32(g.number()))
		p.Port = &number
	}
	return p
}

// ends returns the ends of all pods, and of nodes and addresses outside.
func ends(w policy.World, c *policy.Cluster) []policy.End {
	all := c.Pods()
	for _, n := range w.Nodes {
		for _, a := range n.Addresses {
			all = append(all, c.At(a)...)
		}
	}
	for n := 24; n < 32; n++ {
		all = append(all, policy.Outside(address4(n)), policy.Outside(address6(n)))
	}
	return all
}

// question is a question that both ends can be asked.
type question struct {
	from, to policy.End
	port     policy.Port
}

func (g generator) question(all []policy.End) question {
	for {
		q := question{pick(g, all...), pick(g, all...), policy.Port{Protocol: lower(g.protocol()), Number: g.number()}}
		if policy.SameFamily(q.from, q.to) && (q.from.Pod() != nil || q.to.Pod() != nil) {
			return q
		}
	}
}

func (q question) String() string {
	return fmt.Sprintf("%s to %s %s/%d", describe(q.from), describe(q.to), q.port.Protocol, q.port.Number)
}

func describe(e policy.End) string {
	if p := e.Pod(); p != nil {
		return fmt.Sprintf("%s/%s(%s)", p.Namespace, p.Name, e.Addr())
	}
	return fmt.Sprintf("%s(%s)", e.Node(), e.Addr())
}

// shuffled is the same World in another order.
func (g generator) shuffled(t testing.TB, w randomWorld) policy.World {
	mixed := policy.World{
		Namespaces: mix(g, w.Namespaces), Nodes: mix(g, w.Nodes), Pods: mix(g, w.Pods),
	}
	for i := range mixed.Namespaces {
		mixed.Namespaces[i].Labels = maps.Clone(mixed.Namespaces[i].Labels)
	}
	for i := range mixed.Nodes {
		mixed.Nodes[i].Addresses = mix(g, mixed.Nodes[i].Addresses)
	}
	for i := range mixed.Pods {
		mixed.Pods[i].Ports = mix(g, mixed.Pods[i].Ports)
	}
	for _, source := range mix(g, w.sources) {
		spec, err := kube.PolicySpec(g.rewritten(source))
		require.NoError(t, err)
		mixed.Policies = append(mixed.Policies, spec)
	}
	return mixed
}

// rewritten is the same policy with peers, ports, expressions and values in another order.
func (g generator) rewritten(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	p = p.DeepCopy()
	selectors := []*metav1.LabelSelector{&p.Spec.PodSelector}
	peers := func(list []networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
		list = mix(g, list)
		for _, peer := range list {
			if peer.IPBlock != nil {
				peer.IPBlock.Except = mix(g, peer.IPBlock.Except)
			}
			selectors = append(selectors, peer.PodSelector, peer.NamespaceSelector)
		}
		return list
	}
	for i, r := range p.Spec.Ingress {
		p.Spec.Ingress[i].From, p.Spec.Ingress[i].Ports = peers(r.From), mix(g, r.Ports)
	}
	for i, r := range p.Spec.Egress {
		p.Spec.Egress[i].To, p.Spec.Egress[i].Ports = peers(r.To), mix(g, r.Ports)
	}
	for _, s := range selectors {
		if s != nil {
			s.MatchExpressions = mix(g, s.MatchExpressions)
			for i, e := range s.MatchExpressions {
				s.MatchExpressions[i].Values = mix(g, e.Values)
			}
		}
	}
	return p
}

func mix[T any](g generator, list []T) []T {
	list = slices.Clone(list)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

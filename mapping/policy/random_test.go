package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
)

// generator makes small random worlds.
type generator struct{ policytest.Generator }

func newGenerator(seed uint64) generator {
	var addresses []netip.Addr
	for n := range 32 {
		addresses = append(addresses, address4(n), address6(n))
	}
	return generator{policytest.New(seed, addresses...)}
}

// randomWorld is a World with its policies as Kubernetes has them.
type randomWorld struct {
	policy.World
	sources []*networkingv1.NetworkPolicy
}

func (g generator) node() string { return policytest.Pick(g.Generator, "n1", "n2", "n3") }

// world returns a World in which pods have addresses of both families, IPv4 only, or IPv6 only.
func (g generator) world(t testing.TB) randomWorld {
	var w randomWorld
	for _, name := range []string{"shop", "bank", "ops"} {
		w.Namespaces = append(w.Namespaces, policy.Namespace{Name: name, Labels: coe.NewLabels(g.Labels())})
	}
	for n, name := range []string{"n1", "n2", "n3"} {
		w.Nodes = append(w.Nodes, policy.Node{Name: name, Addresses: []netip.Addr{address4(n), address6(n)}})
	}
	for n := range 3 + g.IntN(6) {
		w.Pods = append(w.Pods, g.pod(n))
	}
	for n := range g.IntN(9) {
		w.addPolicy(t, g.Policy(fmt.Sprintf("p%d", n)))
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
		Namespace: g.Namespace(), Name: fmt.Sprintf("pod%d", n), Node: g.node(), Labels: coe.NewLabels(g.Labels()),
		HostNetwork: g.One(8), Finished: n > 0 && g.One(12),
		Ports: policytest.Some(g.Generator, 4, func() coe.ContainerPort {
			return coe.ContainerPort{Name: g.PortName(), Protocol: lower(g.Protocol()), Port: g.Number()}
		}),
	}
	if !p.HostNetwork {
		p.Addresses = policytest.Pick(g.Generator, []netip.Addr{address4(8 + n), address6(8 + n)}, []netip.Addr{address4(8 + n)}, []netip.Addr{address6(8 + n)})
	}
	return p
}

func lower(p corev1.Protocol) string {
	return map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp", corev1.ProtocolSCTP: "sctp"}[p]
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
		q := question{policytest.Pick(g.Generator, all...), policytest.Pick(g.Generator, all...), policy.Port{Protocol: lower(g.Protocol()), Number: g.Number()}}
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

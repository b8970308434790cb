package policy_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

var sets = flag.Int("sets", 4000, "number of random sets of policies that TestAgreesWithCyclonus compares")

const (
	shards    = 8
	questions = 40 // of each set
)

// TestAgreesWithCyclonus compares with an independent evaluator, the matcher of cyclonus, on
// random sets of policies, pods and labels. The matcher knows neither nodes nor a pod's
// connections to itself, so the test adds these.
//
// The matcher reads two selectors in another way than Kubernetes does (see
// TestCyclonusMisreadsSelectors). So it judges each set twice: as it is, unless the set has such
// a selector, and with selectors that it reads as Kubernetes does.
func TestAgreesWithCyclonus(t *testing.T) {
	var allowed, asked, compared atomic.Int64
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for set := shard; set < *sets; set += shards {
					g := newGenerator(uint64(set))
					w := g.world(t)
					plain, explicit := newJudge(w, w.sources, false), newJudge(w.explicit())
					c := policy.Compile(w.World)
					all := ends(w.World, c)
					for range questions {
						q := g.question(all)
						got := c.Allowed(q.from, q.to, q.port)
						require.Equal(t, explicit.allowed(q), got, "set %d: %s", set, q)
						if !w.isMisread() {
							require.Equal(t, plain.allowed(q), got, "set %d as it is: %s", set, q)
							compared.Add(1)
						}
						asked.Add(1)
						if got {
							allowed.Add(1)
						}
					}
				}
			})
		}
	})
	share := float64(allowed.Load()) / float64(asked.Load())
	t.Logf("%d questions, %.2f allowed, %d compared with sets as they are", asked.Load(), share, compared.Load())
	require.InDelta(t, 0.5, share, 0.4, "both answers must be common")
	require.Greater(t, compared.Load(), asked.Load()/20)
}

// judge asks the matcher of cyclonus.
type judge struct {
	policies *matcher.Policy
	labels   map[string]map[string]string // of namespaces
	missing  bool                         // labels of pods that are missing become explicit
}

func newJudge(w randomWorld, sources []*networkingv1.NetworkPolicy, missing bool) judge {
	j := judge{labels: map[string]map[string]string{}, missing: missing}
	for _, n := range w.Namespaces {
		j.labels[n.Name] = j.shown(maps.Collect(n.Labels.All()))
	}
	var complete []*networkingv1.NetworkPolicy
	for _, p := range sources {
		p = p.DeepCopy()
		if len(p.Spec.PolicyTypes) == 0 { // an API server sets it; the matcher requires it
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(p.Spec.Egress) > 0 {
				p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
		complete = append(complete, p)
	}
	j.policies = matcher.BuildNetworkPolicies(false, complete)
	return j
}

// allowed asks for every name that the port has at the destination, since the matcher knows one
// name of a port.
func (j judge) allowed(q question) bool {
	names := []string{""}
	if p := q.to.Pod(); p != nil && !p.HostNetwork {
		for _, port := range p.Ports {
			if port.Port == q.port.Number && port.Protocol == q.port.Protocol {
				names = append(names, port.Name)
			}
		}
	}
	egress, ingress := exempt(q.from, q.to), exempt(q.to, q.from)
	for _, name := range names {
		result := j.policies.IsTrafficAllowed(&matcher.Traffic{
			Source: j.peer(q.from), Destination: j.peer(q.to),
			ResolvedPort: int(q.port.Number), ResolvedPortName: name, Protocol: upper(q.port.Protocol),
		})
		egress, ingress = egress || result.Egress.IsAllowed(), ingress || result.Ingress.IsAllowed()
	}
	return egress && ingress
}

// exempt reports whether a connection of a pod is always allowed: with itself, or with its node.
func exempt(self, peer policy.End) bool {
	p, other := self.Pod(), peer.Pod()
	if p == nil || p.HostNetwork {
		return false // no policy selects it
	}
	return p == other || (other == nil || other.HostNetwork) && p.Node != "" && peer.Node() == p.Node
}

func (j judge) peer(e policy.End) *matcher.TrafficPeer {
	peer := &matcher.TrafficPeer{IP: e.Addr().String()}
	if p := e.Pod(); p != nil && !p.HostNetwork {
		peer.Internal = &matcher.InternalPeer{PodLabels: j.shown(maps.Collect(p.Labels.All())), NamespaceLabels: j.labels[p.Namespace], Namespace: p.Namespace}
	}
	return peer
}

func upper(protocol string) corev1.Protocol {
	return map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP, "sctp": corev1.ProtocolSCTP}[protocol]
}

// isMisread reports whether a set has a selector that the matcher reads in another way than
// Kubernetes does.
func (w randomWorld) isMisread() bool {
	misread := false
	eachSelector(w.sources, func(s *metav1.LabelSelector) {
		for _, value := range s.MatchLabels {
			misread = misread || value == ""
		}
		for _, e := range s.MatchExpressions {
			misread = misread || e.Operator == metav1.LabelSelectorOpNotIn
		}
	})
	return misread
}

// missing is the value of a label that a pod or a namespace does not have.
const missing = "missing"

// explicit is the set with selectors that mean the same where each missing label has the value
// missing: Exists becomes NotIn, and DoesNotExist becomes In.
func (w randomWorld) explicit() (randomWorld, []*networkingv1.NetworkPolicy, bool) {
	var sources []*networkingv1.NetworkPolicy
	for _, p := range w.sources {
		sources = append(sources, p.DeepCopy())
	}
	eachSelector(sources, func(s *metav1.LabelSelector) {
		for i, e := range s.MatchExpressions {
			switch e.Operator {
			case metav1.LabelSelectorOpExists:
				s.MatchExpressions[i] = metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{missing}}
			case metav1.LabelSelectorOpDoesNotExist:
				s.MatchExpressions[i] = metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpIn, Values: []string{missing}}
			}
		}
	})
	return w, sources, true
}

// shown returns labels as the judge shows them to the matcher.
func (j judge) shown(labels map[string]string) map[string]string {
	if !j.missing {
		return labels
	}
	all := map[string]string{"app": missing, "tier": missing, "env": missing}
	maps.Copy(all, labels)
	return all
}

func eachSelector(policies []*networkingv1.NetworkPolicy, do func(*metav1.LabelSelector)) {
	for _, p := range policies {
		var peers []networkingv1.NetworkPolicyPeer
		for _, r := range p.Spec.Ingress {
			peers = append(peers, r.From...)
		}
		for _, r := range p.Spec.Egress {
			peers = append(peers, r.To...)
		}
		do(&p.Spec.PodSelector)
		for _, peer := range peers {
			if peer.PodSelector != nil {
				do(peer.PodSelector)
			}
			if peer.NamespaceSelector != nil {
				do(peer.NamespaceSelector)
			}
		}
	}
}

// TestCyclonusMisreadsSelectors shows the two errors of the matcher. The documentation of
// Kubernetes, "Labels and Selectors", says that NotIn also selects what does not have the label,
// and that an equality requirement selects only what has the label.
func TestCyclonusMisreadsSelectors(t *testing.T) {
	for name, s := range map[string]struct {
		selector metav1.LabelSelector
		selects  bool // the pod without the label
	}{
		"NotIn without the label": {
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}}, true,
		},
		"empty value without the label": {metav1.LabelSelector{MatchLabels: map[string]string{"app": ""}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			kubernetes, err := metav1.LabelSelectorAsSelector(&s.selector)
			require.NoError(t, err)
			require.Equal(t, s.selects, kubernetes.Matches(labels.Set{}))

			var w randomWorld
			w.Pods = []policy.Pod{{Namespace: "shop", Name: "web", Addresses: []netip.Addr{address4(8)}}}
			w.addPolicy(t, &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: s.selector},
			})
			c := policy.Compile(w.World)
			pod, _ := c.Pod("shop", "web")
			q := question{policy.Outside(address4(30)), pod[0], policy.Port{Protocol: "tcp", Number: 80}}
			require.Equal(t, !s.selects, c.Allowed(q.from, q.to, q.port))
			require.Equal(t, s.selects, newJudge(w, w.sources, false).allowed(q), "the matcher is right now: remove the case")
			require.Equal(t, !s.selects, newJudge(w.explicit()).allowed(q))
		})
	}
}

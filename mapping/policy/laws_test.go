package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/mapping/policy/policytest"
)

// seeds are the inputs of a law that go test runs.
const seeds = 400

func addSeeds(f *testing.F) {
	for seed := range uint64(seeds) {
		f.Add(seed)
	}
}

// outcome is a verdict without pointers.
type outcome struct {
	allowed         bool
	egress, ingress sideOutcome
}

type sideOutcome struct {
	reason    policy.Reason
	policy    string
	rule      int
	isolating string
}

func outcomeOf(v policy.Verdict) outcome {
	return outcome{v.Allowed, sideOf(v.Egress), sideOf(v.Ingress)}
}

func sideOf(s policy.Side) sideOutcome {
	out := sideOutcome{reason: s.Reason, rule: s.Rule}
	if s.Policy != nil {
		out.policy = s.Policy.Namespace + "/" + s.Policy.Name
	}
	for _, p := range s.Isolating {
		out.isolating += " " + p.Name
	}
	return out
}

// same returns the end of another Cluster of the same World.
func same(t *testing.T, c *policy.Cluster, e policy.End) policy.End {
	p := e.Pod()
	if p == nil {
		return c.At(e.Addr())[0]
	}
	ends, found := c.Pod(p.Namespace, p.Name)
	require.True(t, found)
	for _, other := range ends {
		if other.Addr() == e.Addr() {
			return other
		}
	}
	t.Fatalf("%s has no address %s", p.Name, e.Addr())
	return policy.End{}
}

// FuzzOrder: the order of namespaces, nodes, pods, policies, peers, ports, expressions and values
// changes neither an answer nor its explanation.
func FuzzOrder(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := newGenerator(seed)
		w := g.world(t)
		c, mixed := policy.Compile(w.World), policy.Compile(g.shuffled(t, w))
		all := ends(w.World, c)
		for range 20 {
			q := g.question(all)
			v := c.Judge(q.from, q.to, q.port)
			require.Equal(t, outcomeOf(v), outcomeOf(mixed.Judge(same(t, mixed, q.from), same(t, mixed, q.to), q.port)), q)
			require.Equal(t, v.Allowed, c.Allowed(q.from, q.to, q.port))
		}
	})
}

// FuzzAddition: a policy that is added opens only what it allows itself, and closes only paths of
// pods that it isolates.
func FuzzAddition(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := newGenerator(seed)
		w := g.world(t)
		before := policy.Compile(w.World)
		w.addPolicy(t, g.Policy("added"))
		after := policy.Compile(w.World)
		all := ends(w.World, before)
		for range 40 {
			q := g.question(all)
			old := before.Judge(q.from, q.to, q.port)
			now := after.Judge(same(t, after, q.from), same(t, after, q.to), q.port)
			requireAddition(t, old.Egress, now.Egress, q)
			requireAddition(t, old.Ingress, now.Ingress, q)
		}
	})
}

func requireAddition(t *testing.T, old, now policy.Side, q question) {
	opened := old.Reason == policy.Denied && now.Reason != policy.Denied
	closed := old.Reason != policy.Denied && now.Reason == policy.Denied
	if opened {
		require.Equal(t, policy.ByRule, now.Reason, q)
		require.Equal(t, "added", now.Policy.Name, q)
	}
	if closed {
		require.Equal(t, policy.NotIsolated, old.Reason, q)
		require.Equal(t, " added", sideOf(now).isolating, q)
	}
}

// FuzzReach: the open ports of a path are the ports that are allowed, in maximal ranges, and every
// address of a block has the same.
func FuzzReach(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := newGenerator(seed)
		w := g.world(t)
		c := policy.Compile(w.World)
		self, all := policytest.Pick(g.Generator, c.Pods()...), ends(w.World, c)
		for _, d := range []coe.Direction{coe.Ingress, coe.Egress} {
			paths := c.Reach(self, d)
			requireMaximal(t, paths)
			for _, peer := range all {
				if !policy.SameFamily(self, peer) || peer.Pod() != nil && peer.Pod().HostNetwork {
					continue
				}
				from, to := self, peer
				if d == coe.Ingress {
					from, to = peer, self
				}
				for number := uint16(79); number < 90; number++ {
					for _, protocol := range []string{"tcp", "udp", "sctp"} {
						port := policy.Port{Protocol: protocol, Number: number}
						require.Equal(t, c.Allowed(from, to, port), isOpen(paths, peer, port), "%s of %s: %s %v", d, describe(self), describe(peer), port)
					}
				}
			}
		}
	})
}

// requireMaximal fails if two ranges of a path are one, or not sorted.
func requireMaximal(t *testing.T, paths []policy.Path) {
	for _, p := range paths {
		for i := 1; i < len(p.Ports); i++ {
			if one, next := p.Ports[i-1], p.Ports[i]; one.Protocol == next.Protocol {
				require.Less(t, int(one.Last)+1, int(next.First))
			}
		}
	}
}

// isOpen reports whether a path has a peer and a port.
func isOpen(paths []policy.Path, peer policy.End, port policy.Port) bool {
	isOutside := peer.Pod() == nil && peer.Node() == ""
	for _, p := range paths {
		if p.Block == nil && p.Peer != peer || p.Block != nil && (!isOutside || !p.Block.Contains(peer.Addr())) {
			continue
		}
		for _, r := range p.Ports {
			if r.Protocol == port.Protocol && r.First <= port.Number && port.Number <= r.Last {
				return true
			}
		}
	}
	return false
}

// FuzzSelector: a selector selects the same labels as in Kubernetes.
func FuzzSelector(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := newGenerator(seed)
		p := g.Policy("p")
		spec, err := kube.PolicySpec(p)
		require.NoError(t, err)
		kubernetes, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		require.NoError(t, err)
		text, err := labels.Parse(spec.Pods.String()) // as kubectl does
		require.NoError(t, err)
		for range 20 {
			have := g.Labels()
			want := kubernetes.Matches(labels.Set(have))
			require.Equal(t, want, spec.Pods.Matches(coe.NewLabels(have)), "%s of %v", &p.Spec.PodSelector, have)
			require.Equal(t, want, text.Matches(labels.Set(have)), "%s as text of %v", &p.Spec.PodSelector, have)
		}
	})
}

package state_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

func label(key, value string) coe.Labels { return coe.NewLabels(map[string]string{key: value}) }

func selects(key, value string) *coe.Selector {
	return &coe.Selector{Requirements: []coe.Requirement{{Key: key, Operator: coe.In, Values: []string{value}}}}
}

// policyOf returns a policy of a namespace that allows ingress by some rules.
func policyOf(uid, namespace string, rules ...coe.PolicyRule) *coe.PolicySpec {
	return &coe.PolicySpec{
		Policy:  coe.Policy{UID: uid, Namespace: namespace, Name: "name-" + uid, Kind: coe.NetworkPolicy},
		Ingress: coe.PolicySide{Isolates: true, Rules: rules},
	}
}

// profileOf returns an access list that isolates the pods that name it.
func profileOf(uid, name string) *coe.PolicySpec {
	p := coe.UnknownProfile(name)
	p.UID = uid
	return p
}

func tcp(name string, number uint16) coe.ContainerPort {
	return coe.ContainerPort{Name: name, Protocol: "tcp", Port: number}
}

// Each change replaces the PolicySet or not, and marks the scopes that it may concern.
func TestPolicySet(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	last := s.Cluster().PolicySet
	require.NotNil(t, last)
	// step makes a change. It returns whether the PolicySet was replaced, and what was marked.
	step := func(change func(*state.Tx)) (replaced bool, marked state.Changed) {
		s.Update(change)
		now := s.View("web").PolicySet
		require.Same(t, now, s.Cluster().PolicySet)
		require.Equal(t, now.Complete, s.PoliciesComplete())
		require.Same(t, now, s.View("no such namespace").PolicySet)
		replaced, last = now != last, now
		all := r.take()
		require.LessOrEqual(t, len(all), 1)
		return replaced, slices.Concat(all, []state.Changed{{}})[0]
	}
	put := func(p *coe.Pod) func(*state.Tx) { return func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, p) } }
	relabel := func(name string, labels coe.Labels) func(*state.Tx) {
		return func(tx *state.Tx) { tx.PutNamespace(coe.Kubernetes, &coe.Namespace{Name: name, Labels: labels}) }
	}
	pod := coe.Pod{UID: "p1", Namespace: "web", Labels: label("app", "web"), Ports: coe.NewContainerPorts(tcp("http", 80))}

	for _, c := range []struct {
		name     string
		change   func(*state.Tx)
		replaced bool
		marked   state.Changed
	}{
		{"labels of an empty namespace", relabel("web", label("tier", "front")), true, state.Changed{Cluster: true}},
		{"the same labels", relabel("web", label("tier", "front")), false, state.Changed{}},
		{"another annotation for the log", func(tx *state.Tx) {
			tx.PutNamespace(coe.Kubernetes, &coe.Namespace{Name: "web", Labels: label("tier", "front"), PolicyLog: coe.LogDropped})
		}, false, state.Changed{Namespaces: []string{"web"}}},
		{"the annotation is gone", relabel("web", label("tier", "front")), false, state.Changed{Namespaces: []string{"web"}}},
		{"a pod", put(&pod), false, state.Changed{Namespaces: []string{"web"}}},
		{"another label of the pod", func(tx *state.Tx) {
			pod := pod
			pod.Labels = label("app", "shop")
			tx.PutPod(coe.Kubernetes, &pod)
		}, false, state.Changed{Namespaces: []string{"web"}}},
		{"an access list that nobody names", func(tx *state.Tx) { tx.PutPolicy(coe.Kubernetes, profileOf("acl", "locked")) }, true, state.Changed{Cluster: true}},
		{"a pod names it", func(tx *state.Tx) {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p3", Namespace: "bank", Labels: coe.Labels{}.WithProfiles("locked")})
		}, true, state.Changed{Namespaces: []string{"bank"}, Cluster: true}},
		{"the pod reports another state", func(tx *state.Tx) {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p3", Namespace: "bank", Labels: coe.Labels{}.WithProfiles("locked"), NodeName: "n1"})
		}, false, state.Changed{Namespaces: []string{"bank"}}},
		{"a second pod names it", func(tx *state.Tx) {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "p4", Namespace: "bank", Labels: label("app", "web").WithProfiles("locked")})
		}, false, state.Changed{Namespaces: []string{"bank"}}},
		{"another namespace names it", relabel("web", label("tier", "front").WithProfiles("locked")), true, state.Changed{Namespaces: []string{"web"}, Cluster: true}},
		{"an access list with its pods as peers", func(tx *state.Tx) {
			other := profileOf("acl2", "other")
			other.Ingress.Rules = []coe.PolicyRule{{Peers: []coe.PolicyPeer{{Namespaces: &coe.Selector{}, Pods: coe.ProfileSelector("locked")}}}}
			tx.PutPolicy(coe.Kubernetes, other)
		}, true, state.Changed{Namespaces: []string{"bank", "web"}, Cluster: true}},
		{"the access list changes", func(tx *state.Tx) { tx.PutPolicy(coe.Kubernetes, profileOf("acl", "locked")) },
			true, state.Changed{Namespaces: []string{"bank", "web"}, Cluster: true}},
		{"the pods and the list of peers are gone", func(tx *state.Tx) {
			tx.DeletePod(coe.Kubernetes, "p3")
			tx.DeletePod(coe.Kubernetes, "p4")
			tx.DeletePolicy(coe.Kubernetes, "acl2")
			tx.PutNamespace(coe.Kubernetes, &coe.Namespace{Name: "web", Labels: label("tier", "front")})
		}, true, state.Changed{Namespaces: []string{"bank", "web"}, Cluster: true}},
		{"a policy with a port name, and its own pods as peers", func(tx *state.Tx) {
			tx.PutPolicy(coe.Kubernetes, policyOf("n1", "data", coe.PolicyRule{
				Peers: []coe.PolicyPeer{{}}, Ports: []coe.PolicyPort{{Protocol: "tcp", Name: "http"}},
			}))
		}, true, state.Changed{Namespaces: []string{"data"}, Cluster: true}},
		{"a policy with pods of namespaces as peers", func(tx *state.Tx) {
			tx.PutPolicy(coe.Kubernetes, policyOf("n2", "data", coe.PolicyRule{Peers: []coe.PolicyPeer{{Namespaces: selects("tier", "front")}}}))
		}, true, state.Changed{Namespaces: []string{"data", "web"}, Cluster: true}},
		{"the same policy without peers", func(tx *state.Tx) {
			tx.PutPolicy(coe.Kubernetes, policyOf("n2", "data"))
		}, true, state.Changed{Namespaces: []string{"data", "web"}, Cluster: true}},
		{"a second pod with the number", put(&coe.Pod{UID: "p2", Namespace: "shop", Ports: pod.Ports}), false, state.Changed{Namespaces: []string{"shop"}}},
		{"a pod of the policy's namespace with the number", put(&coe.Pod{UID: "p5", Namespace: "data", Ports: pod.Ports}), true, state.Changed{Namespaces: []string{"data"}, Cluster: true}},
		{"a second one", put(&coe.Pod{UID: "p6", Namespace: "data", Ports: pod.Ports}), false, state.Changed{Namespaces: []string{"data"}}},
		{"another number", put(&coe.Pod{UID: "p2", Namespace: "shop", Ports: coe.NewContainerPorts(tcp("http", 8080), tcp("other", 1))}),
			true, state.Changed{Namespaces: []string{"data", "shop"}, Cluster: true}},
		{"a number of another name", put(&coe.Pod{UID: "p2", Namespace: "shop", Ports: coe.NewContainerPorts(tcp("http", 8080), tcp("other", 2))}),
			false, state.Changed{Namespaces: []string{"shop"}}},
		{"the pod finishes", put(&coe.Pod{UID: "p2", Namespace: "shop", Ports: coe.NewContainerPorts(tcp("http", 8080)), NoNetwork: true}),
			true, state.Changed{Namespaces: []string{"data", "shop"}, Cluster: true}},
		{"new labels", relabel("web", label("tier", "back")), true, state.Changed{Namespaces: []string{"web"}, Cluster: true}},
		{"the namespace is deleted", func(tx *state.Tx) { tx.DeleteNamespace(coe.Kubernetes, "web") }, true, state.Changed{Namespaces: []string{"web"}, Cluster: true}},
		{"a policy is deleted", func(tx *state.Tx) { tx.DeletePolicy(coe.Kubernetes, "n1") }, true, state.Changed{Namespaces: []string{"data"}, Cluster: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			replaced, marked := step(c.change)
			require.Equal(t, c.replaced, replaced)
			require.Equal(t, c.marked, marked)
		})
	}
}

func TestPolicySetComplete(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.RESTCONF, coe.Kubernetes)
	complete := func() bool { return s.Cluster().PolicySet.Complete }
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "u1", Namespace: "a"})
		tx.SetPoliciesIncomplete(coe.Kubernetes)
		tx.SetComplete(coe.RESTCONF)
	})
	require.False(t, complete())
	s.Update(func(tx *state.Tx) { tx.SetComplete(coe.Kubernetes) })
	require.False(t, complete(), "policies were not reported")
	require.True(t, s.Complete())
	r.take()
	s.Update(func(tx *state.Tx) { tx.SetPoliciesComplete(coe.Kubernetes) })
	require.True(t, complete())
	require.Equal(t, []state.Changed{{Namespaces: []string{"a"}, Cluster: true}}, r.take())
	s.Update(func(tx *state.Tx) { tx.SetPoliciesComplete(coe.Kubernetes) })
	require.Empty(t, r.take(), "once")
	s.Update(func(tx *state.Tx) { tx.SetIncomplete(coe.Kubernetes) })
	require.True(t, complete(), "something else was not reported")
	s.Update(func(tx *state.Tx) { tx.SetIncomplete(coe.RESTCONF) })
	require.False(t, complete(), "policies are not reported apart")
	s.Update(func(tx *state.Tx) { tx.SetComplete(coe.RESTCONF) })
	require.True(t, complete())
}

// world is a random cluster, and the Store that follows it.
type world struct {
	*rand.Rand
	store      *state.Store
	pods       map[string]*coe.Pod
	policies   map[string]*coe.PolicySpec
	namespaces map[string]coe.Labels
}

func (w *world) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w *world) ports() coe.ContainerPorts {
	var ports []coe.ContainerPort
	for range w.IntN(3) {
		ports = append(ports, tcp(w.pick("http", "sql", "dns"), uint16(1+w.IntN(3))))
	}
	return coe.NewContainerPorts(ports...)
}

func (w *world) policy() *coe.PolicySpec {
	var rules []coe.PolicyRule
	for range w.IntN(3) {
		var rule coe.PolicyRule
		for range w.IntN(3) {
			peer := coe.PolicyPeer{Pods: *selects("app", w.pick("x", "y"))}
			if w.IntN(2) == 0 {
				peer.Namespaces = selects("tier", w.pick("front", "back"))
				if w.IntN(2) == 0 {
					peer.Namespaces = selects("kubernetes.io/metadata.name", w.pick("a", "b", "c"))
				}
			}
			rule.Peers = append(rule.Peers, peer)
		}
		for range w.IntN(2) {
			rule.Ports = append(rule.Ports, coe.PolicyPort{Protocol: "tcp", Name: w.pick("", "http", "sql", "dns")})
		}
		rules = append(rules, rule)
	}
	p := policyOf(fmt.Sprint("n", w.IntN(6)), w.pick("a", "b", "c"), rules...)
	p.Name = w.pick("same", "other")
	if w.IntN(2) == 0 {
		p.Ingress, p.Egress = p.Egress, p.Ingress
	}
	return p
}

// change makes a random change in the Store and in the world.
func (w *world) change(tx *state.Tx) {
	switch w.IntN(7) {
	case 0, 1:
		p := &coe.Pod{UID: fmt.Sprint("p", w.IntN(8)), Namespace: w.pick("a", "b", "c"), NoNetwork: w.IntN(4) == 0, Ports: w.ports()}
		if !p.NoNetwork {
			p.Labels = w.withProfile(coe.Labels{})
		}
		w.pods[p.UID] = p
		tx.PutPod(coe.Kubernetes, p)
	case 2:
		uid := fmt.Sprint("p", w.IntN(8))
		delete(w.pods, uid)
		tx.DeletePod(coe.Kubernetes, uid)
	case 3:
		p := w.policy()
		w.policies[p.UID] = p
		tx.PutPolicy(coe.Kubernetes, p)
	case 4:
		uid := fmt.Sprint("n", w.IntN(6))
		delete(w.policies, uid)
		tx.DeletePolicy(coe.Kubernetes, uid)
	case 5:
		name := w.pick("a", "b", "c")
		if w.IntN(3) == 0 {
			delete(w.namespaces, name)
			tx.DeleteNamespace(coe.Kubernetes, name)
			return
		}
		w.namespaces[name] = w.withProfile(label("tier", w.pick("front", "back")))
		tx.PutNamespace(coe.Kubernetes, &coe.Namespace{Name: name, Labels: w.namespaces[name]})
	case 6:
		uid := fmt.Sprint("l", w.IntN(4))
		if w.IntN(3) == 0 {
			delete(w.policies, uid)
			tx.DeletePolicy(coe.Kubernetes, uid)
			return
		}
		p := profileOf(uid, w.pick("x", "y", "z"))
		if w.IntN(2) == 0 {
			p.Ingress.Rules = []coe.PolicyRule{{Peers: []coe.PolicyPeer{{Namespaces: &coe.Selector{}, Pods: coe.ProfileSelector(w.pick("x", "y", "z"))}}}}
		}
		w.policies[uid] = p
		tx.PutPolicy(coe.Kubernetes, p)
	}
}

// withProfile sometimes adds a security profile to labels.
func (w *world) withProfile(labels coe.Labels) coe.Labels {
	return labels.WithProfiles(w.pick("", "", "x", "y"))
}

// naming returns the namespaces that name each security profile, themselves or with a pod.
func (w *world) naming() map[string][]string {
	namespaces := map[string]map[string]bool{}
	add := func(namespace string, labels coe.Labels) {
		for name := range labels.Profiles() {
			if namespaces[name] == nil {
				namespaces[name] = map[string]bool{}
			}
			namespaces[name][namespace] = true
		}
	}
	for name, labels := range w.namespaces {
		add(name, labels)
	}
	for _, p := range w.pods {
		add(p.Namespace, p.Labels)
	}
	all := map[string][]string{}
	for name, of := range namespaces {
		all[name] = slices.Sorted(maps.Keys(of))
	}
	return all
}

// want returns the PolicySet of the world, computed from its objects alone.
func (w *world) want() *coe.PolicySet {
	set := &coe.PolicySet{
		Namespaces: maps.Clone(w.namespaces), NamedPorts: map[coe.NamedPort][]uint16{}, Profiles: w.naming(), Unknown: map[string]bool{},
	}
	policies := slices.Collect(maps.Values(w.policies))
	for name := range set.Profiles {
		if !slices.ContainsFunc(policies, func(p *coe.PolicySpec) bool { return p.Pods.Profile() == name }) {
			set.Unknown[name] = true
			policies = append(policies, coe.UnknownProfile(name))
		}
	}
	set.Policies = slices.SortedFunc(slices.Values(policies), func(a, b *coe.PolicySpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for name := range portNames(set.Policies) {
		for _, p := range w.pods {
			for port := range p.Ports.All() {
				if port.Name == name && !p.NoNetwork {
					key := coe.NamedPort{Name: name, Protocol: "tcp"}
					set.NamedPorts[key] = append(set.NamedPorts[key], port.Port)
					isOther := func(policy *coe.PolicySpec) bool { return policy.Namespace != p.Namespace }
					if portNames(slices.DeleteFunc(slices.Clone(set.Policies), isOther))[name] {
						key.Namespace = p.Namespace
						set.NamedPorts[key] = append(set.NamedPorts[key], port.Port)
					}
				}
			}
		}
	}
	for name, numbers := range set.NamedPorts {
		slices.Sort(numbers)
		set.NamedPorts[name] = slices.Compact(numbers)
	}
	return set
}

func portNames(policies []*coe.PolicySpec) map[string]bool {
	names := map[string]bool{}
	for _, p := range policies {
		for _, rule := range slices.Concat(p.Ingress.Rules, p.Egress.Rules) {
			for _, port := range rule.Ports {
				names[port.Name] = true
			}
		}
	}
	delete(names, "")
	return names
}

// concerns returns what the mapping of a namespace needs of a PolicySet: its own policies with the
// numbers of their named ports, and the peers that may select its pods.
func (w *world) concerns(set *coe.PolicySet, namespace string) []any {
	var all []any
	var own []*coe.PolicySpec
	hasPods := slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(p *coe.Pod) bool { return p.Namespace == namespace })
	for _, p := range set.Policies {
		if p.Namespace == namespace || slices.Contains(set.Profiles[p.Pods.Profile()], namespace) {
			own = append(own, p)
		}
		for _, rule := range slices.Concat(p.Ingress.Rules, p.Egress.Rules) {
			for _, peer := range rule.Peers {
				profile := peer.Pods.Profile()
				if profile != "" && !slices.Contains(set.Profiles[profile], namespace) {
					continue
				}
				if hasPods && peer.Namespaces != nil && peer.Namespaces.Matches(set.LabelsOf(namespace)) {
					all = append(all, p, peer)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(portNames(own))) {
		for _, of := range []string{"", namespace} {
			all = append(all, set.NamedPorts[coe.NamedPort{Name: name, Protocol: "tcp", Namespace: of}])
		}
	}
	return append(all, own)
}

// After random changes the PolicySet is what the objects say, and each namespace that it concerns
// in another way is marked.
func TestPolicySetFollows(t *testing.T) {
	for seed := range uint64(20) {
		var r recorder
		w := &world{
			Rand: rand.New(rand.NewPCG(seed, 0)), store: state.NewStore(r.changed, coe.Kubernetes),
			pods: map[string]*coe.Pod{}, policies: map[string]*coe.PolicySpec{}, namespaces: map[string]coe.Labels{},
		}
		for range 200 {
			before := map[string][]any{}
			set := w.store.Cluster().PolicySet
			for _, ns := range []string{"a", "b", "c"} {
				before[ns] = w.concerns(set, ns)
			}
			w.store.Update(func(tx *state.Tx) {
				for range 1 + w.IntN(2) {
					w.change(tx)
				}
			})
			now := w.store.Cluster().PolicySet
			require.Equal(t, w.want(), now)
			marked := map[string]bool{}
			for _, c := range r.take() {
				for _, ns := range c.Namespaces {
					marked[ns] = true
				}
				require.True(t, c.Cluster || set == now, "the cluster is marked")
			}
			for ns, concerned := range before {
				if !marked[ns] {
					require.Equal(t, concerned, w.concerns(now, ns), "namespace %s is not marked", ns)
				}
			}
		}
	}
}

package kube

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// story is the sequence of an object's versions, of which some were delivered.
type story struct {
	versions []object
	told     int
	ends     bool // the object is deleted after the last
}

// there returns the delivered version; nil if the object does not exist.
func (s *story) there() object {
	if s.told == 0 || s.told > len(s.versions) {
		return nil
	}
	return s.versions[s.told-1]
}

// chapters returns the number of events of the story.
func (s *story) chapters() int {
	if s.ends {
		return len(s.versions) + 1
	}
	return len(s.versions)
}

// author generates stories.
type author struct {
	*rand.Rand
	uids int
}

func (a *author) meta(kind, name, namespace string) metav1.ObjectMeta {
	a.uids++
	return metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("%s-%03d", kind, a.uids)), Name: name, Namespace: namespace}
}

func (a *author) pick(of ...string) string { return of[a.IntN(len(of))] }

// story generates a story with up to four versions.
func (a *author) story(version func() object) *story {
	s := &story{ends: a.IntN(2) == 0}
	for i := range 1 + a.IntN(4) {
		o := version()
		o.SetResourceVersion(fmt.Sprint(i))
		s.versions = append(s.versions, o)
	}
	return s
}

func (a *author) pods() *story {
	meta := a.meta("pod", a.pick("p", "q", "r"), a.pick("a", "b"))
	return a.story(func() object {
		meta.Labels = map[string]string{"app": a.pick("x", "y")}
		return &corev1.Pod{
			ObjectMeta: meta,
			Spec: corev1.PodSpec{NodeName: a.pick("", "m", "n"), HostNetwork: a.IntN(8) == 0, Containers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80 + a.Int32N(2)}}},
			}},
			Status: corev1.PodStatus{
				Phase: corev1.PodPhase(a.pick("", "Running", "Failed")), HostIP: a.pick("", "192.0.2.1", "192.0.2.9"),
				PodIP: a.pick("", "10.0.0.1", "10.0.0.2"), Message: a.pick("", "does not matter"),
			},
		}
	})
}

func (a *author) nodes() *story {
	meta := a.meta("node", a.pick("m", "n"), "")
	return a.story(func() object {
		n := &corev1.Node{ObjectMeta: meta}
		if addr := a.pick("", "192.0.2.1", "192.0.2.2"); addr != "" {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		}
		return n
	})
}

func (a *author) namespaces(name string, ends bool) *story {
	meta := a.meta("namespace", name, "")
	s := a.story(func() object {
		meta.Labels = map[string]string{"tier": a.pick("front", "back")}
		return &corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: corev1.NamespacePhase(a.pick("Active", "Terminating"))}}
	})
	s.ends = ends
	return s
}

func (a *author) services() *story {
	meta := a.meta("service", a.pick("s", "t"), a.pick("a", "b"))
	return a.story(func() object {
		return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceType(a.pick("ClusterIP", "ExternalName")), ClusterIP: a.pick("None", "10.96.0.1", "10.96.0.2"),
		}}
	})
}

func (a *author) policies() *story {
	meta := a.meta("policy", a.pick("n", "o"), a.pick("a", "b"))
	return a.story(func() object {
		return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyType(a.pick("Ingress", "Egress", "invalid"))},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("web"))}}}},
		}}
	})
}

func (a *author) slices() *story {
	meta := a.meta("slice", a.pick("s-1", "t-1"), a.pick("a", "b"))
	return a.story(func() object {
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: a.pick("", "s", "t")}
		return &discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{a.pick("10.0.0.1", "10.0.0.2")}}, {Addresses: []string{a.pick("10.0.0.3", "10.0.0.4")}},
		}}
	})
}

// teller delivers the stories of one resource.
type teller struct {
	stories []*story
	apply   func(runtime.Object, bool) error
	replace func([]*story) error
}

func newTeller[O object, V any](t *table[O, V], stories ...*story) *teller {
	return &teller{stories, t.apply, func(stories []*story) error {
		var entries []entry[V]
		for _, s := range stories {
			if o := s.there(); o != nil {
				e, err := t.read(o, false)
				if err != nil {
					return err
				}
				entries = append(entries, e)
			}
		}
		t.replace(entries, 1)
		return nil
	}}
}

// tell delivers all stories, each in its order, interleaved at random.
func (a *author) tell(t *testing.T, tellers []*teller) {
	for {
		var open []func()
		for _, one := range tellers {
			for _, s := range one.stories {
				if s.told < s.chapters() {
					open = append(open, func() {
						s.told++
						last := s.versions[min(s.told, len(s.versions))-1]
						for range 1 + a.IntN(2) {
							require.NoError(t, one.apply(last, s.told > len(s.versions)))
						}
					})
				}
			}
		}
		if len(open) == 0 {
			return
		}
		open[a.IntN(len(open))]()
		if a.IntN(6) == 0 {
			one := tellers[a.IntN(len(tellers))]
			for _, s := range one.stories {
				if s.told < s.chapters() && a.IntN(3) == 0 {
					s.told++ // no watch delivered it
				}
			}
			require.NoError(t, one.replace(one.stories))
		}
	}
}

// each calls f for each final object.
func each[O object](one *teller, f func(O)) {
	for _, s := range one.stories {
		if o := s.there(); o != nil {
			f(o.(O))
		}
	}
}

// FuzzOrder delivers the objects of a cluster in an order, and as often, as the seed determines: the
// final state of the Store depends only on the final objects.
func FuzzOrder(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		a := &author{Rand: rand.New(rand.NewPCG(seed, 0))}
		var changed []state.Changed
		store := state.NewStore(func(c state.Changed) { changed = append(changed, c) }, coe.Kubernetes)
		observed := map[string]PodSeen{}
		tables := newTables(Config{Store: store, Observe: func(p PodSeen) {
			observed[p.UID] = p
			if p.Deleted {
				delete(observed, p.UID)
			}
		}})
		pods := newTeller(tables.pods, a.pods(), a.pods(), a.pods(), a.pods(), a.pods())
		nodes := newTeller(tables.nodes, a.nodes(), a.nodes(), a.nodes())
		namespaces := newTeller(tables.namespaces, a.namespaces("a", true), a.namespaces("a", false), a.namespaces("b", true))
		services := newTeller(tables.services, a.services(), a.services())
		slices := newTeller(tables.endpoints, a.slices(), a.slices(), a.slices())
		policies := newTeller(tables.policies, a.policies(), a.policies())
		tellers := []*teller{pods, nodes, namespaces, services, slices, policies}
		a.tell(t, tellers)

		check := func() {
			got := map[string]any{}
			for _, name := range store.Namespaces() {
				view := store.View(name)
				for _, p := range view.Pods {
					got[p.UID] = podFacts(p)
				}
				for _, s := range view.Services {
					got[s.UID] = s
				}
				for _, e := range view.Endpoints {
					got[e.UID] = e
				}
			}
			require.Equal(t, wanted(pods, nodes, services, slices), got)
			set := *store.Cluster().PolicySet
			set.Complete = false
			require.Equal(t, wantedSet(pods, namespaces, policies), &set)
			require.Nil(t, store.Namespace("b"))
			each(namespaces, func(n *corev1.Namespace) { require.Equal(t, Namespace(n), store.Namespace(n.Name)) })
			seen := map[string]PodSeen{}
			each(pods, func(p *corev1.Pod) { seen[string(p.UID)] = podSeen(p, false) })
			require.Equal(t, seen, observed)
		}
		check()

		for _, one := range tellers {
			require.NoError(t, one.replace(one.stories))
		}
		require.True(t, store.Complete())
		require.True(t, store.Cluster().PolicySet.Complete)
		changed = nil
		for _, one := range tellers {
			require.NoError(t, one.replace(one.stories))
		}
		require.Empty(t, changed, "an equal object is not a change")
		check()
	})
}

// podFacts returns a pod without the time of the report.
func podFacts(p *coe.Pod) coe.Pod {
	facts := *p
	facts.Reported = coe.Reported{}
	return facts
}

// wanted returns the expected Store for the final objects.
func wanted(pods, nodes, services, slices *teller) map[string]any {
	want := map[string]any{}
	each(pods, func(p *corev1.Pod) {
		facts := podFacts(Pod(p))
		var holder types.UID
		each(nodes, func(n *corev1.Node) {
			if n.Name == p.Spec.NodeName && len(n.Status.Addresses) > 0 && (holder == "" || n.UID < holder) {
				holder, facts.HostIP = n.UID, netip.MustParseAddr(n.Status.Addresses[0].Address)
			}
		})
		want[string(p.UID)] = facts
	})
	each(services, func(s *corev1.Service) {
		if s.Spec.Type != corev1.ServiceTypeExternalName {
			want[string(s.UID)] = Service(s)
		}
	})
	each(slices, func(s *discoveryv1.EndpointSlice) {
		if s.Labels[discoveryv1.LabelServiceName] != "" {
			want[string(s.UID)] = Endpoints(s)
		}
	})
	return want
}

// wantedSet returns the expected PolicySet for the final objects.
func wantedSet(pods, namespaces, policies *teller) *coe.PolicySet {
	want := &coe.PolicySet{
		Namespaces: map[string]coe.Labels{}, NamedPorts: map[coe.NamedPort][]uint16{}, Profiles: map[string][]string{}, Unknown: map[string]bool{},
	}
	each(namespaces, func(n *corev1.Namespace) { want.Namespaces[n.Name] = coe.NewLabels(n.Labels) })
	named := map[string]bool{} // the namespaces of policies with the port; "" for any
	each(policies, func(p *networkingv1.NetworkPolicy) {
		spec := Policy(p)
		want.Policies = append(want.Policies, spec)
		if len(spec.Ingress.Rules) > 0 {
			named[""], named[spec.Namespace] = true, true
		}
	})
	slices.SortFunc(want.Policies, func(a, b *coe.PolicySpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	each(pods, func(p *corev1.Pod) {
		for port := range Pod(p).Ports.All() {
			for _, namespace := range []string{"", p.Namespace} {
				if key := (coe.NamedPort{Name: "web", Protocol: "tcp", Namespace: namespace}); named[namespace] {
					want.NamedPorts[key] = append(want.NamedPorts[key], port.Port)
				}
			}
		}
	})
	for name, numbers := range want.NamedPorts {
		slices.Sort(numbers)
		want.NamedPorts[name] = slices.Compact(numbers)
	}
	return want
}

func TestHeartbeatIsNoChange(t *testing.T) {
	changes := 0
	store := state.NewStore(func(state.Changed) { changes++ }, coe.Kubernetes)
	tables := newTables(Config{Store: store})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "a", Name: "p", ResourceVersion: "1"}}
	require.NoError(t, tables.pods.apply(p, false))
	p = p.DeepCopy()
	p.ResourceVersion, p.Status.Phase, p.Status.HostIP = "2", corev1.PodPending, ""
	p.Finalizers = []string{"example.com/x"}
	require.NoError(t, tables.pods.apply(p, false))
	require.Equal(t, 1, changes)
	require.Equal(t, "1", store.View("a").Pods[0].Reported.Revision)
	p.Status.PodIP = "10.0.0.1"
	require.NoError(t, tables.pods.apply(p, false))
	require.Equal(t, 2, changes)
	require.Equal(t, "2", store.View("a").Pods[0].Reported.Revision)
	p.Labels = map[string]string{"x": "y"}
	require.NoError(t, tables.pods.apply(p, false))
	require.Equal(t, 3, changes)
	require.Error(t, tables.pods.apply(&corev1.Node{}, false))
}

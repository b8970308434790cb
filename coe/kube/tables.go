package kube

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// tables has the table of each resource. It is used only within Store.Update, whose lock
// protects it.
type tables struct {
	store    *state.Store
	rounds   rounds
	unlisted int // resources not yet listed in the current round
	ofPolicy int // resources of those that decide what policies mean

	namespaces *table[*corev1.Namespace, *coe.Namespace]
	nodes      *table[*corev1.Node, *coe.Node]
	pods       *table[*corev1.Pod, pod]
	services   *table[*corev1.Service, *coe.Service]
	endpoints  *table[*discoveryv1.EndpointSlice, *coe.Endpoints]
	policies   *table[*networkingv1.NetworkPolicy, *coe.PolicySpec]
	ranges     *table[*networkingv1.ServiceCIDR, *coe.ServiceCIDR]
	egress     *table[*unstructured.Unstructured, *coe.EgressSpec]

	// addresses are the nodes' addresses by name; replaced, never changed.
	addresses map[string]netip.Addr
}

func newTables(cfg Config) *tables {
	t := &tables{store: cfg.Store}
	t.namespaces = newTable(t, Namespace,
		func(tx *state.Tx, n *coe.Namespace) { tx.PutNamespace(coe.Kubernetes, n) }, t.removeNamespace)
	t.nodes = newTable(t, func(in *corev1.Node) *coe.Node { return Node(in, cfg.EgressLabel) },
		func(tx *state.Tx, n *coe.Node) { tx.PutNode(coe.Kubernetes, n) },
		func(tx *state.Tx, n *coe.Node) { tx.DeleteNode(coe.Kubernetes, n.UID) })
	t.nodes.settle = t.movePods
	t.services = newTable(t, Service,
		func(tx *state.Tx, s *coe.Service) { tx.PutService(coe.Kubernetes, s) },
		func(tx *state.Tx, s *coe.Service) { tx.DeleteService(coe.Kubernetes, s.UID) })
	t.endpoints = newTable(t, Endpoints,
		func(tx *state.Tx, e *coe.Endpoints) { tx.PutEndpoints(coe.Kubernetes, e) },
		func(tx *state.Tx, e *coe.Endpoints) { tx.DeleteEndpoints(coe.Kubernetes, e.UID) })
	t.policies = newTable(t, Policy,
		func(tx *state.Tx, p *coe.PolicySpec) { tx.PutPolicy(coe.Kubernetes, p) },
		func(tx *state.Tx, p *coe.PolicySpec) { tx.DeletePolicy(coe.Kubernetes, p.UID) })
	t.policies.optional = true
	t.ranges = newTable(t, ServiceCIDR, (*state.Tx).PutServiceCIDR, func(tx *state.Tx, c *coe.ServiceCIDR) { tx.DeleteServiceCIDR(c.UID) })
	t.ranges.optional = true
	t.egress = newTable(t, EgressSpec, (*state.Tx).PutEgressSpec, func(tx *state.Tx, s *coe.EgressSpec) { tx.DeleteEgressSpec(s.UID) })
	t.egress.optional = true
	t.pods = t.newPods(cfg.Observe)
	t.policies.complete = t.countOfPolicy
	t.ranges.complete = func(tx *state.Tx) { tx.SetServiceCIDRsListed(true) }
	t.egress.complete = func(tx *state.Tx) { tx.SetEgressListed(true) }
	for _, complete := range []*func(*state.Tx){&t.namespaces.complete, &t.pods.complete} {
		*complete = func(tx *state.Tx) {
			t.countListed(tx)
			t.countOfPolicy(tx)
		}
	}
	t.relist()
	return t
}

// resources is the number of resources that must be listed before the origin is complete. It
// does not include network policies: without them only PolicySet is incomplete. Nor does it include EgressIPs: those
// that a leader has accepted apply without them; and ServiceCIDRs: until they are listed, nodes lose no range of services.
const resources = 5

// resourcesOfPolicy is the number of resources that decide what policies mean: policies, namespaces
// with their labels, and pods with their named ports.
const resourcesOfPolicy = 3

// relist starts a round in which every resource is listed. Until its end the origin is
// incomplete.
func (t *tables) relist() {
	t.store.Update(func(tx *state.Tx) {
		tx.SetIncomplete(coe.Kubernetes)
		tx.SetPoliciesIncomplete(coe.Kubernetes)
		tx.SetServiceCIDRsListed(false)
		tx.SetEgressListed(false)
		t.unlisted, t.ofPolicy = resources, resourcesOfPolicy
		t.rounds.next()
	})
}

// newTable returns a table whose values are compared as a whole.
func newTable[O object, V any](t *tables, convert func(O) *V, put, remove func(*state.Tx, *V)) *table[O, *V] {
	return &table[O, *V]{
		tables: t, values: map[string]*V{}, put: put, remove: remove, complete: t.countListed,
		convert: func(o O) (*V, bool) {
			v := convert(o)
			return v, v != nil
		},
		merge: func(before, now *V) (*V, bool) {
			if reflect.DeepEqual(before, now) {
				return before, false
			}
			return now, true
		},
	}
}

// countListed counts a resource that was listed in the current round. With the last one the
// origin is complete.
func (t *tables) countListed(tx *state.Tx) {
	t.unlisted--
	if t.unlisted == 0 {
		tx.SetComplete(coe.Kubernetes)
	}
}

// countOfPolicy counts a resource that decides what policies mean. With the last one, PolicySet is
// complete, also if another resource cannot be listed.
func (t *tables) countOfPolicy(tx *state.Tx) {
	t.ofPolicy--
	if t.ofPolicy == 0 {
		tx.SetPoliciesComplete(coe.Kubernetes)
	}
}

// removeNamespace deletes a namespace. The Store knows namespaces by name, and a new namespace
// may already have the name.
func (t *tables) removeNamespace(tx *state.Tx, gone *coe.Namespace) {
	for _, n := range t.namespaces.values {
		if n.Name == gone.Name {
			tx.PutNamespace(coe.Kubernetes, n)
			return
		}
	}
	tx.DeleteNamespace(coe.Kubernetes, gone.Name)
}

// pod is a pod, and its node's address in its own status.
type pod struct {
	*coe.Pod
	status netip.Addr
}

func (t *tables) newPods(observe func(PodSeen)) *table[*corev1.Pod, pod] {
	pods := &table[*corev1.Pod, pod]{
		tables: t, values: map[string]pod{}, merge: mergePod, complete: t.countListed,
		convert: func(in *corev1.Pod) (pod, bool) {
			p := Pod(in)
			p.Reported.At = time.Now()
			return pod{Pod: p, status: p.HostIP}, true
		},
		prepare: func(p pod) { p.HostIP = HostIP(t.addresses, p.NodeName, p.status) },
		put:     func(tx *state.Tx, p pod) { tx.PutPod(coe.Kubernetes, p.Pod) },
		remove:  func(tx *state.Tx, p pod) { tx.DeletePod(coe.Kubernetes, p.UID) },
	}
	if observe != nil {
		pods.seen = func(p *corev1.Pod, deleted bool) func() {
			seen := podSeen(p, deleted)
			return func() { observe(seen) }
		}
		pods.gone = func(p pod) func() {
			return func() {
				observe(PodSeen{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Deleted: true})
			}
		}
	}
	return pods
}

// maxAnnotation is how much of a pod's annotation is kept. Ours is shorter, so a longer one
// differs.
const maxAnnotation = 16 << 10

func podSeen(p *corev1.Pod, deleted bool) PodSeen {
	annotation := p.Annotations[InterfacesAnnotation]
	return PodSeen{
		UID: uid(p.UID), Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.ResourceVersion,
		Annotation: strings.Clone(annotation[:min(len(annotation), maxAnnotation)]),
		NeedsReady: slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: NetworkReady}),
		IsReady: slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == NetworkReady && c.Status == corev1.ConditionTrue
		}),
		HostNetwork: p.Spec.HostNetwork, Finished: Finished(p), Deleted: deleted,
	}
}

// mergePod compares pods except for the time of the report.
func mergePod(before, now pod) (pod, bool) {
	asBefore := *now.Pod
	asBefore.Reported = before.Reported
	if reflect.DeepEqual(before.Pod, &asBefore) {
		return pod{Pod: before.Pod, status: now.status}, false
	}
	return now, true
}

// movePods updates the pods whose node's address has changed. It checks all pods, because node
// addresses seldom change.
func (t *tables) movePods(tx *state.Tx) {
	addresses := t.nodeAddresses()
	if maps.Equal(addresses, t.addresses) {
		return
	}
	t.addresses = addresses
	for uid, p := range t.pods.values {
		at := HostIP(t.addresses, p.NodeName, p.status)
		if at == p.HostIP {
			continue
		}
		moved := *p.Pod
		moved.HostIP, moved.Reported.At = at, time.Now()
		t.pods.values[uid] = pod{Pod: &moved, status: p.status}
		tx.PutPod(coe.Kubernetes, &moved)
	}
}

// nodeAddresses returns the nodes' addresses by name. While one node replaces another of the
// same name, the node with the lower UID counts.
func (t *tables) nodeAddresses() map[string]netip.Addr {
	addresses := make(map[string]netip.Addr, len(t.nodes.values))
	holders := make(map[string]string, len(t.nodes.values))
	for uid, n := range t.nodes.values {
		holder, taken := holders[n.HostName]
		if n.Address().IsValid() && (!taken || uid < holder) {
			addresses[n.HostName], holders[n.HostName] = n.Address(), uid
		}
	}
	return addresses
}

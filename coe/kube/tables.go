package kube

import (
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// tables is what was said of each resource. All of it is read and changed within
// Store.Update alone, whose lock is its lock.
type tables struct {
	store    *coe.Store
	rounds   rounds
	unlisted int // resources, in the round that counts

	namespaces *table[*corev1.Namespace, *coe.Namespace]
	nodes      *table[*corev1.Node, *coe.Node]
	pods       *table[*corev1.Pod, pod]
	services   *table[*corev1.Service, *coe.Service]
	endpoints  *table[*discoveryv1.EndpointSlice, *coe.Endpoints]
	policies   *table[*networkingv1.NetworkPolicy, *coe.Policy]

	// addresses are the nodes' addresses by name; replaced as a whole.
	addresses map[string]netip.Addr
}

func newTables(store *coe.Store, observe func(PodSeen)) *tables {
	t := &tables{store: store}
	t.namespaces = newTable(t, Namespace,
		func(tx *coe.Tx, n *coe.Namespace) { tx.PutNamespace(coe.Kubernetes, n) }, t.removeNamespace)
	t.nodes = newTable(t, Node,
		func(tx *coe.Tx, n *coe.Node) { tx.PutNode(coe.Kubernetes, n) },
		func(tx *coe.Tx, n *coe.Node) { tx.DeleteNode(coe.Kubernetes, n.UID) })
	t.nodes.settle = t.movePods
	t.services = newTable(t, Service,
		func(tx *coe.Tx, s *coe.Service) { tx.PutService(coe.Kubernetes, s) },
		func(tx *coe.Tx, s *coe.Service) { tx.DeleteService(coe.Kubernetes, s.UID) })
	t.endpoints = newTable(t, Endpoints,
		func(tx *coe.Tx, e *coe.Endpoints) { tx.PutEndpoints(coe.Kubernetes, e) },
		func(tx *coe.Tx, e *coe.Endpoints) { tx.DeleteEndpoints(coe.Kubernetes, e.UID) })
	t.policies = newTable(t, Policy,
		func(tx *coe.Tx, p *coe.Policy) { tx.PutPolicy(coe.Kubernetes, p) },
		func(tx *coe.Tx, p *coe.Policy) { tx.DeletePolicy(coe.Kubernetes, p.UID) })
	t.policies.optional = true
	t.pods = t.newPods(observe)
	t.renew()
	return t
}

// resources is how many there are that must be listed before Kubernetes has said all
// it knows. Network policies are not among them: see table.optional.
const resources = 5

// renew has every resource listed, again where it was. Until then what is absent may
// be there.
func (t *tables) renew() {
	t.store.Update(func(tx *coe.Tx) {
		tx.SetIncomplete(coe.Kubernetes)
		t.unlisted = resources
		t.rounds.next()
	})
}

// newTable is a table of values that are compared as a whole.
func newTable[O object, V any](t *tables, convert func(O) *V, put, remove func(*coe.Tx, *V)) *table[O, *V] {
	return &table[O, *V]{
		tables: t, said: map[string]*V{}, put: put, remove: remove,
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

// countListed notes that one more resource was listed in the round that counts. After
// the last of them Kubernetes has said all it knows.
func (t *tables) countListed(tx *coe.Tx) {
	t.unlisted--
	if t.unlisted == 0 {
		tx.SetComplete(coe.Kubernetes)
	}
}

// removeNamespace takes a namespace back. The store knows namespaces by name, and
// the name may have passed on to another already.
func (t *tables) removeNamespace(tx *coe.Tx, gone *coe.Namespace) {
	for _, n := range t.namespaces.said {
		if n.Name == gone.Name {
			tx.PutNamespace(coe.Kubernetes, n)
			return
		}
	}
	tx.DeleteNamespace(coe.Kubernetes, gone.Name)
}

// pod is a pod as it was said, and its node's address as its own status has it.
type pod struct {
	*coe.Pod
	status netip.Addr
}

func (t *tables) newPods(observe func(PodSeen)) *table[*corev1.Pod, pod] {
	pods := &table[*corev1.Pod, pod]{
		tables: t, said: map[string]pod{}, merge: mergePod,
		convert: func(in *corev1.Pod) (pod, bool) {
			p := Pod(in)
			p.Said.At = time.Now()
			return pod{Pod: p, status: p.HostIP}, true
		},
		prepare: func(p pod) { p.HostIP = HostIP(t.addresses, p.NodeName, p.status) },
		put:     func(tx *coe.Tx, p pod) { tx.PutPod(coe.Kubernetes, p.Pod) },
		remove:  func(tx *coe.Tx, p pod) { tx.DeletePod(coe.Kubernetes, p.UID) },
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

// maxAnnotation is how much of a pod's annotation is looked at. Ours is shorter, so a
// longer one differs from it.
const maxAnnotation = 16 << 10

func podSeen(p *corev1.Pod, deleted bool) PodSeen {
	annotation := p.Annotations[InterfacesAnnotation]
	return PodSeen{
		UID: uid(p.UID), Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.ResourceVersion,
		Annotation:  strings.Clone(annotation[:min(len(annotation), maxAnnotation)]),
		HostNetwork: p.Spec.HostNetwork, Finished: Finished(p), Deleted: deleted,
	}
}

// mergePod compares all of a pod but when it was said.
func mergePod(before, now pod) (pod, bool) {
	asBefore := *now.Pod
	asBefore.Said = before.Said
	if reflect.DeepEqual(before.Pod, &asBefore) {
		return pod{Pod: before.Pod, status: now.status}, false
	}
	return now, true
}

// movePods says the pods again whose node has another address now. It looks at all
// pods, as nodes seldom change theirs.
func (t *tables) movePods(tx *coe.Tx) {
	addresses := t.nodeAddresses()
	if maps.Equal(addresses, t.addresses) {
		return
	}
	t.addresses = addresses
	for uid, p := range t.pods.said {
		at := HostIP(t.addresses, p.NodeName, p.status)
		if at == p.HostIP {
			continue
		}
		moved := *p.Pod
		moved.HostIP, moved.Said.At = at, time.Now()
		t.pods.said[uid] = pod{Pod: &moved, status: p.status}
		tx.PutPod(coe.Kubernetes, &moved)
	}
}

// nodeAddresses are the nodes' addresses by name. Of two nodes of one name, as may
// be told of while one replaces the other, the one of the lower uid counts.
func (t *tables) nodeAddresses() map[string]netip.Addr {
	addresses := make(map[string]netip.Addr, len(t.nodes.said))
	holders := make(map[string]string, len(t.nodes.said))
	for uid, n := range t.nodes.said {
		holder, taken := holders[n.HostName]
		if n.Address().IsValid() && (!taken || uid < holder) {
			addresses[n.HostName], holders[n.HostName] = n.Address(), uid
		}
	}
	return addresses
}

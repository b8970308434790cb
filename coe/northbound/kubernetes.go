package northbound

import (
	"iter"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// A pod's entry has about 200 bytes. Many are written to one chunk of memory, since
// the entries of a list are wanted together, and for a moment.
const (
	entrySize = 256
	chunkSize = 128 * entrySize
)

// FromKubernetes presents what Kubernetes reports as the entries of one list.
type FromKubernetes[T any] struct {
	entities state.Entities[T]
	encode   func([]byte, *T) []byte
	describe func(*T) string
}

// KubernetesPods returns the entries of Pods from Kubernetes.
func KubernetesPods(s *state.Store) FromKubernetes[coe.Pod] {
	return FromKubernetes[coe.Pod]{s.PodsOf(coe.Kubernetes), AppendPod, func(p *coe.Pod) string {
		return "pod " + p.Namespace + "/" + p.Name
	}}
}

// KubernetesServices returns the entries of Services from Kubernetes.
func KubernetesServices(s *state.Store) FromKubernetes[coe.Service] {
	return FromKubernetes[coe.Service]{s.ServicesOf(coe.Kubernetes), AppendService, func(s *coe.Service) string {
		return "service " + s.Namespace + "/" + s.Name
	}}
}

// KubernetesEndpoints returns the entries of EndpointsList from Kubernetes.
func KubernetesEndpoints(s *state.Store) FromKubernetes[coe.Endpoints] {
	return FromKubernetes[coe.Endpoints]{s.EndpointsOf(coe.Kubernetes), AppendEndpoints, func(e *coe.Endpoints) string {
		return "endpoints of service " + e.Namespace + "/" + e.Name
	}}
}

// KubernetesNodes returns the entries of Nodes from Kubernetes.
func KubernetesNodes(s *state.Store) FromKubernetes[coe.Node] {
	return FromKubernetes[coe.Node]{s.NodesOf(coe.Kubernetes), AppendNode, func(n *coe.Node) string {
		return "node " + n.HostName
	}}
}

// Entry returns the JSON object of the entry with a UID; nil if Kubernetes has none.
func (l FromKubernetes[T]) Entry(uid string) []byte {
	if e := l.entities.Get(uid); e != nil {
		return l.encode(make([]byte, 0, entrySize), e)
	}
	return nil
}

// Entries returns the JSON objects of all entries, sorted by UID.
func (l FromKubernetes[T]) Entries() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var chunk []byte
		for _, e := range l.entities.All() {
			if cap(chunk)-len(chunk) < entrySize {
				chunk = make([]byte, 0, chunkSize)
			}
			from := len(chunk)
			chunk = l.encode(chunk, e.Value)
			if !yield(e.UID, slices.Clip(chunk[from:])) {
				return
			}
		}
	}
}

// Any returns the UID of one entry; empty if there are none.
func (l FromKubernetes[T]) Any() string { return l.entities.Any() }

// Says explains why a client cannot change the entry with a UID, and what to do instead; empty
// if Kubernetes has no such entry.
func (l FromKubernetes[T]) Says(uid string) string {
	e := l.entities.Get(uid)
	if e == nil {
		return ""
	}
	return "it comes from Kubernetes (" + l.describe(e) + "): change it there with kubectl"
}

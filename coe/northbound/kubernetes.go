package northbound

import (
	"iter"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// A pod's entry has about 200 bytes. Many are written to one chunk of memory, since
// the entries of a list are wanted together, and for a moment.
const (
	entrySize = 256
	chunkSize = 128 * entrySize
)

// FromKubernetes shows the entries of one list of which Kubernetes speaks.
type FromKubernetes[T any] struct {
	said     coe.Entities[T]
	encode   func([]byte, *T) []byte
	describe func(*T) string
}

// KubernetesPods are the entries of Pods of which Kubernetes speaks.
func KubernetesPods(s *coe.Store) FromKubernetes[coe.Pod] {
	return FromKubernetes[coe.Pod]{s.PodsOf(coe.Kubernetes), AppendPod, func(p *coe.Pod) string {
		return "pod " + p.Namespace + "/" + p.Name
	}}
}

// KubernetesServices are the entries of Services of which Kubernetes speaks.
func KubernetesServices(s *coe.Store) FromKubernetes[coe.Service] {
	return FromKubernetes[coe.Service]{s.ServicesOf(coe.Kubernetes), AppendService, func(s *coe.Service) string {
		return "service " + s.Namespace + "/" + s.Name
	}}
}

// KubernetesEndpoints are the entries of EndpointsList of which Kubernetes speaks.
func KubernetesEndpoints(s *coe.Store) FromKubernetes[coe.Endpoints] {
	return FromKubernetes[coe.Endpoints]{s.EndpointsOf(coe.Kubernetes), AppendEndpoints, func(e *coe.Endpoints) string {
		return "endpoints of service " + e.Namespace + "/" + e.Name
	}}
}

// KubernetesNodes are the entries of Nodes of which Kubernetes speaks.
func KubernetesNodes(s *coe.Store) FromKubernetes[coe.Node] {
	return FromKubernetes[coe.Node]{s.NodesOf(coe.Kubernetes), AppendNode, func(n *coe.Node) string {
		return "node " + n.HostName
	}}
}

// Entry is the JSON object of the entry with this uid; nil where Kubernetes
// speaks of none.
func (l FromKubernetes[T]) Entry(uid string) []byte {
	if e := l.said.Get(uid); e != nil {
		return l.encode(make([]byte, 0, entrySize), e)
	}
	return nil
}

// Entries are the JSON objects of all entries, by uid and ordered by
// it.
func (l FromKubernetes[T]) Entries() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var chunk []byte
		for _, e := range l.said.All() {
			if cap(chunk)-len(chunk) < entrySize {
				chunk = make([]byte, 0, chunkSize)
			}
			from := len(chunk)
			chunk = l.encode(chunk, e.Said)
			if !yield(e.UID, slices.Clip(chunk[from:])) {
				return
			}
		}
	}
}

// Any is the uid of one entry, empty where there is none.
func (l FromKubernetes[T]) Any() string { return l.said.Any() }

// Says tells who wants to change the entry with this uid where it comes from, and
// what to do instead; empty where Kubernetes speaks of none.
func (l FromKubernetes[T]) Says(uid string) string {
	e := l.said.Get(uid)
	if e == nil {
		return ""
	}
	return "it comes from Kubernetes (" + l.describe(e) + "): change it there with kubectl"
}

package state

import (
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Entities are the pods, services, endpoints or nodes that one origin reports, including
// those that another origin overrides. Its methods may be called concurrently. The values
// must not be changed.
type Entities[T any] struct {
	mu    *sync.RWMutex
	byUID map[string]*T
}

// Get returns the entity with a UID; nil if the origin does not report it.
func (e Entities[T]) Get(uid string) *T {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.byUID[uid]
}

// Entity is an entity with its UID.
type Entity[T any] struct {
	UID   string
	Value *T
}

// All returns a snapshot of the entities, sorted by UID.
func (e Entities[T]) All() []Entity[T] {
	e.mu.RLock()
	all := make([]Entity[T], 0, len(e.byUID))
	for uid, value := range e.byUID {
		all = append(all, Entity[T]{uid, value})
	}
	e.mu.RUnlock()
	slices.SortFunc(all, func(a, b Entity[T]) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// Any returns the UID of one of the entities; empty if there are none.
func (e Entities[T]) Any() string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for uid := range e.byUID {
		return uid
	}
	return ""
}

// PodsOf returns the pods of an origin, which NewStore must know.
func (s *Store) PodsOf(o coe.Origin) Entities[coe.Pod] {
	return Entities[coe.Pod]{&s.mu, s.layer(o).pods}
}

// ServicesOf returns the services of an origin, which NewStore must know.
func (s *Store) ServicesOf(o coe.Origin) Entities[coe.Service] {
	return Entities[coe.Service]{&s.mu, s.layer(o).services}
}

// EndpointsOf returns the endpoints of an origin, which NewStore must know.
func (s *Store) EndpointsOf(o coe.Origin) Entities[coe.Endpoints] {
	return Entities[coe.Endpoints]{&s.mu, s.layer(o).endpoints}
}

// NodesOf returns the nodes of an origin, which NewStore must know.
func (s *Store) NodesOf(o coe.Origin) Entities[coe.Node] {
	return Entities[coe.Node]{&s.mu, s.layer(o).nodes}
}

package coe

import (
	"slices"
	"strings"
	"sync"
)

// Entities are the pods, services, endpoints or nodes of which one origin speaks,
// whether it is believed or not. It is safe for use by many goroutines; the
// values must not be changed.
type Entities[T any] struct {
	mu    *sync.RWMutex
	byUID map[string]*T
}

// Get is what the origin says of this uid, nil where it says nothing.
func (e Entities[T]) Get(uid string) *T {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.byUID[uid]
}

// Entity is one of them.
type Entity[T any] struct {
	UID  string
	Said *T
}

// All are the entities at one moment, ordered by uid.
func (e Entities[T]) All() []Entity[T] {
	e.mu.RLock()
	all := make([]Entity[T], 0, len(e.byUID))
	for uid, said := range e.byUID {
		all = append(all, Entity[T]{uid, said})
	}
	e.mu.RUnlock()
	slices.SortFunc(all, func(a, b Entity[T]) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// Any is the uid of one of the entities, empty where there is none.
func (e Entities[T]) Any() string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for uid := range e.byUID {
		return uid
	}
	return ""
}

// PodsOf are the pods of an origin that was given to NewStore.
func (s *Store) PodsOf(o Origin) Entities[Pod] { return Entities[Pod]{&s.mu, s.layer(o).pods} }

// ServicesOf are the services of an origin that was given to NewStore.
func (s *Store) ServicesOf(o Origin) Entities[Service] {
	return Entities[Service]{&s.mu, s.layer(o).services}
}

// EndpointsOf are the endpoints of an origin that was given to NewStore.
func (s *Store) EndpointsOf(o Origin) Entities[Endpoints] {
	return Entities[Endpoints]{&s.mu, s.layer(o).endpoints}
}

// NodesOf are the nodes of an origin that was given to NewStore.
func (s *Store) NodesOf(o Origin) Entities[Node] { return Entities[Node]{&s.mu, s.layer(o).nodes} }

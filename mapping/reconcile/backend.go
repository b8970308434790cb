// Package reconcile makes a backend agree with the wanted model. For each scope that changed
// it compares the wanted objects with the objects of the backend, and writes the difference. It
// is the only place that retries, and the only one that knows how far the backend is behind.
//
// It knows neither the sources of the store nor how a backend stores an object.
package reconcile

import (
	"context"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Divided is a Backend that reads its model divided. A loop uses it instead of Read: for a large model it is cheaper.
type Divided interface {
	// ReadByScope returns the result of Read, divided by scope and into parts.
	ReadByScope(ctx context.Context) (map[netvirt.Scope]netvirt.Parts, error)
}

func readByScope(ctx context.Context, b Backend) (map[netvirt.Scope]netvirt.Parts, error) {
	if d, ok := b.(Divided); ok {
		return d.ReadByScope(ctx)
	}
	model, err := b.Read(ctx)
	return model.ByScope(), err
}

// Backend programs Netvirt objects. Its methods are called by one goroutine at
// a time, except Kinds.
type Backend interface {
	// Kinds are the kinds that the backend programs; it never gets other kinds.
	Kinds() netvirt.KindSet
	// Read returns every object that is ours in the backend. It recognises them
	// with no memory of its own, and leaves out what is not ours. It fails if the server
	// does not answer, and may take minutes while it does.
	Read(ctx context.Context) (netvirt.Model, error)
	// Write makes changes that are ordered as netvirt.Sort orders them, of one
	// scope or several. It is idempotent: repeating a write, as a whole or in
	// part, is harmless, so an error may leave any part of it done. A
	// *netvirt.RejectedError names the changes that the backend will never take
	// as they are. A *netvirt.DeferredError names those that it cannot make yet,
	// and must be repeated soon; all others are made. If Write cannot create an InterfaceACL, it does not create the
	// interface either: an interface without one has all traffic.
	Write(ctx context.Context, changes []netvirt.Change) error
	// Watch calls changed when what a successful Read returned, before or since Watch was
	// called, may be out of date: another writer changed it, a database was wiped, or the
	// connection that Read used has ended, also while the backend cannot be reached. Watch
	// compares the connections of Reads with the current one. It must not depend on being there when
	// a connection ends: a Read may succeed between two outages that Watch sees as one.
	// Watch also calls changed when the backend can be reached again. It blocks until ctx is
	// done or the watch cannot continue.
	Watch(ctx context.Context, changed func()) error
}

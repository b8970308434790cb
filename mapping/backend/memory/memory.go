// Package memory is a backend that holds the model in memory and configures no network.
// It serves dry runs and tests. It is the strictest backend: it rejects a reference to an
// object that does not exist, the deletion of an object that others refer to, an address
// that two interfaces of one routing domain hold, a port that two interfaces use, and an
// interface that must join an ACL that does not exist.
//
// It does not know what the objects mean on a network.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Backend holds a model. Several goroutines may call its methods.
type Backend struct {
	mu    sync.Mutex
	model netvirt.Model
	index index
}

// New returns a backend with an empty model.
func New() *Backend {
	return &Backend{model: netvirt.Model{}, index: newIndex()}
}

// Kinds returns all kinds.
func (b *Backend) Kinds() netvirt.KindSet { return netvirt.NewKindSet(netvirt.Kinds()...) }

// Read returns a copy of the model. It fails if ctx has ended.
func (b *Backend) Read(ctx context.Context) (netvirt.Model, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.model), nil
}

// Write makes the changes one by one. It makes all changes except those that break a
// rule, which the returned *netvirt.RejectedError names. If the model does not have a
// change's old object, Write stops with another error, and the caller must read again.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var (
		rejected []netvirt.Key
		causes   []error
		joins    = joining(changes)
	)
	for _, c := range changes {
		k := c.Key()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write %s: %w", k, err)
		}
		have := b.model[k]
		if have == c.New {
			continue // already made: writes may be repeated
		}
		if have != c.Old {
			return fmt.Errorf("%s %s: the model does not have the change's old object: read again", c.Verb(), k)
		}
		if err := b.check(k, c, joins); err != nil {
			rejected = append(rejected, k)
			causes = append(causes, fmt.Errorf("%s %s: %w", c.Verb(), k, err))
			continue
		}
		b.apply(k, c)
	}
	if len(rejected) > 0 {
		return &netvirt.RejectedError{Keys: rejected, Err: errors.Join(causes...)}
	}
	return nil
}

// Watch returns when ctx ends. It never reports a change: nobody else writes the model.
func (b *Backend) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func (b *Backend) apply(k netvirt.Key, c netvirt.Change) {
	if c.Old != nil {
		b.index.remove(k, c.Old)
	}
	if c.New == nil {
		delete(b.model, k)
		return
	}
	b.index.add(k, c.New)
	b.model[k] = c.New
}

// joining returns the InterfaceACLs that changes create or update, by interface.
func joining(changes []netvirt.Change) map[string]netvirt.InterfaceACL {
	joins := map[string]netvirt.InterfaceACL{}
	for _, c := range changes {
		if acl, ok := c.New.(netvirt.InterfaceACL); ok {
			joins[acl.Interface] = acl
		}
	}
	return joins
}

// check returns an error if the change breaks a rule. joins has the InterfaceACLs of the same write.
func (b *Backend) check(k netvirt.Key, c netvirt.Change, joins map[string]netvirt.InterfaceACL) error {
	if c.New == nil {
		if n := b.index.referrers[k]; n > 0 {
			return fmt.Errorf("%d other objects refer to it", n)
		}
		return nil
	}
	for _, ref := range c.New.Refs() {
		if _, found := b.model[ref]; !found {
			return fmt.Errorf("it refers to %s, which does not exist", ref)
		}
	}
	switch o := c.New.(type) {
	case netvirt.Interface:
		for _, ref := range joins[o.Name].Refs() {
			if _, found := b.model[ref]; !found && ref.Kind == netvirt.KindACL {
				return fmt.Errorf("it must join %s, which does not exist", ref)
			}
		}
		return b.portFree(o)
	case netvirt.Adjacency:
		vpn := b.model[netvirt.Key{Kind: netvirt.KindVPNInterface, Name: o.Interface}].(netvirt.VPNInterface)
		return b.addressFree(o, b.domain(vpn.VPN), b.domain)
	case netvirt.VPNInterface:
		if c.Old != nil {
			return b.interfaceFree(o)
		}
	case netvirt.VPNInstance:
		if c.Old != nil {
			return b.instanceFree(o)
		}
	}
	return nil
}

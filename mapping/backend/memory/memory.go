// Package memory is the backend that keeps the model and does nothing with it:
// the dry run of the product, and the strictest reader of what the program
// writes. It takes no change that a careful backend could not take: no
// reference to what is not there, no removal of what is referred to, no
// address held twice in one routing domain, no port used by two interfaces.
//
// It knows nothing of what the objects stand for on a network.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Backend keeps a model. Its methods may be called by several goroutines.
type Backend struct {
	mu    sync.Mutex
	model netvirt.Model
	index index
}

// New returns a backend that has nothing.
func New() *Backend {
	return &Backend{model: netvirt.Model{}, index: newIndex()}
}

// Kinds are all kinds.
func (b *Backend) Kinds() netvirt.KindSet { return netvirt.NewKindSet(netvirt.Kinds()...) }

// Read returns a copy of what is kept.
func (b *Backend) Read(ctx context.Context) (netvirt.Model, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.model), nil
}

// Write makes the changes one by one, each wholly or not at all. A change that
// breaks a rule is left out and named in the *netvirt.RejectedError, the others
// are made. A change of an object that is not as the change says ends the call
// with another error: reading again heals that.
func (b *Backend) Write(ctx context.Context, changes []netvirt.Change) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var (
		rejected []netvirt.Key
		causes   []error
	)
	for _, c := range changes {
		k := c.Key()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write %s: %w", k, err)
		}
		have := b.model[k]
		if have == c.New {
			continue // it was made before: writes may be repeated
		}
		if have != c.Old {
			return fmt.Errorf("%s %s: it is not as the change says: read again", c.Verb(), k)
		}
		if err := b.legal(k, c); err != nil {
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

// Watch returns when ctx is done: nobody else has a hand in the memory.
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

// legal says which rule the change breaks.
func (b *Backend) legal(k netvirt.Key, c netvirt.Change) error {
	if c.New == nil {
		if n := b.index.referrers[k]; n > 0 {
			return fmt.Errorf("%d others refer to it", n)
		}
		return nil
	}
	for _, ref := range c.New.Refs() {
		if _, found := b.model[ref]; !found {
			return fmt.Errorf("it refers to %s, which is not there", ref)
		}
	}
	switch o := c.New.(type) {
	case netvirt.Interface:
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

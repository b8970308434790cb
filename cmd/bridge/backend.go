package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// BackendConfig says which backend realises the model.
type BackendConfig struct {
	Name string // one of Backends
	OVN  ovn.Config
	ODL  odl.Config
}

var _ reconcile.Observer = (*odl.Backend)(nil)

// closer is a backend that holds something.
type closer interface {
	reconcile.Backend
	Close()
}

// inMemory gives the memory backend, which holds nothing, a Close.
type inMemory struct{ *memory.Backend }

func (inMemory) Close() {}

// fence keeps a leader from writing that leads no more. It is empty for a backend that
// is only read.
type fence struct {
	// epoch, which that datastore counts, is what writes are compared with where the backend
	// has a place for that.
	datastore, epoch string
	// held is asked before each write where it has none.
	held func(context.Context) error
}

// newBackend opens the backend.
func newBackend(cfg BackendConfig, fence fence, log *slog.Logger) (closer, error) {
	switch cfg.Name {
	case "memory":
		return inMemory{memory.New()}, nil
	case "ovn":
		c := cfg.OVN
		c.Datastore, c.Epoch = fence.datastore, fence.epoch
		backend, err := ovn.New(c, log.With("backend", cfg.Name))
		if err != nil {
			return nil, err // and no typed nil
		}
		return backend, nil
	case "odl":
		c := cfg.ODL
		c.MayWrite = fence.held
		backend, err := odl.New(c, log.With("backend", cfg.Name))
		if err != nil {
			return nil, err // and no typed nil
		}
		return backend, nil
	}
	return nil, fmt.Errorf("backend %q: want one of %s", cfg.Name, strings.Join(Backends(), ", "))
}

// limits are those of the backend of a name.
func limits(backend string) netvirt.Limits {
	if backend == "ovn" {
		return ovn.Limits()
	}
	return netvirt.Limits{}
}

// Backends lists the backends that there are.
func Backends() []string { return []string{"memory", "ovn", "odl"} }

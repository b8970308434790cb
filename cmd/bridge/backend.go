package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// BackendConfig is the configuration of a backend.
type BackendConfig struct {
	Name string // one of Backends
	OVN  ovn.Config
	ODL  odl.Config
}

var _ reconcile.Observer = (*odl.Backend)(nil)

// closer is a backend that has to be closed.
type closer interface {
	reconcile.Backend
	Close()
}

// inMemory adds Close to the memory backend, which needs none.
type inMemory struct{ *memory.Backend }

func (inMemory) Close() {}

// fence prevents writes of a replica that has lost the leadership. It is empty for a backend
// that is only read.
type fence struct {
	// epoch of the datastore is compared with each write, if the backend can store it.
	datastore, epoch string
	// held is called before each write, if the backend cannot.
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
			return nil, err // not a typed nil
		}
		return backend, nil
	case "odl":
		c := cfg.ODL
		c.MayWrite = fence.held
		backend, err := odl.New(c, log.With("backend", cfg.Name))
		if err != nil {
			return nil, err // not a typed nil
		}
		return backend, nil
	}
	return nil, fmt.Errorf("backend %q: want one of %s", cfg.Name, strings.Join(Backends(), ", "))
}

// limits returns the limits of a backend.
func limits(backend string) netvirt.Limits {
	if backend == "ovn" {
		return ovn.Limits()
	}
	return netvirt.Limits{}
}

// Backends lists the names of backends.
func Backends() []string { return []string{"memory", "ovn", "odl"} }

// readTimeout bounds the read of all that a backend has.
const readTimeout = time.Minute

// Convert compares our objects in two backends. It writes to neither.
func Convert(ctx context.Context, from, to BackendConfig, log *slog.Logger) (*plan.Conversion, error) {
	have, _, err := readBackend(ctx, from, log)
	if err != nil {
		return nil, err
	}
	there, kinds, err := readBackend(ctx, to, log)
	if err != nil {
		return nil, err
	}
	return plan.Convert(have, there, kinds), nil
}

func readBackend(ctx context.Context, cfg BackendConfig, log *slog.Logger) (netvirt.Model, netvirt.KindSet, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	backend, err := newBackend(cfg, fence{}, log)
	if err != nil {
		return nil, 0, err
	}
	defer backend.Close()
	model, err := backend.Read(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read backend %s: %w", cfg.Name, err)
	}
	return model, backend.Kinds(), nil
}

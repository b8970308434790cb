package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping"
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

// inMemory adds a Close that does nothing to the memory backend.
type inMemory struct{ *memory.Backend }

func (inMemory) Close() {}

// fence prevents writes of a replica that is no longer the leader. A backend that is only read
// needs no epoch and no held.
type fence struct {
	// datastore is the identity of the datastore that counts the epochs.
	datastore string
	// epoch is the epoch of this leadership. A backend that can store it (OVN) checks it in each
	// write.
	epoch string
	// held returns an error if this replica no longer leads. A backend that cannot store the
	// epoch (OpenDaylight) calls it before each write.
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

// limits returns the limits of a backend with these kinds.
func limits(cfg BackendConfig, kinds netvirt.KindSet) (l netvirt.Limits) {
	switch cfg.Name {
	case "ovn":
		l = cfg.OVN.Layout.Limits()
	case "odl":
		l = odl.Limits()
	}
	l.NoACLs, l.NoPlaces = !kinds.Has(netvirt.KindACL), !kinds.Has(netvirt.KindServiceVIP)
	l.NodesBalance = kinds.Has(netvirt.KindNodePort) && !kinds.Has(netvirt.KindServiceVIP)
	l.NoGateways = !kinds.Has(netvirt.KindGateway)
	return l
}

// DefaultLayout returns the layout of OVN where none is named. A switch for each node costs OVN least. But namespaces that each have a
// network of their own need switches of their own.
func DefaultLayout(i mapping.Isolation) ovn.Layout {
	if i == mapping.IsolationNamespace {
		return ovn.LayoutELAN
	}
	return ovn.LayoutNode
}

// layoutNode are the defaults with DefaultLayout. Before them the layout was ovn.LayoutELAN.
const layoutNode = "layout-node"

// setLayouts gives backends without a layout of OVN the default, and logs the layout. A datastore from before layoutNode keeps ovn.LayoutELAN,
// because a change of the layout interrupts traffic.
func (c *Config) setLayouts(defaults string) {
	layout, reason := DefaultLayout(c.Mapping.Isolation), "the default with --isolation "+string(c.Mapping.Isolation)
	if defaults != layoutNode && layout != ovn.LayoutELAN {
		layout, reason = ovn.LayoutELAN, "an earlier version has created the datastore"
	}
	set := func(b *BackendConfig) {
		why := reason
		if b.OVN.Layout != "" {
			why = "--ovn-layout"
		}
		b.OVN.Layout = cmp.Or(b.OVN.Layout, layout)
		if b.Name == "ovn" {
			c.Log.Info("layout of OVN", "layout", b.OVN.Layout, "reason", why)
		}
	}
	set(&c.Backend)
	c.Filled = slices.Clone(c.Filled)
	for i := range c.Filled {
		set(&c.Filled[i])
	}
}

// Backends lists the names of backends.
func Backends() []string { return []string{"memory", "ovn", "odl"} }

// readTimeout bounds the read of a whole backend.
const readTimeout = time.Minute

// Convert compares the objects of coe-bridge in two backends. It writes to neither. Without a layout of OVN they have that of DefaultLayout.
func Convert(ctx context.Context, i mapping.Isolation, from, to BackendConfig, log *slog.Logger) (*plan.Conversion, error) {
	for _, b := range []*BackendConfig{&from, &to} {
		b.OVN.Layout = cmp.Or(b.OVN.Layout, DefaultLayout(i))
	}
	have, err := readBackend(ctx, from, log)
	if err != nil {
		return nil, err
	}
	there, err := readBackend(ctx, to, log)
	if err != nil {
		return nil, err
	}
	return plan.Convert(have, there), nil
}

func readBackend(ctx context.Context, cfg BackendConfig, log *slog.Logger) (plan.Side, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	backend, err := newBackend(cfg, fence{}, log)
	if err != nil {
		return plan.Side{}, err
	}
	defer backend.Close()
	model, err := backend.Read(ctx)
	if err != nil {
		return plan.Side{}, fmt.Errorf("read backend %s: %w", cfg.Name, err)
	}
	kinds := backend.Kinds()
	return plan.Side{Model: model, Kinds: kinds, Limits: limits(cfg, kinds)}, nil
}

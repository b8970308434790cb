package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Conversion is what a move from one backend to another comes to.
type Conversion struct {
	// Changes are what would be written to the other, in that order.
	Changes []netvirt.Change
	// Same is how many objects it has already as they are in the first.
	Same int
	// Lost counts, by kind, the objects of the first that the other does not know.
	Lost map[netvirt.Kind]int
}

// Convert compares what is ours in two backends. It writes to neither.
func Convert(ctx context.Context, from, to BackendConfig, log *slog.Logger) (*Conversion, error) {
	have, _, err := readBackend(ctx, from, log)
	if err != nil {
		return nil, err
	}
	there, kinds, err := readBackend(ctx, to, log)
	if err != nil {
		return nil, err
	}
	c := &Conversion{Lost: map[netvirt.Kind]int{}}
	want := maps.Clone(have)
	maps.DeleteFunc(want, func(k netvirt.Key, _ netvirt.Object) bool {
		if kinds.Has(k.Kind) {
			return false
		}
		c.Lost[k.Kind]++
		return true
	})
	c.Changes = netvirt.Diff(there, want)
	c.Same = len(want) - len(slices.DeleteFunc(slices.Clone(c.Changes), func(c netvirt.Change) bool { return c.New == nil }))
	return c, nil
}

// readBackend reads what is ours in a backend.
func readBackend(ctx context.Context, cfg BackendConfig, log *slog.Logger) (netvirt.Model, netvirt.KindSet, error) {
	ctx, cancel := context.WithTimeout(ctx, inUseTimeout)
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

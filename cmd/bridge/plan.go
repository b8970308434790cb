package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Document is a piece of COE JSON, and what to call it in errors. It holds top
// containers ({"pod:coe": …}) or what would be POSTed to one ({"pod:pods": […]}).
type Document struct {
	Name string
	JSON []byte
}

// Plan computes what documents of COE JSON become, from nothing: the changes in
// the order in which they would be made, and what can't be mapped. It touches
// nothing.
func Plan(ctx context.Context, documents []Document, s mapping.Settings) ([]netvirt.Change, []coe.Problem, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, nil, err
	}
	batch := northbound.Batch{Revision: 1, Snapshot: true}
	for _, d := range documents {
		entries, err := readDocument(schema, d.JSON)
		if err != nil {
			return nil, nil, fmt.Errorf("plan %s: %w", d.Name, err)
		}
		batch.Entries = append(batch.Entries, entries...)
	}
	store, err := planStore(ctx, batch, s)
	if err != nil {
		return nil, nil, err
	}
	want, problems := mapping.Scope(store, netvirt.Cluster, s)
	for _, ns := range store.Namespaces() {
		model, more := mapping.Scope(store, netvirt.Scope(ns), s)
		for k, o := range model {
			want[k] = o
		}
		problems = append(problems, more...)
	}
	return netvirt.Diff(nil, want), problems, nil
}

// planStore tells a store what a batch says, and chooses addresses for it.
func planStore(ctx context.Context, batch northbound.Batch, s mapping.Settings) (*coe.Store, error) {
	var pools []dhcppool.Pool
	store := coe.NewStore(nil, coe.RESTCONF)
	northbound.NewFeed(store, func(all []dhcppool.Pool) { pools = all }, slog.New(slog.DiscardHandler)).Apply(batch)
	if err := dhcppool.Validate(pools, !s.Isolated()); err != nil {
		return nil, fmt.Errorf("plan %s: %w", northbound.Networks, err)
	}
	assigner := ipam.New(ipamConfig(s, 0), store, forgetful{}, slog.New(slog.DiscardHandler))
	if err := assigner.Load(ctx); err != nil {
		return nil, err
	}
	assigner.SetPools(pools)
	_, _, err := assigner.Sync(ctx, store.Namespaces())
	return store, err
}

// readDocument reads and checks the entries of one document.
func readDocument(schema *yang.Schema, document []byte) ([]northbound.Entry, error) {
	tops, err := decodeDocument(schema, document)
	if err != nil {
		return nil, err
	}
	var entries []northbound.Entry
	for _, top := range tops {
		if err := schema.Validate(top, "", nil); err != nil {
			return nil, err
		}
		for _, d := range top.Children {
			if d.Node.Kind != yang.List || len(d.Node.Keys) != 1 {
				continue
			}
			var raw bytes.Buffer
			yang.EncodeObject(&raw, d)
			e := northbound.Entry{List: listName(d.Node), Key: d.Key()[0], Raw: raw.Bytes()}
			if err := northbound.Check(e.List, leaves{d}); err != nil {
				return nil, fmt.Errorf("%s %s: %w", e.List, e.Key, err)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// decodeDocument reads a document in either of its two shapes as top containers.
func decodeDocument(schema *yang.Schema, document []byte) ([]*yang.Data, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, fmt.Errorf("want one JSON object like {\"pod:pods\": […]}: %w", err)
	}
	for name := range members {
		if parent := parentOf(schema, name); parent != nil {
			children, err := schema.DecodeJSON(document, parent, "/"+listName(parent), yang.Lenient)
			return []*yang.Data{{Node: parent, Children: children}}, err
		}
	}
	tops := topNames(schema)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(tops, func(top string) bool { return name == top || strings.HasSuffix(top, ":"+name) }) {
			return nil, fmt.Errorf("%q is nothing that a bridge is told: want %s, or one of the lists in them", name, strings.Join(tops, ", "))
		}
	}
	return schema.DecodeJSON(document, nil, "", yang.Lenient)
}

// topNames are the top containers that a plan reads.
func topNames(schema *yang.Schema) []string {
	var names []string
	for _, m := range schema.Modules {
		for _, top := range m.Top {
			if slices.Contains(readable, m.Name) {
				names = append(names, listName(top))
			}
		}
	}
	return names
}

// parentOf is the top container that has a list of this name ("pod:pods" or
// "pods"), or nil where the name is a top container's own or nobody's.
func parentOf(schema *yang.Schema, name string) *yang.Node {
	module, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		module, local = "", name
	}
	for _, m := range schema.Modules {
		if module != "" && m.Name != module || !slices.Contains(readable, m.Name) {
			continue
		}
		for _, top := range m.Top {
			if child := top.Child(m.Name, local); child != nil && top.Name != local {
				return top
			}
		}
	}
	return nil
}

// readable are the modules whose containers a plan reads.
var readable = []string{"pod", "service", "k8s-node", "dhcp_allocation_pool"}

// forgetful is a journal for what need not be remembered.
type forgetful struct{}

func (forgetful) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (forgetful) MaxOps() int                                     { return 1000 }
func (forgetful) Commit(context.Context, map[string][]byte, []string) error {
	return nil
}

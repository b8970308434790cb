// Package tree is the tree of configuration and state, and the only way to write it:
// a write is a list of Edits that Write makes in one transaction, or not at all. Plain
// requests and YANG Patches (RFC 8072) are the same here.
//
// It holds what an Edit does to the tree, the conditions of a write, entries that come
// from elsewhere (External), the order of lists, defaults, validation across entries, and
// who may write what. It knows neither HTTP nor encodings.
package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Content is the kind of data that a Source is asked for.
type Content uint8

// The kinds of content.
const (
	ContentConfig      Content = iota + 1 // wanted
	ContentOperational                    // observed
)

// Asked is the part of a Source's data that a request is about.
type Asked struct {
	Content Content
	Top     *yang.Node
	// Entry is the key of the one entry of a list right below Top that the request
	// is about; nil if it is about more.
	Entry []string
	// Within is the key of the one entry of a list right below Entry that the request is
	// about; nil if it is about more.
	Within []string
	// Base is the server's address as the client knows it, as in "https://bridge:8181";
	// empty if there is no client.
	Base string
}

// Source supplies the data of a tree that is not in the datastore.
type Source interface {
	// Get returns the current top container, or nil if there is none. It may leave out
	// data that are not asked for. Neither the caller nor the source changes the data
	// afterwards.
	Get(ctx context.Context, asked Asked) (*yang.Data, error)
}

// ReadOnly is a tree that clients cannot write.
type ReadOnly struct {
	Source Source
	// Says tells clients that try to write: where the data come from and what to change
	// instead.
	Says string
	// Followed lets clients follow how the tree's state changes, as the stream
	// "changes=module:container". While a client follows it, the Source is asked every
	// second.
	Followed bool
}

// Config configures a Tree. Maps are by "module:container".
type Config struct {
	Schema    *yang.Schema
	Datastore *datastore.Datastore

	// ReadOnly trees; every other configuration container is writable.
	ReadOnly map[string]ReadOnly
	// State is added to the operational tree of a writable container.
	State map[string]Source
	// External are the external entries of writable lists, by "module:container/list".
	External map[string]External
	// Computed are computed entries of writable lists, by "module:container/list".
	Computed map[string]Computed
	// Checks are run on all entries that a container would have after a write, before
	// the write is made. Deletes of whole entries are not checked, so a Check that holds
	// for entries must hold for fewer of them. Two writes never pass a Check side by side.
	Checks map[string]func(entries []*yang.Data) error
	// EntryChecks are run on each entry written, by "module:container/list". The path of
	// a *yang.Error that a check returns is relative to the entry.
	EntryChecks map[string]func(entry *yang.Data) error
	// Agents decides what an agent may do; nil: agents may do nothing.
	Agents Agents
}

// Tree is safe for use by many goroutines.
type Tree struct {
	schema      *yang.Schema
	store       *datastore.Datastore
	readOnly    map[*yang.Node]ReadOnly
	state       map[*yang.Node]Source
	external    map[*yang.Node]External
	computed    map[*yang.Node]Computed
	checks      map[*yang.Node]func([]*yang.Data) error
	entryChecks map[*yang.Node]func(*yang.Data) error
	agents      Agents
	creating    sync.Map // *sync.Mutex by node
}

// New makes a Tree. It fails if cfg names a node that the schema lacks.
func New(cfg Config) (t *Tree, err error) {
	t = &Tree{schema: cfg.Schema, store: cfg.Datastore, agents: cfg.Agents}
	if t.readOnly, err = byNode(cfg.Schema, cfg.ReadOnly); err != nil {
		return nil, err
	}
	if t.state, err = byNode(cfg.Schema, cfg.State); err != nil {
		return nil, err
	}
	if t.external, err = byNode(cfg.Schema, cfg.External); err != nil {
		return nil, err
	}
	if t.computed, err = byNode(cfg.Schema, cfg.Computed); err != nil {
		return nil, err
	}
	if t.checks, err = byNode(cfg.Schema, cfg.Checks); err != nil {
		return nil, err
	}
	if t.entryChecks, err = byNode(cfg.Schema, cfg.EntryChecks); err != nil {
		return nil, err
	}
	return t, errors.Join(checkExternal(t.external), checkComputed(t.computed))
}

func byNode[V any](schema *yang.Schema, named map[string]V) (map[*yang.Node]V, error) {
	nodes := make(map[*yang.Node]V, len(named))
	for name, value := range named {
		node := nodeOf(schema, name)
		if node == nil {
			return nil, fmt.Errorf("the schema has no node %q", name)
		}
		nodes[node] = value
	}
	return nodes, nil
}

// nodeOf finds "module:container/list"; nil if the schema lacks it.
func nodeOf(schema *yang.Schema, name string) *yang.Node {
	top, below, deeper := strings.Cut(name, "/")
	prefix, local, _ := strings.Cut(top, ":")
	module := schema.Module(prefix)
	if module == nil {
		return nil
	}
	node := module.Child(local)
	for node != nil && deeper {
		local, below, deeper = strings.Cut(below, "/")
		node = node.Child(node.Module.Name, local)
	}
	return node
}

// Writable reports whether clients may write instances of n.
func (t *Tree) Writable(n *yang.Node) bool {
	_, fixed := t.readOnly[n.Top()]
	return !fixed && n.Config
}

// IsReadOnly reports whether a top container is a read-only tree.
func (t *Tree) IsReadOnly(top *yang.Node) bool {
	_, fixed := t.readOnly[top]
	return fixed
}

// Says returns the answer to clients that try to write a read-only tree; empty for any other.
func (t *Tree) Says(top *yang.Node) string { return t.readOnly[top].Says }

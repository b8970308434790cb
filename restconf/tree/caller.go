package tree

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Caller is who makes a request, as far as the tree is concerned.
type Caller struct {
	// Node is the name of the node whose agent calls. Empty: a user, who may write
	// whatever clients can write.
	Node string
}

// Agents decides which resources and streams belong to a node, and so are open to its
// agent. Everything else is closed to agents:
//
//	follow a stream that MayFollow
//	read an entry of a list that MayRead
//	Create entries that MayWrite, in the container that holds them
//	Replace an entry that MayWrite
//	Delete an entry that MayWrite
type Agents interface {
	MayFollow(node, stream string) bool
	// MayRead is about the entry with these keys, outermost list first.
	MayRead(node string, list *yang.Node, keys []string) bool
	// MayWrite is about an entry as it is to be made, or the stored entry that is to be
	// deleted. The op is Create, Replace or Delete.
	MayWrite(node string, op Op, entry *yang.Data) bool
	// Admit reports why these entries cannot be made or replaced for the node now; nil if they can.
	// There is one call at a time for each node. Entries that were admitted are made
	// before the next call. A *DeniedError is sent to the agent.
	Admit(ctx context.Context, node string, entries []*yang.Data) error
}

// MayFollow refuses an agent streams of other nodes. name is as in paths: the stream of a
// node needs no escapes.
func (t *Tree) MayFollow(c Caller, name string) error {
	if c.Node == "" || t.agents != nil && !strings.ContainsAny(name, "%/") && t.agents.MayFollow(c.Node, name) {
		return nil
	}
	return c.Denied()
}

// MayRead refuses an agent whatever it must not read.
func (t *Tree) MayRead(c Caller, at Target) error {
	if c.Node == "" {
		return nil
	}
	if list, keys := at.entry(); list != nil && t.agents != nil && t.agents.MayRead(c.Node, list, keys) {
		return nil
	}
	return c.Denied()
}

// MayEdit refuses an agent what no agent may do, as far as operation and target tell.
// The zero Op is any other request that is not a read.
func (t *Tree) MayEdit(c Caller, op Op, at Target) error {
	if c.Node == "" {
		return nil
	}
	if t.agents != nil && !at.IsRoot() {
		list, _ := at.entry()
		if op == Create && at.Node().Kind == yang.Container || (op == Replace || op == Delete) && list != nil {
			return nil
		}
	}
	return c.Denied()
}

// confineEntries refuses an agent entries that do not belong to its node.
func (t *Tree) confineEntries(c Caller, op Op, entries []*yang.Data) error {
	if c.Node == "" {
		return nil
	}
	for _, entry := range entries {
		if entry.Node.Kind != yang.List || !t.agents.MayWrite(c.Node, op, entry) {
			return c.Denied()
		}
	}
	return nil
}

// confineDelete refuses an agent to delete what does not belong to its node, as it is in
// the transaction. An external entry belongs to no node.
func (a *attempt) confineDelete(c Caller, e Edit) error {
	if c.Node == "" || e.Op != Delete {
		return nil
	}
	at, below := e.At.document()
	if external := a.tree.external[at.Node()]; external != nil && external.Entry(at.Last().Keys[0]) != nil {
		return c.Denied()
	}
	doc, err := a.load(at)
	if err != nil || doc == nil {
		return err // the edit reports what is missing
	}
	if entry := Descend(doc, below); entry != nil {
		return a.tree.confineEntries(c, e.Op, []*yang.Data{entry})
	}
	return nil
}

// admit asks whether an agent may make or replace entries. Until done is called, no other write of
// the agent makes any.
func (t *Tree) admit(ctx context.Context, c Caller, edits []Edit) (done func(), err error) {
	var entries []*yang.Data
	for _, e := range edits {
		if c.Node != "" && (e.Op == Create || e.Op == Replace) {
			entries = append(entries, e.Data...)
		}
	}
	if entries == nil {
		return func() {}, nil
	}
	lock, _ := t.creating.LoadOrStore(c.Node, &sync.Mutex{})
	creating := lock.(*sync.Mutex)
	creating.Lock()
	if err := t.agents.Admit(ctx, c.Node, entries); err != nil {
		creating.Unlock()
		return nil, err
	}
	return creating.Unlock, nil
}

// Denied is the error of a request that is closed to an agent.
func (c Caller) Denied() error {
	return &DeniedError{Message: fmt.Sprintf("the agent of node %s may follow the stream of that node, make and delete pods of it, and report its chassis, and nothing else; "+
		"the bridge has to know the node by that name and its address", c.Node)}
}

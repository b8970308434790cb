package tree

import (
	"context"
	"errors"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Op is what an Edit does: the operations of RFC 8072, and Update.
type Op uint8

// The operations. "Missing" and "exists" are errors.
const (
	Create  Op = iota + 1 // makes Data below At; exists
	Replace               // makes At what Data is, and at its place if Where is set
	Merge                 // merges Data into At, or makes At
	Update                // merges Data into At; missing
	Delete                // removes At; missing
	Remove                // removes At if it is there
	Insert                // makes the list entry At at its place; exists
	Move                  // puts the list entry At at its place; missing
)

// Edit is one change of the tree.
type Edit struct {
	ID string // names the edit in errors; empty for the only edit
	Op Op
	At Target
	// Data is the instance of At. For Create it is children of At. If At is the
	// datastore, which always exists, it is top containers. Write does not change it.
	Data []*yang.Data
	// Where is the place of the entry At in a list that its users order: one of Places,
	// or empty. Point is the entry that it is placed before or after.
	Where string
	Point Target
}

// Condition must hold for the state of a resource before a write is made. The zero
// Condition always holds.
type Condition struct {
	At Target
	// Needed is set if the write fails anyway, with an error of its own, if At is
	// missing. The condition is then not judged.
	Needed bool
	Holds  func(v Version, exists bool) bool
}

// Result describes a write. Its Revision is 0 if nothing was written.
type Result struct {
	datastore.Change
	Created bool // a Replace has made its target
}

// errDryRun ends the transaction of a dry run whose edits are valid.
var errDryRun = errors.New("this is a dry run")

// Write makes all edits in their order, or none. With dryRun it makes none, and reports
// whether it could. An error may come with a Result: the write was made, but is not
// seen yet.
func (t *Tree) Write(ctx context.Context, caller Caller, edits []Edit, condition Condition, dryRun bool) (Result, error) {
	for _, edit := range edits {
		if err := t.Check(caller, edit); err != nil {
			return Result{}, edit.wrap(err)
		}
	}
	done, err := t.admit(ctx, caller, edits)
	if err != nil {
		return Result{}, err
	}
	defer done()
	var made Result
	made.Change, err = t.store.Write(ctx, func(tx *datastore.Tx) (err error) {
		made.Created, err = newAttempt(t, tx).run(ctx, caller, edits, condition)
		if err == nil && dryRun {
			err = errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return made, err
}

// run makes the edits within one attempt.
func (a *attempt) run(ctx context.Context, caller Caller, edits []Edit, condition Condition) (created bool, err error) {
	for _, edit := range edits {
		if err := a.confineDelete(caller, edit); err != nil {
			return false, err
		}
		if err := a.tree.refuseTarget(edit.At); err != nil {
			return false, edit.wrap(err)
		}
	}
	if err := a.hold(condition); err != nil {
		return false, err
	}
	todo := make([]Edit, len(edits))
	for i, edit := range edits { // a stale copy of the container fails the condition
		if todo[i], err = a.tree.siftExternal(edit); err != nil {
			return false, edit.wrap(err)
		}
	}
	for _, edit := range todo {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if len(todo) > 1 { // a later edit may change what this one has written
			edit.Data = copies(edit.Data)
		}
		if created, err = a.apply(edit); err != nil {
			return false, edit.wrap(err)
		}
	}
	return created, a.finish()
}

// hold fails if the condition does not hold.
func (a *attempt) hold(c Condition) error {
	if c.Holds == nil {
		return nil
	}
	exists, err := a.exists(c.At)
	if err != nil || !exists && c.Needed {
		return err
	}
	if !c.Holds(a.tree.version(c.At, a.tx), exists) {
		return &ConditionError{c.At}
	}
	return nil
}

func (e Edit) wrap(err error) error {
	if e.ID == "" {
		return err
	}
	return &EditError{e.ID, err}
}

func copies(data []*yang.Data) []*yang.Data {
	all := make([]*yang.Data, len(data))
	for i, d := range data {
		all[i] = yang.Merge(nil, d)
	}
	return all
}

// Check returns an error if an edit cannot be made in any state of the data: its target
// cannot be written, its data contain state, or the caller must not make it.
func (t *Tree) Check(caller Caller, e Edit) error {
	if err := t.MayEdit(caller, e.Op, e.At); err != nil {
		return err
	}
	if err := t.Editable(e.Op, e.At, "an edit"); err != nil {
		return err
	}
	at := e.At
	if e.Op != Create && !at.IsRoot() {
		at = at.Parent()
	}
	if at.IsRoot() {
		for _, top := range e.Data {
			if fixed, ok := t.readOnly[top.Node]; ok {
				return fixed.refuse(top.Node)
			}
		}
	}
	if err := refuseState(e.Data, at.Path()); err != nil {
		return err
	}
	if err := e.checkPlace(); err != nil {
		return err
	}
	return t.confineEntries(caller, e.Op, e.Data)
}

// Editable returns nil if clients may make such an edit at a target, else a
// *NotEditableError. The request is what its message calls the edit.
func (t *Tree) Editable(op Op, at Target, request string) error {
	if at.IsRoot() {
		if Create <= op && op <= Update {
			return nil
		}
		return &NotEditableError{Message: request + " is not for the whole datastore"}
	}
	node := at.Node()
	fixed, isFixed := t.readOnly[at.Top()]
	message := ""
	switch {
	case isFixed:
		return fixed.refuse(at.Top())
	case !node.Config:
		message = node.Name + " is state, which only this server writes"
	case at.Last().IsList() && node.Kind == yang.List && len(node.Keys) == 0:
		message = request + " is not for the list " + node.Name + ", whose entries have no key: write what holds it"
	case at.Last().IsList():
		message = request + " is for one entry of the list " + node.Name + ": give its key"
	case op == Create && IsLeaf(node):
		message = request + " is not for " + node.Name
	default:
		return nil
	}
	return &NotEditableError{at.Path(), message}
}

func (r ReadOnly) refuse(top *yang.Node) error {
	path := top.Path("")
	return &NotEditableError{path, path + " is read-only: " + r.Says}
}

// refuseState finds state in what a client sent.
func refuseState(data []*yang.Data, at string) error {
	chain := stateIn(data)
	if chain == nil {
		return nil
	}
	for _, d := range slices.Backward(chain) {
		at = d.Path(at)
	}
	return &yang.Error{
		Type: "protocol", Tag: "invalid-value", Path: at,
		Message: chain[0].Node.Name + " is state, which only this server writes: leave it out",
	}
}

// stateIn returns the first state, followed by the data that contain it from the inside out; nil
// if there is no state.
func stateIn(data []*yang.Data) []*yang.Data {
	for _, d := range data {
		if !d.Node.Config {
			return []*yang.Data{d}
		}
		if chain := stateIn(d.Children); chain != nil {
			return append(chain, d)
		}
	}
	return nil
}

package tree

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// External are the entries of a writable list that come from elsewhere. Clients see them
// among the entries that clients wrote, in configuration and operational state alike: the
// models' nodes are configuration, whatever their source. If both have an entry with one
// key, the external one is shown.
//
// Clients cannot change them:
//
//	POST, PUT, PATCH, DELETE of it or in it      409 in-use
//	POST or PATCH with it in the body            409 in-use
//	PUT of the container with it in the body     it is not written if the body has it
//	                                             unchanged (a client that reads, changes and
//	                                             writes back sends all); else 409 in-use
//	PUT of the container without it in the body  it stays
//	DELETE of the container                      the clients' entries go, it stays;
//	                                             409 in-use if clients wrote nothing
//
// This also holds for an entry that a client wrote before it became external. The
// client's entry stays until a client replaces or deletes the container. It is shown again
// if the external entry goes before that.
//
// Whether an entry is external is looked up during a write. An entry that becomes
// external at that moment may still be written; then the external entry is shown.
type External interface {
	// Entry is the entry with this key as a JSON object that yang.DecodeObject reads,
	// with canonical values; nil if there is none. It is not changed afterwards.
	Entry(key string) []byte
	// Entries are all entries in that form, by key and ordered by it.
	Entries() iter.Seq2[string, []byte]
	// Any is the key of any entry, in constant time; empty if there is none.
	Any() string
	// Says tells a client that tries to write the entry with this key: where it comes
	// from and what to do instead. It is empty if there is no such entry.
	Says(key string) string
}

// checkExternal refuses lists that are not right below their top container with one key.
func checkExternal(lists map[*yang.Node]External) error {
	for list := range lists {
		if !IsUnit(list) || len(list.Keys) != 1 || list.Parent.Parent != nil {
			return fmt.Errorf("%s cannot have external entries: it is not a list with one key in a top container", StepsTo(list).Path())
		}
	}
	return nil
}

// refuseTarget refuses an edit of an external or computed entry, or in it.
func (t *Tree) refuseTarget(at Target) error {
	if i := at.unit(); i >= 0 {
		return cmp.Or(t.refuseExternal(at[i]), t.refuseComputed(at[i]))
	}
	return nil
}

// siftExternal is an edit without the external entries that a client sends back
// unchanged. It fails if the edit would write an external entry.
func (t *Tree) siftExternal(e Edit) (Edit, error) {
	switch {
	case e.At.IsRoot():
		for i, top := range e.Data {
			left, err := t.siftEntries(top.Children, e.Op == Create || e.Op == Replace)
			if err != nil {
				return e, err
			}
			if len(left) < len(top.Children) {
				e.Data = slices.Clone(e.Data)
				e.Data[i] = &yang.Data{Node: top.Node, Children: left}
			}
		}
		return e, nil
	case e.At.unit() >= 0:
		return e, nil
	case e.Op == Create:
		_, err := t.siftEntries(e.Data, false)
		return e, err
	case len(e.At) > 1 || len(e.Data) == 0:
		return e, nil
	}
	left, err := t.siftEntries(e.Data[0].Children, e.Op == Replace)
	if err == nil && len(left) < len(e.Data[0].Children) {
		e.Data = []*yang.Data{{Node: e.Data[0].Node, Children: left}}
	}
	return e, err
}

// siftEntries are the children of a top container without the external entries that are
// unchanged. It fails if there is an external entry that is not, or if none may be there.
func (t *Tree) siftEntries(children []*yang.Data, mayBeUnchanged bool) ([]*yang.Data, error) {
	left := make([]*yang.Data, 0, len(children))
	for _, child := range children {
		if t.external[child.Node] != nil {
			same, err := t.isUnchanged(child)
			if err == nil && (!same || !mayBeUnchanged) {
				same, err = false, t.refuseExternal(StepOf(child))
			}
			if err != nil {
				return nil, err
			}
			if same {
				continue
			}
		}
		left = append(left, child)
	}
	return left, nil
}

// isUnchanged reports whether a client sent an external entry as it is.
func (t *Tree) isUnchanged(sent *yang.Data) (bool, error) {
	raw := t.external[sent.Node].Entry(sent.Key()[0])
	if raw == nil {
		return false, nil
	}
	there, err := yang.DecodeObject(raw, sent.Node)
	if err != nil {
		return false, err
	}
	var a, b bytes.Buffer
	yang.EncodeObject(&a, there)
	yang.EncodeObject(&b, sent)
	return bytes.Equal(a.Bytes(), b.Bytes()), nil
}

// refuseExternal fails if the entry of a unit is external.
func (t *Tree) refuseExternal(entry Step) error {
	external := t.external[entry.Node]
	if external == nil {
		return nil
	}
	if says := external.Says(entry.Keys[0]); says != "" {
		return inUse(append(StepsTo(entry.Node.Parent), entry), says)
	}
	return nil
}

// anyExternal is the path of an external entry in a top container and what to tell
// clients about it; says is empty if there is none.
func (t *Tree) anyExternal(top *yang.Node) (at Target, says string) {
	for _, list := range top.Children {
		external := t.external[list]
		if external == nil {
			continue
		}
		for key := external.Any(); key != ""; key = external.Any() { // the entry may have gone since
			if says := external.Says(key); says != "" {
				return append(StepsTo(top), Step{list, []string{key}}), says
			}
		}
	}
	return nil, ""
}

// hasExternal reports whether an external entry is in a top container, which then exists
// although no client wrote it.
func (t *Tree) hasExternal(top *yang.Node) bool {
	_, says := t.anyExternal(top)
	return says != ""
}

// unit is the unit of a list that clients see for a key, or nil.
func (t *Tree) unit(list *yang.Node, key []string) *datastore.Unit {
	if external := t.external[list]; external != nil {
		if raw := external.Entry(key[0]); raw != nil {
			return &datastore.Unit{Node: list, Key: key, Raw: raw}
		}
	}
	return t.store.Get(list, key...)
}

// units are all units of a top container that clients see: the container's own first, then
// list by list in the order of their keys.
func (t *Tree) units(top *yang.Node) []*datastore.Unit {
	return t.withExternal(top, t.store.Tree(top))
}

// withExternal are the units of a top container with the external entries.
func (t *Tree) withExternal(top *yang.Node, units []*datastore.Unit) []*datastore.Unit {
	for _, list := range top.Children {
		external := t.external[list]
		if external == nil {
			continue
		}
		var over []*datastore.Unit
		for key, raw := range external.Entries() {
			over = append(over, &datastore.Unit{Node: list, Key: []string{key}, Raw: raw})
		}
		units = overlay(units, over)
	}
	return units
}

// overlay is units with the entries of one list, ordered by key, added or in the place of
// others.
func overlay(units, over []*datastore.Unit) []*datastore.Unit {
	if len(over) == 0 {
		return units
	}
	list := over[0].Node
	all := make([]*datastore.Unit, 0, len(units)+len(over))
	entries := slices.Clone(over)
	for _, u := range units {
		if u.Node != list {
			all = append(all, u)
		} else if _, hidden := slices.BinarySearchFunc(over, u, byKey); !hidden {
			entries = append(entries, u)
		}
	}
	if len(entries) > len(over) {
		slices.SortFunc(entries, byKey)
	}
	return append(all, entries...)
}

func byKey(a, b *datastore.Unit) int { return strings.Compare(a.Key[0], b.Key[0]) }

// Package entry checks the entries of RESTCONF clients as YANG data, beyond what the
// modules say, and turns them into entries of coe/northbound.
package entry

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/yang"
)

// ListName names a list as coe/northbound does: "module:container/list".
func ListName(list *yang.Node) string {
	name := list.Name
	for p := list.Parent; p != nil; p = p.Parent {
		name = p.Name + "/" + name
	}
	return list.Module.Name + ":" + name
}

// FromData returns an entry of a list as coe/northbound reads it.
func FromData(d *yang.Data) northbound.Entry {
	var raw bytes.Buffer
	yang.EncodeObject(&raw, d)
	return northbound.Entry{List: ListName(d.Node), Key: northbound.JoinKey(d.Key()...), Raw: raw.Bytes()}
}

// Leaves are the leaves of an entry, for northbound.Check.
type Leaves struct{ *yang.Data }

// Each implements northbound.Leaves.
func (l Leaves) Each(list string) iter.Seq[northbound.Leaves] {
	return func(yield func(northbound.Leaves) bool) {
		for _, d := range l.All(list) {
			if !yield(Leaves{d}) {
				return
			}
		}
	}
}

// Check refuses an entry that is valid by the YANG modules, and that no network can have.
func Check(d *yang.Data) error {
	err := northbound.Check(ListName(d.Node), Leaves{d})
	if err == nil {
		err = checkLengths(d, "")
	}
	var leaf *northbound.LeafError
	if errors.As(err, &leaf) {
		return &yang.Error{Type: "application", Tag: "invalid-value", Path: leaf.Leaf, Message: leaf.Err.Error()}
	}
	return err
}

// CheckGateways refuses gateways that could not work, or not together.
func CheckGateways(data []*yang.Data) error {
	entries := make([]northbound.Entry, len(data))
	for i, d := range data {
		entries[i] = FromData(d)
	}
	if err := northbound.CheckGateways(entries); err != nil {
		return &yang.Error{Type: "application", Tag: "invalid-value", Message: err.Error()}
	}
	return nil
}

// maxText is the largest number of bytes of a value: the length of a DNS name.
const maxText = 253

// checkLengths refuses values that are too long. The modules do not bound their strings.
func checkLengths(d *yang.Data, at string) error {
	for _, child := range d.Children {
		path := at + child.Node.Name
		if len(child.Value) > maxText {
			return &yang.Error{
				Type: "application", Tag: "too-big", Path: path,
				Message: fmt.Sprintf("it has %d bytes; want %d at most", len(child.Value), maxText),
			}
		}
		if err := checkLengths(child, path+"/"); err != nil {
			return err
		}
	}
	return nil
}

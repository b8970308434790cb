package tree

import (
	"context"
	"fmt"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Computed are entries of a writable list that are computed, beside those that clients
// wrote. Clients see both, in configuration and operational state. They cannot write an
// entry with a reserved key: 409 in-use. For writers, a container with computed entries alone does not
// exist. A Version does not cover computed entries.
type Computed struct {
	// Source supplies the top container with these entries alone.
	Source Source
	// Reserved reports whether only computed entries have the key.
	Reserved func(key []string) bool
	// Says tells clients that try to write: where the entries come from and what to do
	// instead.
	Says string
}

// checkComputed refuses lists that are not right below their top container.
func checkComputed(lists map[*yang.Node]Computed) error {
	for list := range lists {
		if !IsUnit(list) || list.Parent.Parent != nil {
			return fmt.Errorf("%s cannot have computed entries: it is not a list in a top container", StepsTo(list).Path())
		}
	}
	return nil
}

// computedIn returns the computed entries of a top container.
func (t *Tree) computedIn(top *yang.Node) (all []Computed) {
	for _, list := range top.Children {
		if c, ok := t.computed[list]; ok {
			all = append(all, c)
		}
	}
	return all
}

// withComputed is a top container with the computed entries that a question asks for.
func (t *Tree) withComputed(ctx context.Context, q Question, top *yang.Node, units []*datastore.Unit) (*yang.Data, error) {
	all, err := join(top, units)
	content := ContentConfig
	if q.Part == PartOperational {
		content = ContentOperational
	}
	for _, c := range t.computedIn(top) {
		var more *yang.Data
		if err == nil && q.Part != PartState {
			more, err = c.Source.Get(ctx, q.asked(content, top))
		}
		if more != nil {
			all = yang.Merge(all, more)
		}
	}
	return all, err
}

// refuseComputed fails if the key of an entry is reserved for computed entries.
func (t *Tree) refuseComputed(entry Step) error {
	if c, ok := t.computed[entry.Node]; ok && c.Reserved(entry.Keys) {
		return inUse(append(StepsTo(entry.Node.Parent), entry), c.Says)
	}
	return nil
}

package reconcile

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// joined makes an update of the deletion of an object in the cluster's scope and the creation of an object with the same key in
// another scope. If an external writer has changed the rows of an object, the backend possibly lacks its namespace.
// The deletion alone, which comes later, would delete the new object.
func joined(changes []netvirt.Change) []netvirt.Change {
	deleted := map[netvirt.Key]netvirt.Object{}
	for _, c := range changes {
		if c.New == nil && c.Scope() == netvirt.Cluster {
			deleted[c.Key()] = c.Old
		}
	}
	if len(deleted) == 0 {
		return changes
	}
	updated := map[netvirt.Key]bool{}
	for i, c := range changes {
		if old := deleted[c.Key()]; c.Old == nil && old != nil {
			changes[i].Old, updated[c.Key()] = old, true
		}
	}
	return slices.DeleteFunc(changes, func(c netvirt.Change) bool { return c.New == nil && updated[c.Key()] })
}

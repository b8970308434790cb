package reconcile

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// joined makes an update of the creation of an object in the scope of a namespace if the backend has an object with the same key in the
// cluster's scope: an external writer has changed the rows of the object, and the backend lacks its namespace. Otherwise the cluster's scope,
// which can come later, would delete the new object.
func (l *Loop) joined(changes []netvirt.Change) []netvirt.Change {
	l.mu.RLock()
	defer l.mu.RUnlock()
	cluster := l.have[netvirt.Cluster]
	updated := map[netvirt.Key]bool{}
	for i, c := range changes {
		if c.Old != nil || c.Scope() == netvirt.Cluster {
			continue
		}
		if old := cluster.Get(c.Key()); old != nil {
			changes[i].Old, updated[c.Key()] = old, true
		}
	}
	return slices.DeleteFunc(changes, func(c netvirt.Change) bool { return c.New == nil && updated[c.Key()] })
}

// leavesCluster reports whether a change is an update that joined has made: the cluster's scope has the object no more.
func leavesCluster(c netvirt.Change) bool {
	return c.Old != nil && c.New != nil && c.Old.Scope() == netvirt.Cluster && c.New.Scope() != netvirt.Cluster
}

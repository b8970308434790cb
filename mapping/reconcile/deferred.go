package reconcile

import (
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// repeatAfter is how long a scope waits whose changes the backend has deferred.
const repeatAfter = 250 * time.Millisecond

// without returns what was made of changes if the backend has deferred some, and the scopes of these.
func without(changes []netvirt.Change, deferred *netvirt.DeferredError) (made []netvirt.Change, late map[netvirt.Scope]bool) {
	late = map[netvirt.Scope]bool{}
	for _, c := range changes {
		have, is := deferred.Have[c.Key()]
		if is {
			late[c.Scope()] = true
			c.New = have
		}
		if c.Old != c.New {
			made = append(made, c)
		}
	}
	return made, late
}

package plan

import (
	"maps"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Conversion is what a move from one backend to another would change.
type Conversion struct {
	Changes []netvirt.Change // in the order in which they would be written to the other
	// Same is the number of objects that are the same in both.
	Same int
	// Lost counts, by kind, the objects of the first that the other has no form for.
	Lost map[netvirt.Kind]int
}

// Convert compares what one backend has with what another, of these kinds, has.
func Convert(from, to netvirt.Model, kinds netvirt.KindSet) *Conversion {
	c := &Conversion{Lost: map[netvirt.Kind]int{}}
	want := maps.Clone(from)
	maps.DeleteFunc(want, func(k netvirt.Key, _ netvirt.Object) bool {
		if kinds.Has(k.Kind) {
			return false
		}
		c.Lost[k.Kind]++
		return true
	})
	c.Changes, c.Same = netvirt.Diff(to, want), len(want)
	for _, change := range c.Changes {
		if change.New != nil {
			c.Same--
		}
	}
	return c
}

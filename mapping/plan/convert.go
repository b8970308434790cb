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

// Side is a backend of a move.
type Side struct {
	Model  netvirt.Model // what it has
	Kinds  netvirt.KindSet
	Limits netvirt.Limits
}

// Convert compares what one backend has with what another has. It leaves out what only the other has a form for: the
// mapping gives it to that backend alone.
func Convert(from, to Side) *Conversion {
	c := &Conversion{Lost: map[netvirt.Kind]int{}}
	want := maps.Clone(from.Model)
	maps.DeleteFunc(want, func(k netvirt.Key, _ netvirt.Object) bool {
		if to.Kinds.Has(k.Kind) {
			return false
		}
		c.Lost[k.Kind]++
		return true
	})
	there := maps.Clone(to.Model)
	maps.DeleteFunc(there, func(k netvirt.Key, _ netvirt.Object) bool { return !from.Kinds.Has(k.Kind) })
	if from.Limits.NodesBalance != to.Limits.NodesBalance {
		withoutNodePorts(want)
		withoutNodePorts(there)
	}
	if from.Limits.NoDHCP || to.Limits.NoDHCP {
		withoutDHCP(want)
		withoutDHCP(there)
	}
	c.Changes, c.Same = netvirt.Diff(there, want), len(want)
	for _, change := range c.Changes {
		if change.New != nil {
			c.Same--
		}
	}
	return c
}

// withoutNodePorts removes the ports of nodes in elan-instances. A backend whose nodes lead pods to services has others.
func withoutNodePorts(m netvirt.Model) {
	maps.DeleteFunc(m, func(k netvirt.Key, _ netvirt.Object) bool { return k.Kind == netvirt.KindNodePort })
}

func withoutDHCP(m netvirt.Model) {
	for k, o := range m {
		if i, ok := o.(netvirt.Interface); ok && i.DHCP {
			i.DHCP = false
			m[k] = i
		}
	}
}

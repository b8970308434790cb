package mapping

import (
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// mappedGroups are the RemoteGroups of the last mapping of the cluster's scope, except the groups of nodes: there are groups of rules and of
// EgressIPs, and of each namespace with pods if ACLs keep namespaces apart. An ACE without its group allows nothing.
type mappedGroups struct {
	policies *policies
	groups   map[string]netvirt.RemoteGroup // by name
	// blocks is how many blocks each namespace has: there is one for each namespace on a node. touched are the namespaces whose number
	// has changed since the last update.
	blocks  map[string]int
	touched map[string]bool
}

// count adds blocks, or removes them.
func (m *mappedGroups) count(blocks []*coe.Block, by int) {
	if m.blocks == nil {
		m.blocks, m.touched = map[string]int{}, map[string]bool{}
	}
	for _, b := range blocks {
		if _, namespace, err := netvirt.ParseELANName(b.ELAN); err == nil {
			m.touched[namespace] = true
			if m.blocks[namespace] += by; m.blocks[namespace] == 0 {
				delete(m.blocks, namespace)
			}
		}
	}
}

// update adds the parts of the groups that have changed. With other policies it compares all groups.
func (m *mappedGroups) update(all *policies, changed map[string]*netvirt.Part) {
	stale := map[string]*group{} // nil if there is none
	look := m.touched
	if all != m.policies {
		look = nil
		for name := range m.groups {
			stale[name] = nil
		}
		for name, g := range all.groups {
			stale[name] = g
		}
		if all.separates {
			for namespace := range m.blocks {
				g := all.ownGroup(namespace)
				stale[g.name] = g
			}
		}
	}
	for namespace := range look {
		if all.separates {
			g := all.ownGroup(namespace)
			stale[g.name] = all.groups[g.name]
			if m.blocks[namespace] > 0 {
				stale[g.name] = g
			}
		}
	}
	m.policies = all
	clear(m.touched)
	m.replace(stale, changed)
}

// replace replaces groups, and adds the parts of those that differ.
func (m *mappedGroups) replace(stale map[string]*group, changed map[string]*netvirt.Part) {
	if m.groups == nil {
		m.groups = map[string]netvirt.RemoteGroup{}
	}
	for name, g := range stale {
		had, found := m.groups[name]
		if g == nil {
			if found {
				delete(m.groups, name)
				changed[netvirt.GroupPart(name)] = nil
			}
			continue
		}
		if o := g.object(); !found || o != had {
			m.groups[name] = o
			changed[netvirt.GroupPart(name)] = netvirt.NewPart(o)
		}
	}
}

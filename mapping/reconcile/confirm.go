package reconcile

import (
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Confirms reports whether the backend has the interface of a lease exactly as the lease
// describes it, and the network lacks nothing of it.
func (l *Loop) Confirms(lease *coe.Lease) bool {
	s := netvirt.Scope(lease.Namespace)
	i, found := l.Has(s, netvirt.Interface{Name: lease.Name}.Key()).(netvirt.Interface)
	if !found || i.PodUID != lease.PodUID || i.UID != lease.InterfaceUID || l.Lacks(i) != "" {
		return false
	}
	e, found := l.Has(s, netvirt.ELANInterface{Name: lease.Name}.Key()).(netvirt.ELANInterface)
	if !found || e.ELAN != netvirt.ELANName(lease.Node, lease.Namespace) || l.Lacks(e) != "" {
		return false
	}
	for _, x := range lease.Addresses {
		key := netvirt.Adjacency{Interface: lease.Name, Address: x.Address}.Key()
		a, found := l.Has(s, key).(netvirt.Adjacency)
		if !found || a.MAC != lease.MAC || l.Lacks(a) != "" {
			return false
		}
	}
	return true
}

// podsOf lists the UIDs of the pods whose interfaces changes are about.
func (l *Loop) podsOf(changes []netvirt.Change) []string {
	pods := map[string]bool{}
	for _, c := range changes {
		if uid := l.podOf(c); uid != "" {
			pods[uid] = true
		}
	}
	return slices.Collect(maps.Keys(pods))
}

// podOf is the UID of the pod whose interface a change is about; empty for any other change.
func (l *Loop) podOf(c netvirt.Change) string {
	switch o := c.Object().(type) {
	case netvirt.Interface:
		return o.PodUID
	case netvirt.ELANInterface:
		return l.interfaceOf(c.Scope(), o.Name).PodUID
	case netvirt.Adjacency:
		return l.interfaceOf(c.Scope(), o.Interface).PodUID
	}
	return ""
}

// podsOfInterfaces lists the UIDs of the pods that have interfaces; nil for nil.
func (l *Loop) podsOfInterfaces(names []string) []string {
	if names == nil {
		return nil
	}
	pods := map[string]bool{}
	for _, name := range names {
		namespace, _, _, _ := netvirt.ParseInterfaceName(name)
		if uid := l.interfaceOf(netvirt.Scope(namespace), name).PodUID; uid != "" {
			pods[uid] = true
		}
	}
	return append([]string{}, slices.Collect(maps.Keys(pods))...)
}

// interfaceOf is an interface that the backend has; zero if it has none of that name.
func (l *Loop) interfaceOf(s netvirt.Scope, name string) netvirt.Interface {
	i, _ := l.Has(s, netvirt.Interface{Name: name}.Key()).(netvirt.Interface)
	return i
}

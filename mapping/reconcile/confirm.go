package reconcile

import (
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Confirms reports whether the backend has the interface of a lease exactly as the lease
// describes it, and the network lacks nothing of it. If the node has a port in the
// interface's elan-instance, the network must also lack nothing of that: it is the pod's
// way to its node, or to services.
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
	if port := l.Has(s, netvirt.NodePort{ELAN: e.ELAN}.Key()); port != nil && l.Lacks(port) != "" {
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

// podsOfInterfaces lists the UIDs of the pods that have interfaces, or whose node's port in
// their elan-instance is one of them; nil for nil.
func (l *Loop) podsOfInterfaces(names []string) []string {
	if names == nil {
		return nil
	}
	pods := map[string]bool{}
	for _, name := range names {
		if node, namespace, ok := netvirt.ParseNodePort(name); ok {
			l.addPodsOf(pods, netvirt.Scope(namespace), netvirt.ELANName(node, namespace))
			continue
		}
		namespace, _, _, _ := netvirt.ParseInterfaceName(name)
		if uid := l.interfaceOf(netvirt.Scope(namespace), name).PodUID; uid != "" {
			pods[uid] = true
		}
	}
	return append([]string{}, slices.Collect(maps.Keys(pods))...)
}

// addPodsOf adds the UIDs of the pods that have interfaces in an elan-instance.
func (l *Loop) addPodsOf(pods map[string]bool, s netvirt.Scope, elan string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, part := range l.have[s] {
		if elanOf(part) != elan {
			continue
		}
		if i, found := part.Model[netvirt.Interface{Name: part.Name}.Key()].(netvirt.Interface); found {
			pods[i.PodUID] = true
		}
	}
}

// elanOf is the elan-instance of the interface whose part it is; empty if it has none.
func elanOf(part *netvirt.Part) string {
	e, _ := part.Model[netvirt.ELANInterface{Name: part.Name}.Key()].(netvirt.ELANInterface)
	return e.ELAN
}

// interfaceOf is an interface that the backend has; zero if it has none of that name.
func (l *Loop) interfaceOf(s netvirt.Scope, name string) netvirt.Interface {
	i, _ := l.Has(s, netvirt.Interface{Name: name}.Key()).(netvirt.Interface)
	return i
}

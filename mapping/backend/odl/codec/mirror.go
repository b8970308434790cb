package codec

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Mirror holds our entries in the datastore, as of the last read and the writes since.
type Mirror struct {
	codec
	Identity string // of the datastore; empty if it has none
	units    map[Unit]*Content
	// byVPN holds elan-instances, by the names that their namespace's vpn-instance may have.
	byVPN map[string][]string
	// users holds the units whose entries depend on an ACL or a RemoteGroup, or name a list that permits everything.
	users map[netvirt.Key]map[Unit]bool
	// touched holds the value of clock when a unit was last written.
	touched map[Unit]uint64
	Clock   uint64 // counts writes of units
}

// NewMirror returns an empty mirror of a controller whose l3vpn has a form.
func NewMirror(f Form) *Mirror {
	m := &Mirror{units: map[Unit]*Content{}, byVPN: map[string][]string{}, users: map[netvirt.Key]map[Unit]bool{}, touched: map[Unit]uint64{}}
	m.codec = codec{
		form: f, elans: func(vpn string) []string { return m.byVPN[vpn] }, vpnOf: m.vpnOf,
		open: map[netvirt.Direction]bool{}, transits: map[string]string{}, networks: map[netip.Prefix]netvirt.NodeNetwork{}, acls: map[string]netvirt.Direction{}, groups: map[string]netvirt.RemoteGroup{}, Subnets: newSubnets(nil),
	}
	return m
}

// Put sets the entry of a unit in a list; nil removes it.
func (m *Mirror) Put(u Unit, l int, e Entry) {
	have := m.units[u]
	if have == nil {
		have = &Content{}
		m.units[u] = have
	}
	m.use(u, have[l], e)
	have[l] = e
	if *have == (Content{}) {
		delete(m.units, u)
	}
	switch u.Kind {
	case netvirt.KindELANInstance:
		m.index(u.Name, e != nil)
	case netvirt.KindVPNInstance:
		m.Join(u.Name, transitOf(e))
	case netvirt.KindNodeNetwork:
		m.putNetwork(u, e)
	case netvirt.KindACL:
		if d, open := openDirection(u.Name); open {
			m.open[d] = e != nil && Same(e, openList(d))
		}
	}
}

// use records on which lists a unit depends, and the content of an ACL or RemoteGroup.
func (m *Mirror) use(u Unit, was, now Entry) {
	for _, key := range dependsOn(was) {
		if delete(m.users[key], u); len(m.users[key]) == 0 {
			delete(m.users, key)
		}
	}
	for _, key := range dependsOn(now) {
		if m.users[key] == nil {
			m.users[key] = map[Unit]bool{}
		}
		m.users[key][u] = true
	}
	if old := listObject(was); old != nil {
		m.Learn(netvirt.Change{Old: old})
	}
	if o := listObject(now); o != nil {
		m.Learn(netvirt.Change{New: o})
	}
}

// Named reports whether an interface in the datastore names the access list of an operation.
func (m *Mirror) Named(o *Operation) bool {
	for u := range m.users[o.of] {
		if u.Kind == netvirt.KindInterface {
			return true
		}
	}
	return false
}

// Learn records what changes of an ACL, a RemoteGroup or a NodeNetwork.
func (m *Mirror) Learn(c netvirt.Change) {
	switch o := c.Object().(type) {
	case netvirt.ACL:
		delete(m.acls, o.Name)
		if c.New != nil {
			m.acls[o.Name] = o.Isolates
		}
	case netvirt.RemoteGroup:
		delete(m.groups, o.Name)
		if c.New != nil {
			m.groups[o.Name] = o
		}
	case netvirt.NodeNetwork:
		delete(m.networks, o.Prefix)
		if c.New != nil {
			m.networks[o.Prefix] = o
		}
	}
}

// At returns the entries of a unit.
func (m *Mirror) At(u Unit) Content {
	if have := m.units[u]; have != nil {
		return *have
	}
	return Content{}
}

// Join records the Transit of a vpn-instance.
func (m *Mirror) Join(vpn, transit string) {
	if transit == "" {
		delete(m.transits, vpn)
	} else {
		m.transits[vpn] = transit
	}
}

// putNetwork records the NodeNetwork of an entry, nil for none.
func (m *Mirror) putNetwork(u Unit, e Entry) {
	prefix, _ := parseNetworkName(u.Name)
	delete(m.networks, prefix)
	if o, ok := head[netvirt.NodeNetwork](decodeNetwork(nil, Content{ELANInstances: e})); ok && e != nil {
		m.networks[prefix] = o
	}
}

// managementPorts returns the units of the management ports.
func (m *Mirror) managementPorts() (all []Unit) {
	for u := range m.units {
		if u.Kind == netvirt.KindManagementPort {
			all = append(all, u)
		}
	}
	return all
}

// members returns the interfaces of a vpn-instance.
func (m *Mirror) members(vpn string) []Unit {
	var all []Unit
	for u := range m.units {
		if namespace, _, _, err := netvirt.ParseInterfaceName(u.Name); u.Kind == netvirt.KindInterface && err == nil && netvirt.MayName(vpn, namespace) {
			all = append(all, u)
		}
	}
	return all
}

// index adds an elan-instance to byVPN, or removes it.
func (m *Mirror) index(elan string, there bool) {
	_, namespace, err := netvirt.ParseELANName(elan)
	if err != nil {
		return
	}
	for _, vpn := range netvirt.VPNNames(namespace) {
		at, found := slices.BinarySearch(m.byVPN[vpn], elan)
		switch {
		case there && !found:
			m.byVPN[vpn] = slices.Insert(m.byVPN[vpn], at, elan)
		case !there && found:
			if m.byVPN[vpn] = slices.Delete(m.byVPN[vpn], at, at+1); len(m.byVPN[vpn]) == 0 {
				delete(m.byVPN, vpn)
			}
		}
	}
}

// vpnOf implements codec.vpnOf.
func (m *Mirror) vpnOf(namespace string) string {
	names := netvirt.VPNNames(namespace)
	for _, name := range names[1:] {
		have := m.At(Unit{netvirt.KindVPNInstance, name})
		vpn, ok := head[netvirt.VPNInstance](m.decodeVPNInstance(nil, have))
		if ok && vpn.Namespace == namespace {
			return name
		}
	}
	return names[0]
}

// Touch records that a unit is being written.
func (m *Mirror) Touch(u Unit) {
	m.Clock++
	m.touched[u] = m.Clock
}

// KeepOurs removes the units that are not ours.
func (m *Mirror) KeepOurs() {
	for u, have := range m.units {
		if m.isOurs(u, *have) {
			continue
		}
		for l, e := range have {
			if e != nil {
				m.Put(u, l, nil)
			}
		}
	}
}

// Model decodes the mirror. It uses all processors, because decoding takes most of the
// bridge's time for a Read.
func (m *Mirror) Model() netvirt.Model {
	shares := make([]share, runtime.GOMAXPROCS(0))
	n := 0
	for u, have := range m.units {
		s := &shares[n%len(shares)]
		s.units = append(s.units, u)
		s.have = append(s.have, have)
		n++
	}
	var group sync.WaitGroup
	for i := range shares {
		s := &shares[i]
		s.objects = make(netvirt.Model, 5*len(s.units))
		if i == 0 {
			s.objects = make(netvirt.Model, 5*len(m.units)) // gets the others'
		}
		group.Go(func() { s.decode(m) })
	}
	group.Wait()
	all := shares[0].objects
	for _, s := range shares[1:] {
		maps.Copy(all, s.objects)
	}
	m.Subnets = newSubnets(nil)
	for _, s := range shares {
		m.Subnets.learn(s.subnets)
	}
	return all
}

// share is the part of a mirror that one goroutine decodes.
type share struct {
	units   []Unit
	have    []*Content    // of each
	objects netvirt.Model // of all of them
	subnets *subnets
}

// decode decodes the share. It does not change the mirror.
func (s *share) decode(m *Mirror) {
	own := m.codec
	own.Subnets = newSubnets(m.Subnets)
	var objects []netvirt.Object
	for i, u := range s.units {
		objects = own.Decode(u, *s.have[i], objects[:0])
		s.objects.Add(objects...)
	}
	s.subnets = own.Subnets
}

// Agrees reports whether another reading of the datastore equals the mirror, apart from
// the units that were written since then.
func (m *Mirror) Agrees(now *Mirror, then uint64) bool {
	if m.Identity != now.Identity && m.Identity != "" && now.Identity != "" {
		return false
	}
	for u, have := range m.units {
		if m.touched[u] <= then && !equal(*have, now.At(u)) {
			return false
		}
	}
	for u := range now.units {
		if _, found := m.units[u]; !found && m.touched[u] <= then {
			return false
		}
	}
	return true
}

func equal(a, b Content) bool {
	for l := range a {
		if (a[l] == nil) != (b[l] == nil) || a[l] != nil && !Same(a[l], b[l]) {
			return false
		}
	}
	return true
}

// ForgetTouched forgets the writes until then.
func (m *Mirror) ForgetTouched(then uint64) {
	maps.DeleteFunc(m.touched, func(_ Unit, at uint64) bool { return at <= then })
}

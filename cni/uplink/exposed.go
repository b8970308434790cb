package uplink

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// exposed are the ports on which the node answers for services. There can be thousands, so a change copies none of
// the others. Its fields need the lock of the Uplink.
type exposed struct {
	ports map[string]*ExposedPort // by key
	// untaken are the ports that have changed since TakeExposed, as they are or were; all: every port.
	untaken map[string]*ExposedPort
	all     bool
}

// exposedChanges are the changes of a group of events.
type exposedChanges struct {
	snapshot bool // other ports are gone
	changes  []*exposedChange
}

// read adds the change of an event.
func (c *exposedChanges) read(name string, content json.RawMessage) error {
	one := &exposedChange{}
	if err := json.Unmarshal(content, one); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	one.Own, one.Inside = name == ownEvent, name == insideEvent
	c.changes = append(c.changes, one)
	return nil
}

func newExposed(ports ...*ExposedPort) exposed {
	e := exposed{ports: make(map[string]*ExposedPort, len(ports)), untaken: map[string]*ExposedPort{}, all: true}
	for _, p := range ports {
		e.ports[p.Key()] = p
	}
	return e
}

// apply applies the changes of a group.
func (e *exposed) apply(c exposedChanges) {
	if c.snapshot {
		*e = newExposed()
	}
	for _, one := range c.changes {
		key := one.Key()
		if e.untaken[key] = &one.ExposedPort; one.Operation == "put" {
			e.ports[key] = &one.ExposedPort
		} else {
			delete(e.ports, key)
		}
	}
}

// sortPorts sets the ports in order.
func (k *kept) sortPorts(ports []*ExposedPort) {
	byKey := make(map[string]*ExposedPort, len(ports))
	for _, p := range ports {
		byKey[p.Key()] = p
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		switch p := byKey[key]; {
		case p.Own:
			k.Own = append(k.Own, p)
		case p.Inside:
			k.Inside = append(k.Inside, p)
		case p.External.Is6():
			k.IPv6 = append(k.IPv6, p)
		case p.External.IsValid():
			k.External = append(k.External, p)
		default:
			k.Exposed = append(k.Exposed, p)
		}
	}
}

// ports returns all ports of services.
func (k *kept) ports() []*ExposedPort {
	return slices.Concat(k.Exposed, k.External, k.IPv6, k.Own, k.Inside)
}

// ExposedChanges are changed ports on which the node answers for services. They must not be changed.
type ExposedChanges struct {
	// All: Put has all ports. Otherwise Put has those that are new or changed, and Gone those that are deleted, of which
	// only what identifies them counts.
	All       bool
	Put, Gone []*ExposedPort
	// Nodes are the addresses of all nodes, if a port is local.
	Nodes []netip.Addr
}

// TakeExposed returns the ports that have changed since the last call, or all of them: with all, at the first call,
// and after the bridge has sent a snapshot. known is false after a boot of the node, until the bridge has sent the
// ports: the saved state can be of before a long absence, and its addresses can belong to others now.
func (u *Uplink) TakeExposed(all bool) (c ExposedChanges, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.status.Synced && !u.sameBoot {
		return ExposedChanges{}, false
	}
	c = ExposedChanges{All: all || u.exposed.all, Nodes: u.state.nodes}
	if c.All {
		c.Put = slices.Collect(maps.Values(u.exposed.ports))
	} else {
		for key, p := range u.exposed.untaken {
			if u.exposed.ports[key] == nil {
				c.Gone = append(c.Gone, p)
			} else {
				c.Put = append(c.Put, p)
			}
		}
	}
	u.exposed.all = false
	clear(u.exposed.untaken)
	return c, true
}

// HasExternal reports whether a service has an external address.
func (u *Uplink) HasExternal(a netip.Addr) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.exposed.ports {
		if p.External == a && !p.Own && !a.IsUnspecified() {
			return true
		}
	}
	return false
}

// ServicesChanged returns a channel that is closed at the next change of ports of services, of health checks, or of the
// addresses of nodes.
func (u *Uplink) ServicesChanged() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.services
}

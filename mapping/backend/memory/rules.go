package memory

import (
	"fmt"
	"iter"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// sets holds sets of keys. Most sets have one member, which needs no map of its own.
type sets[K comparable] struct {
	first map[K]netvirt.Key
	more  map[K]map[netvirt.Key]struct{} // beside the first
}

func newSets[K comparable]() sets[K] {
	return sets[K]{map[K]netvirt.Key{}, map[K]map[netvirt.Key]struct{}{}}
}

func (s sets[K]) include(at K, k netvirt.Key) {
	first, found := s.first[at]
	switch {
	case !found:
		s.first[at] = k
	case first == k:
	case s.more[at] == nil:
		s.more[at] = map[netvirt.Key]struct{}{k: {}}
	default:
		s.more[at][k] = struct{}{}
	}
}

func (s sets[K]) exclude(at K, k netvirt.Key) {
	delete(s.more[at], k)
	if s.first[at] == k {
		delete(s.first, at)
		for next := range s.more[at] {
			s.first[at] = next
			delete(s.more[at], next)
			break
		}
	}
	if len(s.more[at]) == 0 {
		delete(s.more, at)
	}
}

// of returns the members of a set.
func (s sets[K]) of(at K) iter.Seq[netvirt.Key] {
	return func(yield func(netvirt.Key) bool) {
		if first, found := s.first[at]; !found || !yield(first) {
			return
		}
		for k := range s.more[at] {
			if !yield(k) {
				return
			}
		}
	}
}

// index finds the objects that the rules compare, without a search of the model.
type index struct {
	referrers map[netvirt.Key]int // how many objects refer to a key
	holders   sets[netip.Addr]    // the adjacencies of an address
	ports     sets[string]        // the interfaces of a port on a node's switch
}

func newIndex() index {
	return index{map[netvirt.Key]int{}, newSets[netip.Addr](), newSets[string]()}
}

func (i index) add(k netvirt.Key, o netvirt.Object) {
	for _, ref := range o.Refs() {
		i.referrers[ref]++
	}
	switch o := o.(type) {
	case netvirt.Adjacency:
		i.holders.include(o.Address, k)
	case netvirt.Interface:
		i.ports.include(o.ParentInterface, k)
	}
}

func (i index) remove(k netvirt.Key, o netvirt.Object) {
	for _, ref := range o.Refs() {
		if i.referrers[ref]--; i.referrers[ref] == 0 {
			delete(i.referrers, ref)
		}
	}
	switch o := o.(type) {
	case netvirt.Adjacency:
		i.holders.exclude(o.Address, k)
	case netvirt.Interface:
		i.ports.exclude(o.ParentInterface, k)
	}
}

// portFree returns an error if another interface has the port.
func (b *Backend) portFree(o netvirt.Interface) error {
	for other := range b.index.ports.of(o.ParentInterface) {
		if other != o.Key() {
			return fmt.Errorf("port %s belongs to %s", o.ParentInterface, other)
		}
	}
	return nil
}

// domain returns the routing domain of a vpn-instance: the vpn-instance itself, or the
// transit that it shares with others.
func (b *Backend) domain(vpn string) string {
	o := b.model[netvirt.Key{Kind: netvirt.KindVPNInstance, Name: vpn}].(netvirt.VPNInstance)
	return domainOf(o)
}

func domainOf(o netvirt.VPNInstance) string {
	if o.Transit != "" {
		return "transit " + o.Transit
	}
	return "vpn " + o.Name
}

// addressFree returns an error if another interface in the same routing domain holds the
// address. of returns the domain of a vpn-instance.
func (b *Backend) addressFree(o netvirt.Adjacency, domain string, of func(vpn string) string) error {
	for other := range b.index.holders.of(o.Address) {
		name := b.model[other].(netvirt.Adjacency).Interface
		if name == o.Interface {
			continue
		}
		vpn := b.model[netvirt.Key{Kind: netvirt.KindVPNInterface, Name: name}].(netvirt.VPNInterface)
		if of(vpn.VPN) == domain {
			return fmt.Errorf("%s has address %s in the same routing domain", other, o.Address)
		}
	}
	return nil
}

// domainFree is addressFree for all addresses that move to another routing domain: those
// of the vpn-interfaces for which moves returns true. It searches the whole model, because
// such changes are rare.
func (b *Backend) domainFree(to string, moves func(netvirt.VPNInterface) bool, of func(vpn string) string) error {
	for _, o := range b.model {
		a, ok := o.(netvirt.Adjacency)
		if !ok {
			continue
		}
		i := b.model[netvirt.Key{Kind: netvirt.KindVPNInterface, Name: a.Interface}].(netvirt.VPNInterface)
		if !moves(i) {
			continue
		}
		if err := b.addressFree(a, to, of); err != nil {
			return err
		}
	}
	return nil
}

// interfaceFree is domainFree for an interface that moves to another vpn-instance.
func (b *Backend) interfaceFree(o netvirt.VPNInterface) error {
	return b.domainFree(b.domain(o.VPN), func(i netvirt.VPNInterface) bool { return i.Name == o.Name }, b.domain)
}

// instanceFree is domainFree for a vpn-instance that moves to another domain.
func (b *Backend) instanceFree(o netvirt.VPNInstance) error {
	return b.domainFree(domainOf(o), func(i netvirt.VPNInterface) bool { return i.VPN == o.Name }, func(vpn string) string {
		if vpn == o.Name {
			return domainOf(o)
		}
		return b.domain(vpn)
	})
}

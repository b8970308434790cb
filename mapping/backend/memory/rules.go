package memory

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// keys is a set of keys.
type keys map[netvirt.Key]struct{}

// index answers the questions of the rules without a walk over the model.
type index struct {
	referrers map[netvirt.Key]keys // who refers to a key
	holders   map[netip.Addr]keys  // the adjacencies of an address
	ports     map[string]keys      // the interfaces of a port on a node's switch
}

func newIndex() index {
	return index{map[netvirt.Key]keys{}, map[netip.Addr]keys{}, map[string]keys{}}
}

func (i index) add(o netvirt.Object) {
	for _, ref := range o.Refs() {
		include(i.referrers, ref, o.Key())
	}
	switch o := o.(type) {
	case netvirt.Adjacency:
		include(i.holders, o.Address, o.Key())
	case netvirt.Interface:
		include(i.ports, o.ParentInterface, o.Key())
	}
}

func (i index) remove(o netvirt.Object) {
	for _, ref := range o.Refs() {
		exclude(i.referrers, ref, o.Key())
	}
	switch o := o.(type) {
	case netvirt.Adjacency:
		exclude(i.holders, o.Address, o.Key())
	case netvirt.Interface:
		exclude(i.ports, o.ParentInterface, o.Key())
	}
}

func (i index) anyReferrer(k netvirt.Key) (netvirt.Key, bool) {
	for from := range i.referrers[k] {
		return from, true
	}
	return netvirt.Key{}, false
}

func include[K comparable](sets map[K]keys, at K, k netvirt.Key) {
	if sets[at] == nil {
		sets[at] = keys{}
	}
	sets[at][k] = struct{}{}
}

func exclude[K comparable](sets map[K]keys, at K, k netvirt.Key) {
	delete(sets[at], k)
	if len(sets[at]) == 0 {
		delete(sets, at)
	}
}

// portFree is the rule that no two interfaces have one port.
func (b *Backend) portFree(o netvirt.Interface) error {
	for other := range b.index.ports[o.ParentInterface] {
		if other != o.Key() {
			return fmt.Errorf("port %s is that of %s", o.ParentInterface, other)
		}
	}
	return nil
}

// domain is the routing domain of a vpn-instance: itself, or the transit that
// it shares with others. Neither can be called as the other is.
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

// addressFree is the rule that no address is held by two interfaces in one
// routing domain. of tells the domain of a vpn-instance.
func (b *Backend) addressFree(o netvirt.Adjacency, domain string, of func(vpn string) string) error {
	for other := range b.index.holders[o.Address] {
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

// addressesFree is addressFree for what an interface brings to another vpn-instance.
func (b *Backend) addressesFree(o netvirt.VPNInterface) error {
	for k := range b.index.referrers[o.Key()] {
		if a, ok := b.model[k].(netvirt.Adjacency); ok {
			if err := b.addressFree(a, b.domain(o.VPN), b.domain); err != nil {
				return err
			}
		}
	}
	return nil
}

// domainFree is addressFree for what a vpn-instance brings to another routing domain.
func (b *Backend) domainFree(o netvirt.VPNInstance) error {
	of := func(vpn string) string {
		if vpn == o.Name {
			return domainOf(o)
		}
		return b.domain(vpn)
	}
	for k := range b.index.referrers[o.Key()] {
		i, ok := b.model[k].(netvirt.VPNInterface)
		if !ok {
			continue
		}
		for k := range b.index.referrers[i.Key()] {
			if a, ok := b.model[k].(netvirt.Adjacency); ok {
				if err := b.addressFree(a, domainOf(o), of); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

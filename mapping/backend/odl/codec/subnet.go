package codec

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// subnet is the value that a subnet_id is a hash of.
type subnet struct {
	elan   string
	prefix netip.Prefix
}

func (s subnet) id() string {
	return netvirtjson.SubnetID(netvirt.Adjacency{ELAN: s.elan, Network: s.prefix})
}

// subnets caches subnets and their IDs.
type subnets struct {
	of   map[string]subnet
	ids  map[subnet]string
	bits int // prefix length of the last subnet that was found; the next is likely the same
	// before is a cache that several goroutines read and none changes; may be nil.
	before *subnets
}

func newSubnets(before *subnets) *subnets {
	return &subnets{of: map[string]subnet{}, ids: map[subnet]string{}, before: before}
}

func (m *subnets) add(id string, s subnet) { m.of[id], m.ids[s] = s, id }

// learn adds the subnets of another cache.
func (m *subnets) learn(from *subnets) {
	for id, s := range from.of {
		m.add(id, s)
	}
}

// named returns the cached subnet of a subnet_id.
func (m *subnets) named(id string) (s subnet, found bool) {
	if s, found = m.of[id]; found || m.before == nil {
		return s, found
	}
	if s, found = m.before.of[id]; found {
		m.add(id, s)
	}
	return s, found
}

// find searches all prefixes that contain an address for the subnet of a subnet_id.
func (m *subnets) find(id, elan string, around netip.Addr) (s subnet, found bool) {
	for tried := range around.BitLen() + 2 {
		bits := m.bits
		if tried > 0 {
			bits = around.BitLen() + 1 - tried
		}
		s = subnet{elan, netip.PrefixFrom(around, bits).Masked()}
		if s.id() == id {
			m.bits = bits
			m.add(id, s)
			return s, true
		}
	}
	return subnet{}, false
}

// id returns the subnet_id of a subnet.
func (m *subnets) id(s subnet) string {
	id, ok := m.ids[s]
	if !ok {
		id = s.id()
		m.add(id, s)
	}
	return id
}

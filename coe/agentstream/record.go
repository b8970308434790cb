package agentstream

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// record is an interface in the form of the grouping in coe-agent, without "confirmed", which
// is appended.
type record struct {
	PodUID       string    `json:"pod-uid"`
	InterfaceUID string    `json:"interface-uid"`
	Namespace    string    `json:"namespace"`
	Pod          string    `json:"pod"`
	Name         string    `json:"name"`
	Parent       string    `json:"parent-interface"`
	Node         string    `json:"node"`
	Primary      bool      `json:"primary"`
	MAC          string    `json:"mac-address"`
	Addresses    []address `json:"address"`
	Routes       []route   `json:"route,omitempty"`
	MTU          uint16    `json:"mtu,omitempty"`
	Physical     string    `json:"physical-network,omitempty"`
	DHCP         *dhcp     `json:"dhcp,omitempty"`
}

// dhcp is what an interface with DHCP gets beside its addresses and routes.
type dhcp struct {
	LeaseTime uint32       `json:"lease-time"` // in seconds
	DNS       []netip.Addr `json:"dns-server,omitempty"`
}

type address struct {
	IP      netip.Addr `json:"ip"`
	Length  int        `json:"prefix-length"`
	Gateway netip.Addr `json:"gateway"`
}

type route struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"next-hop,omitzero"`
}

// recordOf returns the record of a lease.
func (c *Config) recordOf(l *coe.Lease) record {
	attached := c.Physical.ForNamespace(l.Namespace) // nil if it has none
	r := record{
		PodUID: l.PodUID, InterfaceUID: l.InterfaceUID,
		Namespace: l.Namespace, Pod: l.Pod,
		Name: l.Name, Parent: netvirt.PortName(l.Name, l.PodUID),
		Node: l.Node.String(), Primary: l.Primary, MAC: l.MAC, MTU: c.MTU,
	}
	if l.DHCP {
		r.DHCP = &dhcp{c.DHCPLeaseTime, l.DNS}
	}
	for _, a := range l.Addresses {
		prefix := prefixOf(a)
		r.Addresses = append(r.Addresses, address{a.Address, prefix.Bits(), a.Gateway})
		if !prefix.Contains(a.Gateway) {
			r.Routes = append(r.Routes, route{Destination: netip.PrefixFrom(a.Gateway, a.Gateway.BitLen())})
		}
		if attached != nil {
			subnet := attached.Subnet(a.Address)
			if subnet.IsValid() {
				r.Physical = attached.Name
			}
			if subnet.IsValid() && subnet != prefix {
				r.Routes = append(r.Routes, route{Destination: subnet})
			}
		}
		if l.Primary {
			r.Routes = append(r.Routes, route{everywhere(a.Address), a.Gateway})
		}
	}
	return r
}

// prefixOf returns the address with its directly connected prefix: the prefix of its block,
// or a host prefix if it comes from no pool.
func prefixOf(a coe.LeasedAddress) netip.Prefix {
	if a.Network.Contains(a.Address) {
		return netip.PrefixFrom(a.Address, a.Network.Bits()).Masked()
	}
	return netip.PrefixFrom(a.Address, a.Address.BitLen())
}

// everywhere returns the default prefix of the family.
func everywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// operation starts every interface-changed with a record.
const operation = `{"operation":"put",`

// encode returns the start of the interface-changed for a lease. confirm appends the rest.
func (c *Config) encode(l *coe.Lease) ([]byte, error) {
	object, err := json.Marshal(c.recordOf(l))
	if err != nil {
		return nil, fmt.Errorf("write the record: %w", err)
	}
	return append([]byte(operation), object[1:len(object)-1]...), nil
}

// confirm returns the complete notification. It has no spare capacity, because it is kept.
func confirm(begun []byte, confirmed bool) []byte {
	end := `,"confirmed":false}`
	if confirmed {
		end = `,"confirmed":true}`
	}
	return slices.Concat(begun, []byte(end))
}

// asEntry converts an interface-changed to an entry of the list.
func asEntry(content []byte) []byte {
	return append([]byte{'{'}, content[len(operation):]...)
}

// encodeDeleted returns the notification that an interface was deleted.
func encodeDeleted(key string) []byte {
	pod, iface, _ := strings.Cut(key, "/")
	content, _ := json.Marshal(struct { // strings always encode
		Operation    string `json:"operation"`
		PodUID       string `json:"pod-uid"`
		InterfaceUID string `json:"interface-uid"`
	}{"deleted", pod, iface})
	return content
}

// Package physical has the physical networks of namespaces: how the operator names them (--physical-network), which of them exclude
// each other, and what pods lack that are attached to one. It knows neither backends nor agents.
package physical

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Network is a network outside OVN, of switches and cables, to which the pods of a namespace are attached. Machines in
// it and these pods are one layer 2 network.
type Network struct {
	Namespace string
	Name      string // as the agents of nodes name it
	VLAN      uint16 // 0: frames have no tag
	// Subnets are the subnets of the machines and the pods, masked: one, or one of each family, IPv4 first.
	Subnets []netip.Prefix
}

// maxVLAN is the maximum VLAN identifier.
const maxVLAN = 4094

// validName matches the names of physical networks. They are parts of lists in which colons and commas separate.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Parse parses NAMESPACE=NETWORK[,vlan=ID],subnet=PREFIX[,subnet=PREFIX].
func Parse(text string) (p Network, err error) {
	first, settings, _ := strings.Cut(text, ",")
	var found bool
	if p.Namespace, p.Name, found = strings.Cut(first, "="); !found || p.Namespace == "" {
		return p, fmt.Errorf("%q: want NAMESPACE=NETWORK[,vlan=ID],subnet=PREFIX", text)
	}
	if !validName.MatchString(p.Name) {
		return p, fmt.Errorf("%q: network %q: want a name of at most 63 letters, digits, dots, dashes and underscores", text, p.Name)
	}
	if err := coe.CheckName(p.Namespace, coe.MaxNamespace); err != nil {
		return p, fmt.Errorf("%q: namespace: %w", text, err)
	}
	for setting := range strings.SplitSeq(settings, ",") {
		switch key, value, _ := strings.Cut(setting, "="); {
		case setting == "":
		case key == "vlan" && p.VLAN == 0:
			id, err := strconv.ParseUint(value, 10, 16)
			if err != nil || id < 1 || id > maxVLAN {
				return p, fmt.Errorf("%q: vlan %q: want a number from 1 to %d; leave it out for frames without a tag", text, value, maxVLAN)
			}
			p.VLAN = uint16(id)
		case key == "subnet":
			if err := p.addSubnet(value); err != nil {
				return p, fmt.Errorf("%q: %w", text, err)
			}
		default:
			return p, fmt.Errorf("%q: %q: want vlan=ID once, and subnet=PREFIX", text, setting)
		}
	}
	if len(p.Subnets) == 0 {
		return p, fmt.Errorf("%q: name the subnet of the machines and the pods, as in subnet=10.50.0.0/24", text)
	}
	return p, nil
}

func (p *Network) addSubnet(text string) error {
	subnet, err := netip.ParsePrefix(text)
	switch {
	case err != nil || subnet.IsSingleIP() || subnet.Bits() == 0:
		return fmt.Errorf("subnet %q: want a prefix, such as 10.50.0.0/24", text)
	case p.subnetOf(subnet.Addr()).IsValid():
		return fmt.Errorf("subnet %s: want one of each family at most", text)
	}
	p.Subnets = append(p.Subnets, subnet.Masked())
	slices.SortFunc(p.Subnets, netip.Prefix.Compare) // IPv4 before IPv6
	return nil
}

// subnetOf returns the subnet of the family of an address; invalid if there is none.
func (p *Network) subnetOf(a netip.Addr) netip.Prefix {
	for _, s := range p.Subnets {
		if s.Addr().Is4() == a.Is4() {
			return s
		}
	}
	return netip.Prefix{}
}

// Subnet returns the subnet that contains an address; invalid if there is none.
func (p *Network) Subnet(a netip.Addr) netip.Prefix {
	if s := p.subnetOf(a); s.IsValid() && s.Contains(a) {
		return s
	}
	return netip.Prefix{}
}

// Segment returns the network-type and the segmentation-id of the network.
func (p *Network) Segment() (networkType string, id uint32) {
	if p.VLAN == 0 {
		return "FLAT", 0
	}
	return "VLAN", uint32(p.VLAN)
}

// String returns the network for messages.
func (p *Network) String() string {
	if p.VLAN == 0 {
		return p.Name
	}
	return fmt.Sprintf("%s, VLAN %d", p.Name, p.VLAN)
}

// Unreached returns why an interface with some addresses does not reach the machines of the network; empty if it does.
func (p *Network) Unreached(iface string, addresses []coe.LeasedAddress) string {
	if slices.ContainsFunc(addresses, func(a coe.LeasedAddress) bool { return p.Subnet(a.Address).IsValid() }) {
		return ""
	}
	return fmt.Sprintf("interface %s does not reach the machines of physical network %s: it has no address in %v; give the pool of network-id %q a part of the subnet, and create the pod again",
		iface, p, p.Subnets, p.Namespace)
}

// OtherSegment returns why the segment that an interface requests has no effect; empty if it is that of the network, or the default.
func (p *Network) OtherSegment(i *coe.PodInterface) string {
	kind, id := p.Segment()
	if i.Type() == coe.VXLAN || i.Type() == kind && (kind != "VLAN" || i.SegmentationID == id) {
		return ""
	}
	return fmt.Sprintf("network-type %s and segmentation-id %d of interface %s have no effect: the namespace has the physical network %s",
		i.Type(), i.SegmentationID, i.UID, p)
}

// Networks are the physical networks of several namespaces.
type Networks []Network

// Add adds a network. A namespace has one at most, a network and VLAN belongs to one namespace, and subnets do not overlap:
// otherwise two namespaces would be one layer 2 network.
func (all *Networks) Add(p Network) error {
	for i := range *all {
		o := &(*all)[i]
		switch {
		case o.Namespace == p.Namespace:
			return fmt.Errorf("namespace %s has two physical networks, %s and %s: want one", p.Namespace, o, &p)
		case o.Name == p.Name && o.VLAN == p.VLAN:
			return fmt.Errorf("the namespaces %s and %s have one physical network, %s: want a VLAN for each", o.Namespace, p.Namespace, &p)
		}
		for _, s := range o.Subnets {
			for _, t := range p.Subnets {
				if s.Overlaps(t) {
					return fmt.Errorf("the physical networks of the namespaces %s and %s overlap: %s and %s", o.Namespace, p.Namespace, s, t)
				}
			}
		}
	}
	*all = append(*all, p)
	return nil
}

// ForNamespace returns the physical network of a namespace; nil if it has none.
func (all Networks) ForNamespace(namespace string) *Network {
	for i := range all {
		if all[i].Namespace == namespace {
			return &all[i]
		}
	}
	return nil
}

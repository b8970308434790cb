package netvirt

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Direction is a direction of traffic, as the interface sees it (aclservice:direction-base).
type Direction string

// The directions.
const (
	Ingress Direction = "ingress" // to the interface
	Egress  Direction = "egress"  // from the interface
)

// Family is an address family, as ace-ip-version has it.
type Family string

// The address families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// ACL is a set of rules for its members: the interfaces that name it as a security group
// (ietf-access-control-list:access-lists/acl). A member drops new connections in a direction
// if one of its ACLs isolates it in this direction, and no ACE of its ACLs allows them. An ACE of an
// ACL that yields does not allow connections to ports that an ACL withholds in its direction.
//
// Some connections are never dropped: ARP, neighbour and router discovery, DHCP, and those of
// a pod with itself through a service.
type ACL struct {
	Name string // unique in the cluster; see NodeACLName
	// Namespace is that of the members; empty for the ACL of a node, whose members are of any namespace.
	Namespace string
	// Isolates is the direction in which the ACL isolates its members; empty for none.
	Isolates Direction
	// Withholds are ports of destinations that only ACEs of ACLs that do not yield allow, in the
	// direction in which the ACL isolates.
	Withholds PortList
	// Yields is set if the ACEs do not allow what another ACL of the member withholds.
	Yields bool
	// Logs is set if the connections are logged that the ACL drops because it isolates, and
	// those that its ACEs allow.
	Logs bool
}

// ACE is a rule of an ACL: connections that it allows, in both directions once they are
// established (access-lists/acl/access-list-entries/ace).
type ACE struct {
	ACL       string
	Namespace string // the ACL's
	Name      string // rule-name; unique within the ACL; says which rule of which policy it is
	Direction Direction
	Family    Family
	// Remote is the name of the RemoteGroup at the other end; empty: everyone. A rule whose
	// group is not in the model allows nothing.
	Remote string
	Ports  PortList // of the destination; empty: all traffic of the family
}

// RemoteGroup is a set of addresses at the other end of connections: prefixes, and the
// addresses of the interfaces that name it in their InterfaceACL (aclservice:remote-group-id).
type RemoteGroup struct {
	Name string
	// Namespace is the namespace whose interfaces alone can be members; empty: any. It is set
	// if namespaces are isolated, because other namespaces can have the same addresses.
	Namespace string
	Prefixes  PrefixList
}

// Admits reports whether interfaces of a namespace can be members. An InterfaceACL of another
// namespace that names the group has no effect.
func (o RemoteGroup) Admits(namespace string) bool {
	return o.Namespace == "" || o.Namespace == namespace
}

// InterfaceACL is what ACLs mean for an interface (interface/aclservice:interface-acl). An
// interface without one has all traffic.
type InterfaceACL struct {
	Interface      string
	Namespace      string
	SecurityGroups NameList // names of the ACLs that it is a member of
	// RemoteGroups are the names of the RemoteGroups that have its addresses. Such a name, and that of a node's ACL, has
	// no effect while it is not in the model.
	RemoteGroups NameList
}

// Key implements Object.
func (o ACL) Key() Key          { return aclKey(o.Name) }
func (o ACE) Key() Key          { return Key{KindACE, o.ACL + " " + o.Name} }
func (o RemoteGroup) Key() Key  { return Key{KindRemoteGroup, o.Name} }
func (o InterfaceACL) Key() Key { return Key{KindInterfaceACL, o.Interface} }

func aclKey(name string) Key { return Key{KindACL, name} }

// Refs implements Object. A RemoteGroup and the ACL of a node belong to the scope of the cluster. So that namespaces
// need not wait for them, references to them are not in Refs.
func (o ACL) Refs() []Key         { return nil }
func (o ACE) Refs() []Key         { return []Key{aclKey(o.ACL)} }
func (o RemoteGroup) Refs() []Key { return nil }
func (o InterfaceACL) Refs() []Key {
	refs := []Key{{KindInterface, o.Interface}}
	for _, name := range o.SecurityGroups.All() {
		if !IsOfNode(name) {
			refs = append(refs, aclKey(name))
		}
	}
	return refs
}

// Scope implements Object.
func (o ACL) Scope() Scope          { return Scope(o.Namespace) }
func (o ACE) Scope() Scope          { return Scope(o.Namespace) }
func (o RemoteGroup) Scope() Scope  { return Cluster }
func (o InterfaceACL) Scope() Scope { return Scope(o.Namespace) }

func (ACL) sealed()          {}
func (ACE) sealed()          {}
func (RemoteGroup) sealed()  {}
func (InterfaceACL) sealed() {}

// NameList is a set of names without commas: sorted, comma-separated. It is a string so that
// objects that contain it are comparable.
type NameList string

// NewNameList returns the set of the given names, without duplicates.
func NewNameList(names ...string) NameList {
	return NameList(strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ","))
}

// All returns the names.
func (l NameList) All() []string { return splitList(string(l)) }

// PrefixList is a set of prefixes in canonical text: masked, sorted, comma-separated. It is a
// string so that objects that contain it are comparable.
type PrefixList string

// NewPrefixList returns the set of the given prefixes, without duplicates.
func NewPrefixList(prefixes ...netip.Prefix) PrefixList {
	sorted := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	sorted = slices.Compact(sorted)
	text := make([]string, len(sorted))
	for i, p := range sorted {
		text[i] = p.String()
	}
	return PrefixList(strings.Join(text, ","))
}

// All returns the prefixes.
func (l PrefixList) All() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, part := range splitList(string(l)) {
		prefixes = append(prefixes, netip.MustParsePrefix(part))
	}
	return prefixes
}

// ParsePrefixList parses a list; it is not ok if the text is not a PrefixList.
func ParsePrefixList(text string) (list PrefixList, ok bool) {
	var prefixes []netip.Prefix
	for _, part := range splitList(text) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return "", false
		}
		prefixes = append(prefixes, p)
	}
	list = NewPrefixList(prefixes...)
	return list, string(list) == text
}

// In returns the prefixes of the family of an address.
func (l PrefixList) In(family netip.Addr) PrefixList {
	return NewPrefixList(slices.DeleteFunc(l.All(), func(p netip.Prefix) bool { return p.Addr().Is4() != family.Is4() })...)
}

// PortRange is ports of a protocol, from First to Last. If both are 0, it is all ports.
type PortRange struct {
	Protocol    Protocol
	First, Last uint16
}

// String returns "tcp", "tcp:80" or "tcp:80-90".
func (r PortRange) String() string {
	switch {
	case r.Last == 0:
		return string(r.Protocol)
	case r.First == r.Last:
		return fmt.Sprintf("%s:%d", r.Protocol, r.First)
	}
	return fmt.Sprintf("%s:%d-%d", r.Protocol, r.First, r.Last)
}

// PortList is a set of port ranges in canonical text: sorted, comma-separated. It is a string
// so that objects that contain it are comparable.
type PortList string

// NewPortList returns the set of the given ranges, without duplicates.
func NewPortList(ranges ...PortRange) PortList {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	sorted = slices.Compact(sorted)
	text := make([]string, len(sorted))
	for i, r := range sorted {
		text[i] = r.String()
	}
	return PortList(strings.Join(text, ","))
}

// All returns the ranges.
func (l PortList) All() []PortRange {
	var ranges []PortRange
	for _, part := range splitList(string(l)) {
		protocol, ports, _ := strings.Cut(part, ":")
		r := PortRange{Protocol: Protocol(protocol)}
		if ports != "" {
			first, last, isRange := strings.Cut(ports, "-")
			r.First = mustPort(first)
			if r.Last = r.First; isRange {
				r.Last = mustPort(last)
			}
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// mustPort parses a port of a PortList.
func mustPort(text string) uint16 {
	var port uint16
	if _, err := fmt.Sscan(text, &port); err != nil {
		panic(fmt.Sprintf("port %q in a PortList: %v", text, err))
	}
	return port
}

// ofNode begins the names of the ACLs of nodes. All other names of ACLs begin with a namespace.
const ofNode = ":node:"

// groupOfNode begins the names of the RemoteGroups of nodes.
const groupOfNode = "node:"

// NodeACLName returns the name of the ACL for what isolated pods and their own node may do.
func NodeACLName(node netip.Addr) string { return ofNode + node.String() }

// NodeGroupName returns the name of the RemoteGroup of the addresses of a node.
func NodeGroupName(node netip.Addr) string { return groupOfNode + node.String() }

// IsOfNode reports whether an ACL with a name is that of a node.
func IsOfNode(name string) bool { return strings.HasPrefix(name, ofNode) }

package plan

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Cost is an estimate of what network policies cost OVN.
type Cost struct {
	ACLs int `json:"acls"` // rows of the table ACL, of policies
	// LogicalFlows is the number of logical flows: two for each ACL of a group with ports, and flowsOfFirstACL once.
	LogicalFlows int `json:"logicalFlows"`
	// OpenFlow is the number of flows on Node, the node with the most.
	OpenFlow int        `json:"openFlow"`
	Node     netip.Addr `json:"node,omitzero"`
}

// The logical flows of an ACL, and those that the first stateful ACL of a switch adds.
const (
	flowsOfACL      = 2
	flowsOfFirstACL = 40
)

// rowsOfIsolation returns the number of ACLs with which an acl of the model isolates.
func rowsOfIsolation(o netvirt.ACL) int {
	switch {
	case o.Isolates == "":
		return 0
	case o.Withholds == "":
		return 3
	}
	return 4
}

// costOf estimates the cost of the policies of a network. On a node an ACL costs a flow for each
// port of the group on the node, one for each port number, and one for each address of its address
// set, for every switch of the node that has a port of the group (ovn-controller makes
// conjunctions of them).
func costOf(s mapped) (c Cost) {
	f := flows{layout: s.layout, members: map[string]map[string]int{}, addresses: map[remote]int{}, nodes: map[netip.Addr]int{}}
	f.count(s.model)
	add := func(acl string, rows int) {
		if c.ACLs += rows; len(f.members[acl]) > 0 {
			c.LogicalFlows += rows * flowsOfACL
		}
	}
	for _, o := range s.model {
		switch o := o.(type) {
		case netvirt.ACE:
			add(o.ACL, 1)
		case netvirt.ACL:
			add(o.Name, rowsOfIsolation(o))
		}
	}
	if c.LogicalFlows > 0 {
		c.LogicalFlows += flowsOfFirstACL
	}
	for node, n := range f.nodes {
		if n > c.OpenFlow || n == c.OpenFlow && node.Less(c.Node) {
			c.OpenFlow, c.Node = n, node
		}
	}
	return c
}

// flows counts the OpenFlow flows of nodes.
type flows struct {
	layout    codec.Layout
	members   map[string]map[string]int // ports by acl and switch
	addresses map[remote]int
	nodes     map[netip.Addr]int
}

// remote is a remote group in one address family.
type remote struct {
	name   string
	family netvirt.Family
}

func (f *flows) count(m netvirt.Model) {
	for _, o := range m {
		switch o := o.(type) {
		case netvirt.InterfaceACL:
			f.addMember(m, o)
		case netvirt.RemoteGroup:
			for _, p := range o.Prefixes.All() {
				f.addresses[remote{o.Name, netvirt.FamilyOf(p.Addr())}]++
			}
		case netvirt.Adjacency:
			acl, _ := m[netvirt.Key{Kind: netvirt.KindInterfaceACL, Name: o.Interface}].(netvirt.InterfaceACL)
			for _, group := range acl.RemoteGroups.All() {
				f.addresses[remote{group, netvirt.FamilyOf(o.Address)}]++
			}
		}
	}
	for _, o := range m {
		switch o := o.(type) {
		case netvirt.ACL:
			f.add(o.Name, rowsOfIsolation(o), len(o.Withholds.All()))
		case netvirt.ACE:
			f.add(o.ACL, 1, f.addresses[remote{o.Remote, o.Family}]+len(o.Ports.All()))
		}
	}
}

// addMember counts the port of an interface.
func (f *flows) addMember(m netvirt.Model, o netvirt.InterfaceACL) {
	elan, _ := m[netvirt.Key{Kind: netvirt.KindELANInterface, Name: o.Interface}].(netvirt.ELANInterface)
	if node, _, err := netvirt.ParseELANName(elan.ELAN); err == nil && f.layout == codec.LayoutNode {
		elan.ELAN = netvirt.ELANName(node, "") // of all namespaces
	}
	for _, acl := range o.SecurityGroups.All() {
		if f.members[acl] == nil {
			f.members[acl] = map[string]int{}
		}
		f.members[acl][elan.ELAN]++
	}
}

// add adds the flows of some ACLs of a port group: for each port, and for each switch.
func (f *flows) add(acl string, perPort, perSwitch int) {
	for elan, ports := range f.members[acl] {
		node, _, _ := netvirt.ParseELANName(elan)
		f.nodes[node] += perPort*ports + perSwitch
	}
}

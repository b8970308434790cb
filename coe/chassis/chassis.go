// Package chassis decides which chassis of OVN each node has. It is pure: it computes from what agents have reported, what was recorded
// before, and what OVN has.
package chassis

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Facts are what the chassis of nodes are decided from.
type Facts struct {
	Nodes    map[netip.Addr]*coe.Node     // known nodes
	Reported map[netip.Addr]string        // by the agents of nodes
	Recorded map[netip.Addr]*coe.NodeFact // with the chassis that nodes had before
	InOVN    map[string]string            // host names by chassis; nil if not known
	Follows  bool                         // InOVN will be known
	Complete bool                         // every source of nodes and reports has been listed
}

// Chassis is the chassis of a node. Changed is set if the agent reports another one now, or if OVN has the node by another name.
type Chassis struct {
	Name    string
	Changed bool
}

// Claim returns the chassis of known nodes, and the nodes whose chassis is not as it should be. A chassis belongs to the first node
// whose agent has reported it, until that report is deleted. A chassis that is named like a known node belongs to no other node: a
// captured node must not keep a chassis from its node. A node whose agent reports another one keeps the chassis, and is marked: OVN has
// the node by one of the two names. A node that OVN has only by another name is marked too.
func Claim(f Facts) (all map[netip.Addr]Chassis, problems []coe.Problem) {
	c := claims{Facts: f, named: map[string]netip.Addr{}, holders: map[string]netip.Addr{}, now: map[netip.Addr]Chassis{}, hosted: map[string][]string{}}
	for chassis, host := range f.InOVN {
		c.hosted[host] = append(c.hosted[host], chassis)
	}
	for addr, n := range f.Nodes {
		c.named[n.HostName] = addr
	}
	c.keep()
	for _, addr := range slices.SortedFunc(maps.Keys(f.Nodes), netip.Addr.Compare) {
		name, reported := f.Reported[addr]
		if !reported {
			continue
		}
		problems = append(problems, c.claim(addr, name)...)
	}
	return c.now, problems
}

// claims are the chassis that known nodes have so far.
type claims struct {
	Facts
	named   map[string]netip.Addr // a node for each name
	holders map[string]netip.Addr // by chassis
	now     map[netip.Addr]Chassis
	hosted  map[string][]string // chassis of InOVN by host name
}

// keep gives nodes the chassis that they had before.
func (c *claims) keep() {
	for addr, fact := range c.Recorded {
		_, reported := c.Reported[addr]
		if keeps := reported && c.Nodes[addr] != nil || !c.Complete; keeps && fact.Chassis != "" && c.refuse(fact.Chassis, addr) == "" {
			c.put(addr, Chassis{fact.Chassis, fact.ChassisChanged})
		}
	}
}

// claim gives a node the chassis that its agent reports, or marks the one that it has.
func (c *claims) claim(addr netip.Addr, name string) []coe.Problem {
	held, has := c.now[addr]
	if !has {
		if why := c.refuse(name, addr); why != "" {
			return c.problem(addr, name, coe.NameTaken,
				"%s: OVN needs a chassis for each node; give the node another name: external_ids:system-id of its Open vSwitch, or what ovn-controller has instead", why)
		}
		held = Chassis{Name: name}
	}
	other := c.otherName(addr, held.Name)
	held.Changed = name != held.Name || other != "" || held.Changed && c.Follows && c.InOVN == nil
	c.put(addr, held)
	switch {
	case name != held.Name:
		return c.problem(addr, name, coe.NotEnforced,
			"was %q before, and OVN can still have the node by that name, so its gateways are not bound, and all nodes have more flows: "+
				"run ovn-sbctl chassis-del %s, restart ovn-controller on the node, delete the entry %s of coe-agent:chassis, and restart the agent of the node",
			held.Name, held.Name, addr)
	case other != "":
		return c.problem(addr, name, coe.NotEnforced,
			"is not in OVN, which has the node by the name %q, so its gateways are not bound, and all nodes have more flows: "+
				"restart ovn-controller on the node, delete the entry %s of coe-agent:chassis, and restart the agent of the node", other, addr)
	}
	return nil
}

// problem returns the problem of a node with the chassis that its agent reports.
func (c *claims) problem(addr netip.Addr, name string, reason coe.Reason, format string, args ...any) []coe.Problem {
	return []coe.Problem{{
		Kind: "node", UID: c.Nodes[addr].UID, Name: c.Nodes[addr].HostName, Reason: reason,
		Message: fmt.Sprintf("its chassis %q (its name in OVN) ", name) + fmt.Sprintf(format, args...),
	}}
}

func (c *claims) put(node netip.Addr, one Chassis) {
	c.now[node], c.holders[one.Name] = one, node
}

// refuse returns why a node cannot have a chassis; empty if it can.
func (c *claims) refuse(name string, node netip.Addr) string {
	if holder, taken := c.holders[name]; taken && holder != node {
		return "is the chassis of node " + c.nameOf(holder)
	}
	if other, is := c.named[name]; is && (c.Nodes[node] == nil || c.Nodes[node].HostName != name) {
		return "is the name of node " + c.nameOf(other)
	}
	return ""
}

// otherName returns the name of a chassis that OVN has instead of the one of a node: it has the host name of the node, and is not of
// another node. It is empty if OVN has none, or can have the right one.
func (c *claims) otherName(node netip.Addr, name string) (other string) {
	if _, has := c.InOVN[name]; has || c.Nodes[node].HostName == "" {
		return ""
	}
	for _, chassis := range c.hosted[c.Nodes[node].HostName] {
		if _, taken := c.holders[chassis]; !taken && (other == "" || chassis < other) {
			other = chassis
		}
	}
	return other
}

// nameOf returns the name of a node, or its address if it has none.
func (c *claims) nameOf(node netip.Addr) string {
	if n := c.Nodes[node]; n != nil && n.HostName != "" {
		return n.HostName
	}
	return node.String()
}

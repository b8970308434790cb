package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// chassis is the chassis of a node, and the one before.
type chassis struct{ name, former string }

// chassisClaims are the chassis of known nodes.
type chassisClaims struct {
	known   map[netip.Addr]*coe.Node
	named   map[string]netip.Addr // the nodes by their names
	holders map[string]netip.Addr
	now     map[netip.Addr]chassis
}

// claimChassis returns the chassis of known nodes. A chassis belongs to the first node whose agent has reported it, but one that is
// named like a known node belongs to no other node: a captured node must not keep a chassis from its node.
func (r *round) claimChassis(known map[netip.Addr]*coe.Node) map[netip.Addr]chassis {
	c := chassisClaims{known: known, named: map[string]netip.Addr{}, holders: map[string]netip.Addr{}, now: map[netip.Addr]chassis{}}
	for addr, n := range known {
		c.named[n.HostName] = addr
	}
	for addr, fact := range r.numbers {
		reported, is := r.seen.chassis[addr]
		if keeps := reported == fact.Chassis || !is && !r.complete; keeps && fact.Chassis != "" && c.refuse(fact.Chassis, addr) == "" {
			c.put(addr, chassis{fact.Chassis, fact.FormerChassis})
		}
	}
	var problems []coe.Problem
	for _, addr := range sortedAddrs(known) {
		name, is := r.seen.chassis[addr]
		if !is || c.now[addr].name == name {
			continue
		}
		if why := c.refuse(name, addr); why != "" {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: known[addr].UID, Name: known[addr].HostName, Reason: coe.NameTaken, Message: fmt.Sprintf(
					"its chassis %q (external_ids:system-id of its Open vSwitch) %s: OVN needs a chassis for each node; give the node another system-id", name, why),
			})
			continue
		}
		former := ""
		if fact := r.numbers[addr]; fact != nil {
			former = fact.Chassis
		}
		c.put(addr, chassis{name, former})
	}
	for addr, one := range c.now {
		if c.refuse(one.former, addr) != "" {
			c.now[addr] = chassis{name: one.name}
		}
	}
	if !slices.Equal(problems, r.sharedChassis) {
		r.sharedChassis = problems
		r.tellAddressProblems()
	}
	return c.now
}

func (c *chassisClaims) put(node netip.Addr, one chassis) {
	c.now[node], c.holders[one.name] = one, node
}

// refuse returns why a node cannot have a chassis; empty if it can.
func (c *chassisClaims) refuse(name string, node netip.Addr) string {
	if holder, taken := c.holders[name]; taken && holder != node {
		return "is the chassis of node " + c.nameOf(holder)
	}
	if other, is := c.named[name]; is && other != node {
		return "is the name of node " + c.nameOf(other)
	}
	return ""
}

// nameOf returns the name of a node, or its address if it has none.
func (c *chassisClaims) nameOf(node netip.Addr) string {
	if n := c.known[node]; n != nil && n.HostName != "" {
		return n.HostName
	}
	return node.String()
}

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// chassis is the chassis of a node. changed is set if the agent reports another one now.
type chassis struct {
	name    string
	changed bool
}

// chassisClaims are the chassis of known nodes.
type chassisClaims struct {
	known   map[netip.Addr]*coe.Node
	named   map[string]netip.Addr // a node for each name
	holders map[string]netip.Addr
	now     map[netip.Addr]chassis
}

// claimChassis returns the chassis of known nodes. A chassis belongs to the first node whose agent has reported it, until that report
// is deleted, but one that is named like a known node belongs to no other node: a captured node must not keep a chassis from its node.
// A node whose agent reports another one keeps the chassis, and is marked: OVN has it by one of the two names.
func (r *round) claimChassis(known map[netip.Addr]*coe.Node) map[netip.Addr]chassis {
	c := chassisClaims{known: known, named: map[string]netip.Addr{}, holders: map[string]netip.Addr{}, now: map[netip.Addr]chassis{}}
	for addr, n := range known {
		c.named[n.HostName] = addr
	}
	for addr, fact := range r.numbers {
		_, reported := r.seen.chassis[addr]
		if keeps := reported || !r.complete; keeps && fact.Chassis != "" && c.refuse(fact.Chassis, addr) == "" {
			c.put(addr, chassis{fact.Chassis, fact.ChassisChanged})
		}
	}
	var problems []coe.Problem
	for _, addr := range sortedAddrs(known) {
		name, reported := r.seen.chassis[addr]
		if !reported {
			continue
		}
		report := func(reason coe.Reason, format string, args ...any) {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: known[addr].UID, Name: known[addr].HostName, Reason: reason,
				Message: fmt.Sprintf("its chassis %q (external_ids:system-id of its Open vSwitch) ", name) + fmt.Sprintf(format, args...),
			})
		}
		if held, has := c.now[addr]; has {
			held.changed = name != held.name
			if c.put(addr, held); held.changed {
				report(coe.NotEnforced, "was %q before, and OVN can still have the node by that name, so its gateways are not bound, and all nodes have more flows: "+
					"run ovn-sbctl chassis-del %s, delete the entry %s of coe-agent:chassis, and restart the agent of the node", held.name, held.name, addr)
			}
			continue
		}
		if why := c.refuse(name, addr); why != "" {
			report(coe.NameTaken, "%s: OVN needs a chassis for each node; give the node another system-id", why)
			continue
		}
		c.put(addr, chassis{name: name})
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
	if other, is := c.named[name]; is && (c.known[node] == nil || c.known[node].HostName != name) {
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

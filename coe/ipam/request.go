package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/chassis"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// nodeOwner is the owner of the addresses that are held for a node.
func nodeOwner(n *coe.Node) string { return journal.NodeKind + n.Identity() }

// permit refuses an address that a pod must not request:
//
//	address                                       | who may request it
//	of a reserved range, of a node                | no source
//	of a physical network                         | pods of its namespace, as below
//	of a pool that serves the pod, --pod-network  | every source
//	any other                                     | RESTCONF clients, except agents of nodes
//
// The store does not know agents from other clients. The bridge refuses an agent's
// request before it is written, see agents.Admit in cmd/bridge.
func (c *claim) permit(network string, addr netip.Addr) *coe.Refusal {
	if in := c.cfg.Nodes.Ranges().Find(addr); in != nil && in.Namespace != c.pod.Namespace {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf("%s is in %s; send another ip-address", addr, in)}
	}
	if n := c.seen.addresses[addr]; n != nil {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf("%s is the address of node %s; send another ip-address", addr, n.Identity())}
	}
	if _, pooled := c.alloc.PoolAround(network, netip.PrefixFrom(addr, addr.BitLen())); pooled || contains(c.cfg.Nodes.Pods, addr) {
		return nil
	}
	if c.store.Pod(c.pod.UID).Origin == coe.Kubernetes {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
			"%s is the address in the pod's status, and no pool that serves the pod has it; if other software gave it, name its range with --pod-network", addr)}
	}
	return nil
}

// nodesSeen has the data from which followNodes worked last.
type nodesSeen struct {
	nodes     map[netip.Addr]*coe.Node // of the Store, which replaces the map when nodes change
	addresses map[netip.Addr]*coe.Node // ranges.NodeAddresses
	chassis   map[netip.Addr]string    // of the Store, which replaces the map too
	inOVN     map[string]string        // Store.ChassisOfOVN, which replaces the map too
	complete  bool
	unasked   bool
}

// followNodes claims and holds the addresses of nodes, if the result may differ from that of the
// last round. There may be thousands of nodes, and a round for every pod.
func (r *round) followNodes() {
	nodes, reported := r.store.Nodes(), r.store.Chassis()
	inOVN, _ := r.store.ChassisOfOVN()
	if s := r.seen; s != nil && sameMap(s.nodes, nodes) && sameMap(s.chassis, reported) && sameMap(s.inOVN, inOVN) && s.complete == r.complete && s.unasked == r.unasked && !r.holdFreed() {
		return
	}
	r.seen = &nodesSeen{nodes, ranges.NodeAddresses(nodes), reported, inOVN, r.complete, r.unasked}
	r.claimNodes()
	r.holdNodes()
}

func sameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// holdFreed looks for an address of a node that had another use and is free now. It holds the
// first one, and reports whether it found one.
func (r *round) holdFreed() bool {
	for addr, n := range r.unheld {
		if r.alloc.Hold(serviceDomain, addr, nodeOwner(n)) {
			r.held[addr] = nodeOwner(n)
			return true
		}
	}
	return false
}

// holdNodes holds the addresses of nodes, so that no pod or service gets them, and finds the
// nodes whose address has another use.
func (r *round) holdNodes() {
	if r.unasked {
		return // the addresses in use are not known yet
	}
	now := r.seen.addresses
	for addr, owner := range r.held {
		if n := now[addr]; n == nil || nodeOwner(n) != owner {
			r.alloc.Release(serviceDomain, addr)
			delete(r.held, addr)
			r.freed = true
		}
	}
	var problems []coe.Problem
	r.unheld = map[netip.Addr]*coe.Node{}
	for addr, n := range now {
		if r.held[addr] == "" && r.alloc.Hold(serviceDomain, addr, nodeOwner(n)) {
			r.held[addr] = nodeOwner(n)
		}
		if r.held[addr] == "" {
			r.unheld[addr] = n
		}
		if why := r.misaddressed(addr); why != "" {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.AddressInvalid,
				Message: fmt.Sprintf("its address %s %s; give the node another address", addr, why),
			})
		}
	}
	slices.SortFunc(problems, func(a, b coe.Problem) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Message, b.Message))
	})
	if slices.Equal(problems, r.misplaced) {
		return
	}
	r.misplaced = problems
	r.tellAddressProblems()
}

// takeFromNode releases a cluster address that is held for a node. A service must get its address
// even if a node reports the same address.
func (r *round) takeFromNode(addr netip.Addr) {
	if r.held[addr] == "" || !r.cfg.Nodes.Ranges().ClusterAddress(addr) {
		return
	}
	r.alloc.Release(serviceDomain, addr)
	delete(r.held, addr)
	r.unheld[addr] = r.seen.addresses[addr]
}

// misaddressed returns the other use of the address of a node, or an empty text.
func (r *round) misaddressed(addr netip.Addr) string {
	if in := r.cfg.Nodes.Ranges().Find(addr); in != nil {
		return fmt.Sprintf("is in %s", in)
	}
	if r.held[addr] == "" {
		if owner := r.alloc.Owner(serviceDomain, addr); owner != "" {
			return r.holder(owner)
		}
		return "is the gateway of pods"
	}
	for _, p := range r.pools {
		shared := !r.cfg.Isolated || p.Network == coe.ServicePool // the pool has the address space of nodes
		if shared && p.Subnet.Contains(addr) {
			return fmt.Sprintf("is in pool %q, subnet %s; no pod gets it", p.Network, p.Subnet)
		}
		if r.cfg.Nodes.Ports && p.Subnet.Contains(addr) {
			return fmt.Sprintf("is in pool %q, subnet %s; no node reaches a pod that gets it", p.Network, p.Subnet)
		}
	}
	return ""
}

// claimNodes records for each address the first node that reported it. Another node that reports
// the same address gets it when the first node is known to be deleted.
func (r *round) claimNodes() {
	known := r.store.Nodes()
	if r.complete {
		for _, addr := range sortedAddrs(r.numbers) {
			if known[addr] == nil && !r.mustForget(addr) {
				r.nodeIDs.Release(addr.String())
				delete(r.numbers, addr)
				r.write.Remove(journal.RankDeleteInstance, journal.NodeRecord(addr), func(tx *state.Tx) { tx.DeleteNodeFact(addr) })
			}
		}
	}
	if r.unasked {
		return // the addresses in use are not known yet
	}
	held := r.claimChassis(known)
	for _, addr := range sortedAddrs(known) {
		fact := coe.NodeFact{Node: addr}
		if old := r.numbers[addr]; old != nil {
			fact = *old
		}
		if fact.Owner == "" || r.complete {
			fact.Owner = known[addr].Identity()
		}
		if fact.Number == 0 && r.cfg.Nodes.Network.IsValid() {
			fact.Number, _ = r.nodeIDs.Get(addr.String()) // if none is left, the mapping reports it
		}
		if fact.Number == 0 && r.cfg.Nodes.ManagementPorts() {
			continue // a release before November 2026 would send a wrong place to the node
		}
		fact.Chassis, fact.ChassisChanged = held[addr].Name, held[addr].Changed
		if old := r.numbers[addr]; old == nil || *old != fact {
			r.putNode(&fact)
		}
	}
}

// claimChassis returns the chassis of known nodes, and reports those that are not as they should be.
func (r *round) claimChassis(known map[netip.Addr]*coe.Node) map[netip.Addr]chassis.Chassis {
	f := chassis.Facts{Nodes: known, Reported: r.seen.chassis, Recorded: r.numbers, Complete: r.complete}
	f.InOVN, f.Follows = r.store.ChassisOfOVN()
	held, problems := chassis.Claim(f)
	if !slices.Equal(problems, r.sharedChassis) {
		r.sharedChassis = problems
		r.tellAddressProblems()
	}
	return held
}

// mustForget reports whether the agent of a deleted node has reported a chassis, and asks that the report be deleted.
func (r *round) mustForget(node netip.Addr) bool {
	_, reported := r.seen.chassis[node]
	if !reported || r.cfg.Forget == nil {
		return false
	}
	r.cfg.Forget(node)
	return true
}

func (r *round) putNode(fact *coe.NodeFact) {
	r.numbers[fact.Node] = fact
	r.write.Put(journal.RankInstance, journal.NodeRecord(fact.Node), fact, func(tx *state.Tx) { tx.PutNodeFact(fact) })
}

package egress

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

var (
	address = netip.MustParseAddr("192.0.2.10")
	another = netip.MustParseAddr("192.0.2.11")
	nodeA   = netip.MustParseAddr("192.168.33.11")
	nodeB   = netip.MustParseAddr("192.168.33.12")
	nodeC   = netip.MustParseAddr("192.168.33.13")
)

// world is a cluster in which decisions are made. Its nodes follow the records at once, unless they are silent or deaf.
type world struct {
	t *testing.T
	facts
	set          Set
	silent, deaf map[netip.Addr]bool   // no answer of the kernel; the agent follows nothing
	confused     map[netip.Addr]bool   // the agent answers, and confirms nothing
	broken       map[netip.Addr]uint16 // the number of an EgressIP whose port is not in force on the node
	busy         map[netip.Addr]bool   // packets come in by the ports of the node all the time
	countless    map[netip.Addr]bool   // the agent does not count packets
	mute         map[netip.Addr]bool   // the agent has not answered a question for its packets yet
	inForceNow   bool
	lastProblems []coe.Problem
	ways         []string // of the first EgressIP, each once
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, silent: map[netip.Addr]bool{}, deaf: map[netip.Addr]bool{}, confused: map[netip.Addr]bool{}, broken: map[netip.Addr]uint16{}, inForceNow: true}
	w.busy, w.countless, w.mute = map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}
	w.facts = facts{
		now: time.Now(), listed: true, nodes: map[netip.Addr]*coe.Node{}, peers: map[netip.Addr]*peer{},
		numbered: func(netip.Addr) bool { return true },
		refuse:   func(netip.Addr) *coe.Refusal { return nil },
		inForce:  func(*coe.EgressIP) bool { return w.inForceNow },
		specs:    []*coe.EgressSpec{{UID: "1", Name: "shop", Address: address}},
	}
	w.noteSlow = func(node, addr netip.Addr) { w.peers[node].slow = with(w.peers[node].slow, addr, w.now) }
	w.set.Candidates = &Candidates{Secret: []byte("secret"), Port: 1}
	for i, addr := range []netip.Addr{nodeA, nodeB, nodeC} {
		w.nodes[addr] = &coe.Node{HostName: fmt.Sprint("node-", i), InternalIP: addr, Egress: addr != nodeC}
	}
	return w
}

// pass lets time pass: the nodes answer, and decisions are made.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); !w.now.After(end); w.now = w.now.Add(interval) {
		w.set.Candidates.Nodes = nil
		for addr, n := range w.nodes {
			if n.Egress {
				w.set.Candidates.Nodes = append(w.set.Candidates.Nodes, addr)
			}
		}
		for _, addr := range w.set.Nodes() {
			p := w.peers[addr]
			if p == nil {
				p = &peer{asked: w.now}
				w.peers[addr] = p
			}
			p.misses++
			if !w.silent[addr] {
				p.heard, p.misses = w.now, 0
				if !w.deaf[addr] {
					p.answered, p.version = w.now, w.set.Place(addr).Version
					p.applied, p.missing = p.version, nil
					w.count(addr, p)
					if w.confused[addr] {
						p.applied, p.version = "another", "another"
					}
					if number := w.broken[addr]; number > 0 {
						p.missing = []string{netvirt.EgressPortName(number, 0), netvirt.EgressPortName(number, 1)}
					}
				}
			}
		}
		d := decide(w.set, &w.facts)
		w.set.EgressIPs, w.lastProblems, w.since = d.EgressIPs, d.problems, d.lasting
		for _, e := range w.set.EgressIPs {
			require.NoError(w.t, e.Validate())
		}
		if len(w.set.EgressIPs) > 0 {
			e := w.set.EgressIPs[0]
			owner := "nobody"
			if e.Owner > 0 {
				owner = w.name(e.Hosts[e.Owner-1])
			}
			way := fmt.Sprintf("by %s, owned by %s", w.name(e.Host()), owner)
			if len(w.ways) == 0 || w.ways[len(w.ways)-1] != way {
				w.ways = append(w.ways, way)
			}
		}
	}
}

// count lets a node answer how many packets have come in, if it gives an address away.
func (w *world) count(node netip.Addr, p *peer) {
	if !w.set.giving()[node] || w.mute[node] {
		p.received = nil
		return
	}
	received := map[string]uint64{}
	for _, a := range w.set.Place(node).Addresses {
		if received[a.Name] = 1; w.busy[node] {
			received[a.Name] = uint64(w.now.UnixNano())
		}
	}
	if w.countless[node] {
		received = nil
	}
	p.received = p.counts(w.now, w.now, received)
}

func (w *world) name(node netip.Addr) string {
	if n := w.nodes[node]; n != nil {
		return n.HostName
	}
	return "nobody"
}

// happens requires the ways since the last call.
func (w *world) happens(d time.Duration, want ...string) {
	w.t.Helper()
	w.ways = nil
	w.pass(d)
	require.Equal(w.t, want, w.ways)
}

const (
	byNobody = "by nobody, owned by nobody"
	byA      = "by node-0, owned by node-0"
	byB      = "by node-1, owned by node-1"
	fromAToB = "by node-1, owned by node-0"
)

func (w *world) problem(reason coe.Reason, texts ...string) {
	w.t.Helper()
	for _, p := range w.lastProblems {
		has := p.Reason == reason
		for _, text := range texts {
			has = has && strings.Contains(p.Message, text)
		}
		if has {
			return
		}
	}
	require.Fail(w.t, "no such problem", "%s %q: %v", reason, texts, w.lastProblems)
}

// A planned move gives the address to the next node only when the network sends no packet to the former one.
func TestPlannedMove(t *testing.T) {
	for name, leave := range map[string]func(*coe.Node){
		"cordoned": func(n *coe.Node) { n.Cordoned = true },
		"label":    func(n *coe.Node) { n.Egress = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.happens(settle+time.Second, byNobody, byA)
			w.inForceNow = false
			leave(w.nodes[nodeA])
			w.happens(settle+time.Second, byA, fromAToB)
			w.happens(time.Minute, fromAToB)
			w.inForceNow = true
			w.happens(settle-interval, fromAToB)
			w.inForceNow = false // the network is not asked again
			w.happens(interval, byB)
			require.Contains(t, w.set.EgressIPs[0].Hosts, nodeA, "a switch can use old flows")
			w.happens(linger, byB)
			require.Empty(t, w.lastProblems)
			require.False(t, w.set.EgressIPs[0].Hosts[2-w.set.EgressIPs[0].Active].IsValid(), "the former node has no part")
		})
	}
}

// The next node must acknowledge what it has prepared. One that does not for long is unfit for a while, and a later move to a
// node that has prepared the address once gets as much time again.
func TestNextNodeMustAcknowledge(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.pass(time.Second)
	w.peers[nodeB].answered = w.now
	w.deaf[nodeB] = true
	w.nodes[nodeA].Cordoned = true
	w.happens(2*prepareFor, byA)
	w.deaf[nodeB] = false
	w.happens(settle+time.Second, byA, fromAToB, byB)
	for range 2 {
		w.pass(2 * prepareFor)
		w.nodes[nodeA].Cordoned, w.nodes[nodeB].Cordoned = false, true
		w.happens(settle+time.Second, byB, "by node-0, owned by node-1", byA)
		w.pass(2 * prepareFor)
		w.nodes[nodeA].Cordoned, w.nodes[nodeB].Cordoned = true, false
		w.happens(settle+time.Second, byA, fromAToB, byB)
	}
}

// A node is dead if its kernel is silent. Without its agent it keeps the address.
func TestDeadNode(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.pass(time.Second)
	w.deaf[nodeA] = true
	w.happens(time.Minute, byA)
	w.silent[nodeA] = true
	w.happens(deadAfter-3*interval, byA)
	w.happens(settle+time.Second, byA, byB)
	w.silent[nodeA], w.deaf[nodeA] = false, false
	w.happens(time.Minute, byB)

	w.silent[nodeA], w.silent[nodeB] = true, true
	w.happens(time.Minute, byB)
	w.problem(coe.Waiting, "node "+nodeB.String(), "does not answer")
}

// A holder that lives without its agent is a problem after a while. It cannot take the address off its NIC, so no planned
// move begins, and one that has begun to be prepared waits.
func TestHolderWithoutAgent(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.deaf[nodeA] = true
	w.happens(deadAfter, byA)
	w.nodes[nodeA].Cordoned = true
	w.happens(agentGone/2, byA)
	require.Empty(t, w.lastProblems, "it may restart")
	w.nodes[nodeA].Egress = false
	w.happens(agentGone, byA)
	w.problem(coe.AgentSilent, "node "+nodeA.String(), address.String())
	w.deaf[nodeA] = false
	w.happens(settle+time.Second, byA, fromAToB, byB)
	require.Empty(t, w.lastProblems)

	w.nodes[nodeA].Egress = true
	w.deaf[nodeB] = true
	w.happens(time.Minute, byB)
	delete(w.nodes, nodeB)
	w.happens(settle+time.Second, "by nobody, owned by nobody", "by node-0, owned by nobody", byA)
}

// A move ends with its last step, or goes back, if the agent of one of its nodes is silent: both must change their NIC.
func TestAgentSilentDuringMove(t *testing.T) {
	for name, silent := range map[string]netip.Addr{"former": nodeA, "next": nodeB} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.happens(settle+time.Second, byNobody, byA)
			w.inForceNow = false
			w.nodes[nodeA].Cordoned = true
			w.happens(settle+time.Second, byA, fromAToB)
			w.deaf[silent] = true
			w.happens(deadAfter+time.Second, fromAToB, byA)
			require.Contains(t, w.set.EgressIPs[0].Hosts, nodeB, "the network still leads there")
			w.inForceNow = true
			w.happens(time.Minute, byA)
			w.deaf[silent] = false
			w.pass(settle + time.Second)
			require.Equal(t, byB, w.ways[len(w.ways)-1])
		})
	}
}

// A node that loses the label keeps the address while the others are away for a moment, and without its agent for longer.
func TestLabelRemovedWhileOthersAreAway(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.pass(time.Second)
	w.deaf[nodeB] = true
	w.pass(deadAfter)
	w.nodes[nodeA].Egress = false
	w.happens(prepareFor/2, byA)
	w.deaf[nodeA] = true
	w.happens(time.Minute, byA)
	w.deaf[nodeB] = false
	w.happens(time.Minute, byA)
	w.problem(coe.AgentSilent, nodeA.String())
	w.deaf[nodeA] = false
	w.happens(2*time.Second, byA, fromAToB, byB)
}

// A node that was too slow for a planned move replaces a dead one.
func TestSlowNodeIsBetterThanNone(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.pass(time.Second)
	w.noteSlow(nodeB, address)
	w.nodes[nodeA].Cordoned = true
	w.happens(10*time.Second, byA)
	w.silent[nodeA] = true
	w.happens(3*time.Second, byA, byB)
}

// A holder that does not confirm its part is a problem, and another one that confirms gets the address.
func TestHolderDoesNotConfirm(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.confused[nodeA] = true
	w.happens(prepareFor-2*interval, byA)
	require.Empty(t, w.lastProblems)
	w.confused[nodeB] = true
	w.happens(settle+time.Second, byA)
	w.problem(coe.AgentSilent, "has not confirmed")
	w.happens(2*prepareFor, byA)
	w.confused[nodeB] = false
	w.happens(2*unfitFor, byA, fromAToB, byB)
	require.Empty(t, w.lastProblems)
}

// A port that is not in force on a node concerns its EgressIP alone: this one is held by another node, and the others
// begin, stay and move.
func TestNodeConfirmsEachPort(t *testing.T) {
	w := newWorld(t)
	w.specs = append(w.specs, &coe.EgressSpec{UID: "2", Name: "zoo", Address: another})
	w.broken[nodeA], w.broken[nodeB] = 2, 2
	w.happens(settle+time.Second, byNobody, byA)
	w.happens(2*prepareFor, byA)
	zoo := func() *coe.EgressIP { return w.set.EgressIPs[1] }
	require.Zero(t, zoo().Active)
	delete(w.broken, nodeB)
	w.happens(2*unfitFor, byA)
	require.Equal(t, nodeB, zoo().Host())
	w.nodes[nodeB].Cordoned = true
	w.happens(2*prepareFor, byA)
	require.Equal(t, nodeB, zoo().Host(), "the other node does not confirm it")
	w.nodes[nodeB].Cordoned, w.nodes[nodeA].Cordoned = false, true
	w.happens(settle+time.Second, byA, fromAToB, byB)
	require.Equal(t, nodeB, zoo().Host())
	w.broken[nodeB] = 2
	w.pass(2 * unfitFor)
	w.problem(coe.AgentSilent, another.String())
	require.Len(t, w.lastProblems, 1)
}

// A new leader knows nothing of the nodes, and takes none for dead before it has asked it for as long.
func TestNewLeaderTakesNoNodeForDead(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.peers = map[netip.Addr]*peer{}
	w.silent[nodeA] = true
	w.happens(deadAfter-2*interval, byA)
	w.happens(settle+time.Second, byA, byB)
}

func TestLastNodeLosesTheLabel(t *testing.T) {
	w := newWorld(t)
	w.nodes[nodeB].Egress = false
	w.happens(settle+time.Second, byNobody, byA)
	w.nodes[nodeA].Cordoned = true
	w.happens(time.Minute, byA)
	require.Empty(t, w.lastProblems, "a cordoned node keeps it if there is no other")
	w.nodes[nodeA].Egress = false
	w.happens(prepareFor-2*interval, byA)
	w.problem(coe.Waiting, "node "+nodeA.String(), "loses it")
	w.happens(time.Minute, byA, byNobody)
	w.problem(coe.Waiting, "its pods do not leave the cluster")
}

func TestCordonedNodeIsBetterThanNone(t *testing.T) {
	w := newWorld(t)
	w.nodes[nodeA].Cordoned, w.nodes[nodeB].Cordoned = true, true
	w.happens(settle+time.Second, byNobody, byA)
	w.nodes[nodeB].Cordoned = false
	w.happens(settle+time.Second, byA, fromAToB, byB)
}

func TestNodeWithoutNIC(t *testing.T) {
	w := newWorld(t)
	w.happens(0, byNobody)
	w.peers[nodeA].unfit = with(nil, address, w.now)
	w.happens(settle+time.Second, byNobody, byB)
	w.peers[nodeB].unfit = with(nil, address, w.now)
	w.happens(10*time.Second, byB)
	w.problem(coe.Waiting, "has no NIC")
}

// The accepted state stays while sources are not listed, and after a wrong change.
func TestWrongChanges(t *testing.T) {
	w := newWorld(t)
	w.happens(settle+time.Second, byNobody, byA)
	w.specs, w.listed = nil, false
	w.happens(time.Minute, byA)

	w.listed = true
	w.specs = []*coe.EgressSpec{{UID: "1", Name: "shop", Invalid: "spec.egressIPs: wrong"}}
	w.happens(time.Minute, byA)
	w.problem(coe.PolicyInvalid, "spec.egressIPs: wrong")

	w.refuse = func(a netip.Addr) *coe.Refusal {
		if a == another {
			return &coe.Refusal{Reason: coe.AddressTaken, Message: "it is the address of node-9"}
		}
		return nil
	}
	w.specs = []*coe.EgressSpec{{UID: "1", Name: "shop", Address: another}}
	w.happens(time.Minute, byA)
	require.Equal(t, address, w.set.EgressIPs[0].Address)
	w.problem(coe.AddressTaken, "node-9", address.String())

	w.specs = []*coe.EgressSpec{{UID: "1", Name: "shop", Address: address}, {UID: "2", Name: "thief", Address: address}, {UID: "3", Name: "wrong", Address: another}}
	w.happens(time.Minute, byA)
	w.problem(coe.AddressTaken, "egressip shop", "do not leave")
	require.Len(t, w.set.EgressIPs, 3)
	for _, e := range w.set.EgressIPs[1:] {
		require.False(t, e.Address.IsValid())
		require.Zero(t, e.Active)
	}
	w.specs = w.specs[1:]
	w.pass(time.Second)
	require.Equal(t, "thief", w.set.EgressIPs[0].Name)
	require.Equal(t, nodeA, w.set.EgressIPs[0].Host(), "the address is free again")
}

func TestSpread(t *testing.T) {
	w := newWorld(t)
	w.specs = nil
	for i := range 4 {
		w.specs = append(w.specs, &coe.EgressSpec{UID: fmt.Sprint(i), Name: fmt.Sprint("e", i), Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
	}
	w.pass(time.Second)
	held, numbers := map[netip.Addr]int{}, map[uint16]bool{}
	for _, e := range w.set.EgressIPs {
		held[e.Host()]++
		numbers[e.Number] = true
	}
	require.Equal(t, map[netip.Addr]int{nodeA: 2, nodeB: 2}, held)
	require.Len(t, numbers, 4)
}

func TestRecords(t *testing.T) {
	w := newWorld(t)
	w.pass(time.Second)
	records := w.set.encode()
	again, damaged := Decode(records)
	require.Empty(t, damaged)
	require.Equal(t, w.set, again)
	for name := range records { // one of each pair
		if strings.HasPrefix(name, copyPrefix) {
			continue
		}
		broken := maps.Clone(records)
		broken[name] = []byte("{")
		again, damaged := Decode(broken)
		require.Empty(t, damaged)
		require.Equal(t, w.set, again)
		require.Equal(t, []string{name}, unreadable(broken))
	}
	for name, value := range map[string]string{"a": "{", "b": `{"name":"shop","number":1}`, "c": `{"name":"c","number":1,"active":1}`, "d": `{"name":"d","number":9999}`} {
		_, damaged := Decode(map[string][]byte{name: []byte(value)})
		require.Equal(t, []string{name}, damaged)
	}
}

// The parts of two nodes have keys of their own, and each change gives a part another version.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	w.pass(time.Second)
	a, b := w.set.Place(nodeA), w.set.Place(nodeB)
	require.NotEqual(t, a.Key, b.Key)
	require.Len(t, a.Addresses, 1)
	require.True(t, a.Addresses[0].Owner)
	require.Empty(t, b.Addresses)
	require.Nil(t, w.set.Place(nodeC))
	w.set.EgressIPs[0].Owner = 0
	require.NotEqual(t, a.Version, w.set.Place(nodeA).Version)
}

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// FuzzCompare: the groups of a comparison say of every pair of pods, nodes and blocks what the
// open ports before and after a change say, and nothing twice.
func FuzzCompare(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := newGenerator(seed)
		w := g.world(t)
		next := g.world(t)
		changed := w.World
		changed.Policies = slices.Clone(w.Policies)
		switch g.IntN(4) {
		case 0: // other policies with the same names
			changed.Policies = next.Policies
		case 1: // other labels of namespaces
			changed.Namespaces = next.Namespaces
		case 2: // other labels and ports of pods
			changed.Pods = slices.Clone(w.Pods)
			for i := range changed.Pods[:min(len(next.Pods), len(changed.Pods))] {
				changed.Pods[i].Labels, changed.Pods[i].Ports = next.Pods[i].Labels, next.Pods[i].Ports
			}
		default: // a policy more, and one less
			changed.Policies = append(changed.Policies[:max(0, len(changed.Policies)-1)], next.Policies...)
		}
		before, after := policy.Compile(w.World), policy.Compile(changed)
		told := told(t, policy.Compare(before, after), before)
		for _, from := range ends(w.World, before) {
			for _, to := range ends(w.World, before) {
				if !compared(from, to) {
					continue
				}
				open, then := before.OpenPorts(from, to), after.OpenPorts(same(t, after, from), same(t, after, to))
				var want string
				if !slices.Equal(open, then) {
					want = fmt.Sprint(minus(then, open), minus(open, then))
				}
				require.Equal(t, want, told[describe(from)+" to "+describe(to)], "%s to %s: before %v, after %v", describe(from), describe(to), open, then)
			}
		}
	})
}

// compared reports whether a comparison is about a connection: it has different ends of one family,
// one of them is a pod that policies can select, and the other is not its node.
func compared(from, to policy.End) bool {
	own := func(a, b policy.End) bool { return a.Pod() != nil && b.Node() != "" && a.Pod().Node == b.Node() }
	hostNetwork := func(e policy.End) bool { return e.Pod() != nil && e.Pod().HostNetwork }
	return policy.SameFamily(from, to) && from.Pod() != to.Pod() &&
		!hostNetwork(from) && !hostNetwork(to) && !own(from, to) && !own(to, from)
}

// told expands groups to pairs.
func told(t *testing.T, changes []policy.Change, c *policy.Cluster) map[string]string {
	all := map[string]string{}
	for _, change := range changes {
		require.NotEmpty(t, append(change.Opened, change.Closed...))
		for _, from := range members(t, change.From, c) {
			for _, to := range members(t, change.To, c) {
				if !compared(from, to) || change.Family == 4 && !from.Addr().Is4() || change.Family == 6 && !from.Addr().Is6() {
					continue
				}
				p := describe(from) + " to " + describe(to)
				require.NotContains(t, all, p, "said twice")
				all[p] = fmt.Sprint(numbers(change.Opened), numbers(change.Closed))
			}
		}
	}
	return all
}

func members(t *testing.T, g policy.Group, c *policy.Cluster) (all []policy.End) {
	for _, of := range g.Namespaces {
		for _, name := range of.Pods {
			ends, found := c.Pod(of.Namespace, name)
			require.True(t, found)
			all = append(all, ends...)
		}
	}
	for _, n := range []int{0, 1, 2} {
		if slices.Contains(g.Nodes, fmt.Sprintf("n%d", n+1)) {
			all = append(all, c.At(address4(n))[0], c.At(address6(n))[0])
		}
	}
	for n := 24; n < 32; n++ {
		for _, a := range []netip.Addr{address4(n), address6(n)} {
			for _, block := range g.Blocks {
				if block.Contains(a) {
					all = append(all, policy.Outside(a))
				}
			}
		}
	}
	return all
}

// numbers are ports one by one, as far as the generator draws them, and the last one.
func numbers(ranges []policy.PortRange) map[string]bool {
	all := map[string]bool{}
	for _, r := range ranges {
		for _, n := range []uint16{1, 79, 80, 81, 82, 83, 84, 85, 86, 90, 100, 65535} {
			if r.First <= n && n <= r.Last {
				all[fmt.Sprint(r.Protocol, n)] = true
			}
		}
	}
	return all
}

func minus(ports, not []policy.PortRange) map[string]bool {
	left := numbers(ports)
	for n := range numbers(not) {
		delete(left, n)
	}
	return left
}

// A policy that isolates the pods of a namespace closes what reaches them from everywhere but
// their own node, in one line; a policy that lets some in again opens one path.
func TestCompareGroups(t *testing.T) {
	w := largeWorld()
	w.Policies = nil
	for n := range 100 {
		w.Nodes = append(w.Nodes, policy.Node{Name: fmt.Sprint("node", n), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 0, byte(n)})}})
	}
	before := policy.Compile(w)
	deny := &coe.PolicySpec{Policy: coe.Policy{Namespace: "ns0", Name: "deny"}, Ingress: coe.PolicySide{Isolates: true}}
	w.Policies = []*coe.PolicySpec{deny}
	denied := policy.Compile(w)

	changes := policy.Compare(before, denied)
	require.Len(t, changes, 1)
	require.True(t, changes[0].From.AllPods)
	require.True(t, changes[0].From.AllNodes)
	require.Equal(t, "0.0.0.0/0", changes[0].From.Blocks[0].String())
	require.Len(t, changes[0].To.Namespaces, 1)
	require.True(t, changes[0].To.Namespaces[0].All)
	require.Equal(t, policy.AllPorts(), changes[0].Closed)
	require.Empty(t, changes[0].Opened)

	allow := &coe.PolicySpec{Policy: coe.Policy{Namespace: "ns0", Name: "allow"}, Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{
		Peers: []coe.PolicyPeer{{Pods: coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{"3"}}}}}},
		Ports: []coe.PolicyPort{{Protocol: "tcp", First: 80, Last: 80}},
	}}}}
	w.Policies = append(w.Policies, allow)
	changes = policy.Compare(denied, policy.Compile(w))
	require.Len(t, changes, 1)
	require.Len(t, changes[0].From.Namespaces[0].Pods, 10)
	require.Equal(t, []policy.PortRange{{Protocol: "tcp", First: 80, Last: 80}}, changes[0].Opened)
	require.Empty(t, policy.Compare(denied, denied))
}

func BenchmarkCompare(b *testing.B) {
	w := largeWorld()
	after := policy.Compile(w)
	without := w
	without.Policies = w.Policies[10:]
	before := policy.Compile(without)
	none := w
	none.Policies = nil
	empty := policy.Compile(none)
	b.Run("ten policies", func(b *testing.B) {
		for b.Loop() {
			policy.Compare(before, after)
		}
	})
	b.Run("all policies", func(b *testing.B) {
		for b.Loop() {
			policy.Compare(empty, after)
		}
	})
}

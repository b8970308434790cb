package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// largeWorld is 10,000 pods in 100 namespaces. In each are 10 policies that select all its pods,
// with a rule for pods of another namespace and one for a block.
func largeWorld() policy.World {
	var w policy.World
	is := func(key, value string) coe.Selector {
		return coe.Selector{Requirements: []coe.Requirement{{Key: key, Operator: coe.In, Values: []string{value}}}}
	}
	for ns := range 100 {
		namespace := fmt.Sprint("ns", ns)
		w.Namespaces = append(w.Namespaces, policy.Namespace{Name: namespace, Labels: coe.NewLabels(map[string]string{"n": fmt.Sprint(ns)})})
		for n := range 100 {
			w.Pods = append(w.Pods, policy.Pod{
				Namespace: namespace, Name: fmt.Sprint("pod", n), Node: fmt.Sprint("node", n), Labels: coe.NewLabels(map[string]string{"app": fmt.Sprint(n % 10)}),
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(ns), byte(n)})},
			})
		}
		for n := range 10 {
			next := is("n", fmt.Sprint((ns+1)%100))
			w.Policies = append(w.Policies, &coe.PolicySpec{
				Policy: coe.Policy{Namespace: namespace, Name: fmt.Sprint("policy", n)},
				Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{
					{Peers: []coe.PolicyPeer{{Namespaces: &next, Pods: is("app", fmt.Sprint(n))}}, Ports: []coe.PolicyPort{{Protocol: "tcp", First: 80, Last: 80}}},
					{Peers: []coe.PolicyPeer{{Block: &coe.AddressBlock{CIDR: netip.MustParsePrefix("192.0.2.0/24")}}}},
				}},
			})
		}
	}
	return w
}

func BenchmarkCompile(b *testing.B) {
	w := largeWorld()
	for b.Loop() {
		policy.Compile(w)
	}
}

func BenchmarkAllowed(b *testing.B) {
	c := policy.Compile(largeWorld())
	from, _ := c.Pod("ns1", "pod9")
	to, _ := c.Pod("ns0", "pod1")
	port := policy.Port{Protocol: "tcp", Number: 80}
	for b.Loop() {
		if !c.Allowed(from[0], to[0], port) {
			b.Fatal("the tenth policy allows it")
		}
	}
}

func BenchmarkReach(b *testing.B) {
	c := policy.Compile(largeWorld())
	to, _ := c.Pod("ns0", "pod1")
	for b.Loop() {
		c.Reach(to[0], coe.Ingress)
	}
}

// BenchmarkReachOfManyRules is about a pod with a rule and a port of its own for each of 500 pods.
func BenchmarkReachOfManyRules(b *testing.B) {
	var w policy.World
	for n := range 500 {
		app := fmt.Sprint(n)
		w.Pods = append(w.Pods, policy.Pod{Namespace: "shop", Name: "pod" + app, Labels: coe.NewLabels(map[string]string{"app": app})})
		peer := coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{app}}}}
		port := uint16(2*n + 1)
		w.Policies = append(w.Policies, &coe.PolicySpec{
			Policy: coe.Policy{Namespace: "shop", Name: "policy" + app},
			Ingress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{
				{Peers: []coe.PolicyPeer{{Pods: peer}}, Ports: []coe.PolicyPort{{Protocol: "tcp", First: port, Last: port}}},
			}},
		})
	}
	c := policy.Compile(w)
	to, _ := c.Pod("shop", "pod0")
	for b.Loop() {
		c.Reach(to[0], coe.Ingress)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	exceptPods  = 8
	exceptPorts = 3
)

// measureExcept counts the OpenFlow flows of a policy that allows a /16 without three of its /24, on three
// ports. Another policy isolates the pods before. OVN makes two logical flows of an ACL that allows: for new
// connections and for established ones. Each needs a flow for each prefix, port and local port (conjunctive match), and
// one for the action. So the bound, which is for one of them without its action, cannot be reached.
func measureExcept(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	block := &networkingv1.IPBlock{CIDR: "172.20.0.0/16", Except: []string{"172.20.7.0/24", "172.20.64.0/24", "172.20.130.0/24"}}
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: block}}}
	for n := range exceptPorts {
		rule.Ports = append(rule.Ports, tcp(int32(8000+10*n)))
	}
	h, err := b.newHosts(ctx, spec{
		load: kube.PodLoad{Count: exceptPods, Namespaces: 1, Nodes: 2},
		policy: func(i int) networkingv1.NetworkPolicy {
			return networkPolicy(i, 0, networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{rule}[:i]})
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.write(ctx, 1, "isolate"); err != nil {
		return nil, err
	}
	before, err := h.flows(ctx, kube.Node(0))
	if err != nil {
		return nil, err
	}
	if err := h.write(ctx, 2, "ace ingress:policy-1:0:ipv4"); err != nil {
		return nil, err
	}
	prefixes, err := prefixesOf(block)
	if err != nil {
		return nil, err
	}
	after, err := h.flows(ctx, kube.Node(0))
	if err != nil {
		return nil, err
	}
	bound := prefixes + exceptPorts + exceptPods/2
	return []figures.Figure{{
		Name:     "a /16 with three excepts, three ports, four local ports: OpenFlow flows on a node",
		Measured: fmt.Sprintf("%d for %d prefixes", after-before, prefixes),
		Bound:    fmt.Sprintf("at most %d", bound), Within: after-before <= bound,
	}}, nil
}

// prefixesOf returns the number of prefixes of a block without its excepts.
func prefixesOf(block *networkingv1.IPBlock) (int, error) {
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.MustParsePrefix(block.CIDR))
	for _, except := range block.Except {
		b.RemovePrefix(netip.MustParsePrefix(except))
	}
	set, err := b.IPSet()
	if err != nil {
		return 0, fmt.Errorf("count the prefixes of %s: %w", block.CIDR, err)
	}
	return len(set.Prefixes()), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	joinNamespaces = 20
	joinPods       = 5000
	joinPolicies   = 20 // in each second namespace
	joinNew        = 600
	joinEvery      = 40 * time.Millisecond
	joinMutations  = 45
	joinFactor     = 1.3
)

// joining has 20 policies in each second namespace. Each of them selects all pods of the namespace, by a
// selector of its own, isolates them in both directions, and allows them as peers, by another selector.
func joining() spec {
	return spec{
		load:     kube.PodLoad{Count: joinPods, Namespaces: joinNamespaces, Nodes: 10},
		labels:   func(int) map[string]string { return map[string]string{"app": "web"} },
		policies: joinPolicies * joinNamespaces / 2,
		policy: func(i int) networkingv1.NetworkPolicy {
			k := i / (joinNamespaces / 2)
			peers := []networkingv1.NetworkPolicyPeer{{PodSelector: without(fmt.Sprintf("other-%d", k))}}
			ports := []networkingv1.NetworkPolicyPort{tcp(int32(8000 + k))}
			return networkPolicy(i, 2*(i%(joinNamespaces/2)), networkingv1.NetworkPolicySpec{
				PodSelector: *without(fmt.Sprintf("app-%d", k)),
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}},
				Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}},
			})
		},
	}
}

// without selects pods whose app is not the given one.
func without(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{app}},
	}}
}

// measureJoin creates pods, alternately in namespaces with 20 policies and in namespaces without. The measured
// time is from the event of the pod until its row is in the northbound database. northd does not run: it would
// compute everything again for each pod.
func measureJoin(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	c, err := b.newCluster(joining())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.api.Close()) }()
	northbound, err := ovsdb.Run()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, northbound.Close()) }()
	b.Say("5,000 pods, half of them with 20 policies: choosing and writing")
	br, err := b.start(ctx, c, northbound.Endpoint())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	rows := make(chan string, 1)
	watch, err := nbwatch.Start(ctx, northbound.Endpoint(), func(name string) { rows <- name })
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	b.Say("creating %d pods", joinNew)
	journal, err := northbound.Journal()
	if err != nil {
		return nil, err
	}
	joined, plain, err := c.join(ctx, rows)
	if err != nil {
		return nil, err
	}
	records, err := journal.Since()
	if err != nil {
		return nil, err
	}
	return joinFigures(joined, plain, records), nil
}

// join creates the new pods one after the other.
func (c *cluster) join(ctx context.Context, rows <-chan string) (joined, plain []time.Duration, err error) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	for i := joinPods; i < joinPods+joinNew; i++ {
		begun := time.Now()
		if err := c.pods.Resize(i + 1); err != nil {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-rows:
		}
		if took := time.Since(begun); i%joinNamespaces%2 == 0 {
			joined = append(joined, took)
		} else {
			plain = append(plain, took)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-tick.C:
		}
	}
	slices.Sort(joined)
	slices.Sort(plain)
	return joined, plain, nil
}

func joinFigures(joined, plain []time.Duration, records []ovsdb.Record) []figures.Figure {
	most := 0
	for _, r := range records {
		mutated := 0
		for table, rows := range r {
			if table != nb.LogicalSwitchPortTable { // its row is inserted
				mutated += len(rows)
			}
		}
		most = max(most, mutated)
	}
	p50, base := figures.Percentile(joined, 50), figures.Percentile(plain, 50)
	ratio := float64(p50) / float64(base)
	const name = "a pod joins 20 policies: "
	return []figures.Figure{
		{
			Name: name + "transactions", Measured: fmt.Sprintf("%g", float64(len(records))/joinNew),
			Bound: "1", Within: len(records) == joinNew,
		},
		{Name: name + "mutations", Measured: fmt.Sprint(most), Bound: fmt.Sprintf("at most %d", joinMutations), Within: most <= joinMutations},
		{
			Name: name + "to its row in NB, p50, beside a pod without policies", Measured: fmt.Sprintf("%.2f of it (%s, without %s)", ratio, figures.Short(p50), figures.Short(base)),
			Bound: fmt.Sprintf("at most %g", joinFactor), Within: ratio <= joinFactor,
		},
	}
}

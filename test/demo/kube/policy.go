package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// policy lets the pods with a label reach the pods of namespace shop, and no others.
const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: buyers, namespace: shop}
spec:
  podSelector: {}
  ingress:
    - from:
        - namespaceSelector: {}
          podSelector: {matchLabels: {buys: "yes"}}
`

// restrict restricts who reaches the pod with probes.
func (s *story) restrict(ctx context.Context) error {
	pages, till, err := s.pods(ctx)
	if err != nil {
		return err
	}
	one, other := pages[s.lab.Nodes[0].Name][0], pages[s.lab.Nodes[1].Name][0]
	if err := s.lab.ApplyManifest(ctx, policy); err != nil {
		return err
	}
	if err := s.reach(ctx, "with the policy", till, nil, []kubelab.Place{one, other}); err != nil {
		return err
	}
	_, name, _ := strings.Cut(other.Name, "/")
	if _, err := s.lab.Run(ctx, "", "label", "pod", "--namespace=web", name, "buys=yes"); err != nil {
		return err
	}
	if err := s.reach(ctx, "with the label", till, []kubelab.Place{other}, []kubelab.Place{one}); err != nil {
		return err
	}
	if _, err := s.lab.Run(ctx, "", "wait", "--namespace=shop", "--for=condition=Ready", "pod/till", "--timeout=5s"); err != nil {
		return fmt.Errorf("probes of a pod with a policy: %w", err)
	}
	if _, err := s.lab.Run(ctx, "", "delete", "networkpolicy", "--namespace=shop", "buyers"); err != nil {
		return err
	}
	return s.reach(ctx, "without the policy", till, []kubelab.Place{one, other}, nil)
}

// silences is how many packets in a row of a dropped client have no answer. One packet can be lost.
const silences = 3

// reach waits until some clients are answered by a pod, and others are not.
func (s *story) reach(ctx context.Context, when string, pod kubelab.Place, answered, dropped []kubelab.Place) error {
	err := s.await(ctx, func(ctx context.Context) error {
		for _, c := range answered {
			if err := c.Ping(ctx, pod.Address); err != nil {
				return err
			}
		}
		for _, c := range dropped {
			for range silences {
				if c.Ping(ctx, pod.Address) == nil {
					return fmt.Errorf("%s still reaches %s", c.Name, pod.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	for _, c := range answered {
		s.screen.Say("%s -> %s %s, %s: answered", c.Name, pod.Name, pod.Address, when)
	}
	for _, c := range dropped {
		s.screen.Say("%s -> %s %s, %s: dropped", c.Name, pod.Name, pod.Address, when)
	}
	return nil
}

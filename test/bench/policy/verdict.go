package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	verdictNamespaces = 100
	verdictPolicies   = 20 // in each namespace
	verdictRounds     = 3
	verdictFactor     = 1.5
	firstPort         = 8000 // policy k of a namespace allows port 8000+k
)

// isolating has a pod on each of two nodes in each of 100 namespaces, and 20 policies in each namespace.
func isolating() spec {
	return spec{
		load:   kube.PodLoad{Count: 2 * verdictNamespaces, Namespaces: verdictNamespaces, Nodes: 2},
		labels: func(int) map[string]string { return map[string]string{"app": "web"} },
		policy: func(i int) networkingv1.NetworkPolicy {
			k := i / verdictNamespaces
			return networkPolicy(i, i%verdictNamespaces, networkingv1.NetworkPolicySpec{
				PodSelector: *without(fmt.Sprintf("app-%d", k)),
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From:  []networkingv1.NetworkPolicyPeer{{PodSelector: without(fmt.Sprintf("other-%d", k))}},
					Ports: []networkingv1.NetworkPolicyPort{tcp(int32(firstPort + k))},
				}},
			})
		},
	}
}

// measureVerdict creates all policies at once. The two pods of each namespace send to each other meanwhile, to a
// port that no policy allows. The measured time is from the events until the last of these packets. Then a bare
// client writes the same rows in one transaction, alternating with the bridge.
func measureVerdict(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	h, err := b.newHosts(ctx, isolating())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	s, err := h.newStreams()
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var ratios []float64
	var ours, bare time.Duration
	for n := range verdictRounds {
		tookOurs, rows, err := h.verdictOurs(ctx, s)
		if err != nil {
			return nil, err
		}
		tookBare, err := h.verdictBare(ctx, s, rows)
		if err != nil {
			return nil, err
		}
		b.Say("2,000 policies, round %d of %d: bridge %s, bare rows %s", n+1, verdictRounds, figures.Short(tookOurs), figures.Short(tookBare))
		ratios = append(ratios, float64(tookOurs)/float64(tookBare))
		ours, bare = ours+tookOurs, bare+tookBare
		if h.bridge, err = b.start(ctx, h.cluster, h.lab.NB.Remote); err != nil {
			return nil, err
		}
	}
	ratio := slices.Sorted(slices.Values(ratios))[verdictRounds/2]
	return []figures.Figure{{
		Name: "20 policies in each of 100 namespaces at once: to the last verdict on two hosts",
		Measured: fmt.Sprintf("%.2f of bare rows in one transaction, median (%s, bare %s)", ratio,
			figures.Short(ours/verdictRounds), figures.Short(bare/verdictRounds)),
		Bound: fmt.Sprintf("at most %g", verdictFactor), Within: ratio <= verdictFactor,
	}}, nil
}

// verdictOurs measures the bridge. Then it deletes the policies and stops the bridge. It returns the rows that the
// bridge had written.
func (h *hosts) verdictOurs(ctx context.Context, s *streams) (took time.Duration, rows []any, err error) {
	if err := s.awaitOpen(ctx); err != nil {
		return 0, nil, err
	}
	begun := time.Now()
	if err := h.policies.Resize(verdictNamespaces * verdictPolicies); err != nil {
		return 0, nil, err
	}
	if took, err = h.verdict(ctx, s, begun); err != nil {
		return 0, nil, err
	}
	if rows, err = policyRows(ctx, h.lab.NB.Remote); err != nil {
		return 0, nil, err
	}
	if err := h.policies.Resize(0); err != nil {
		return 0, nil, err
	}
	if err := h.awaitNoRows(ctx); err != nil {
		return 0, nil, err
	}
	err = h.bridge.Stop()
	h.bridge = nil
	return took, rows, err
}

// awaitNoRows waits until the rows of policies are deleted, and the switches have no flows of them.
func (h *hosts) awaitNoRows(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	err := ovnhost.Poll(within, func(ctx context.Context) error {
		rows, err := policyRows(ctx, h.lab.NB.Remote)
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("%d rows of deleted policies are left", len(rows))
		}
		return err
	})
	if err != nil {
		return err
	}
	return h.lab.Sync(ctx)
}

// verdictBare measures a client that writes rows, and deletes them.
func (h *hosts) verdictBare(ctx context.Context, s *streams, rows []any) (took time.Duration, err error) {
	if err := s.awaitOpen(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	if _, err := nbrows.Transact(ctx, h.lab.NB.Remote, rows...); err != nil {
		return 0, err
	}
	if took, err = h.verdict(ctx, s, begun); err != nil {
		return 0, err
	}
	if _, err := nbrows.Transact(ctx, h.lab.NB.Remote, nbrows.All("delete", "Port_Group"), nbrows.All("delete", "Address_Set")); err != nil {
		return 0, err
	}
	return took, h.lab.Sync(ctx)
}

// verdict waits until no forbidden packet arrives any more. It returns the time from begun until the last one. Then
// it tries everything that is allowed.
func (h *hosts) verdict(ctx context.Context, s *streams, begun time.Time) (time.Duration, error) {
	last, err := s.awaitQuiet(ctx)
	if err != nil {
		return 0, err
	}
	_, err = kube.Each(ctx, len(h.at)*verdictPolicies, connects, func(ctx context.Context, n int) error {
		i := n / verdictPolicies
		return h.connect(ctx, i, uint16(firstPort+n%verdictPolicies))
	})
	if err == nil {
		err = s.requireQuiet(last)
	}
	return last.Sub(begun), err
}

// connects is the number of connections at the same time.
const connects = 8

// peer returns the number of the other pod of a pod's namespace.
func peer(i int) int { return (i + verdictNamespaces) % (2 * verdictNamespaces) }

// connect connects from a pod to a port of its peer, where nobody listens: a refusal is an answer.
func (h *hosts) connect(ctx context.Context, i int, port uint16) error {
	at := netip.AddrPortFrom(h.at[peer(i)].address, port)
	conn, err := h.lab.Dial(ctx, h.at[i].device, "tcp", at.String())
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s is open, and nobody should listen", at), conn.Close())
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("an allowed connection of %s: %w", h.at[i].device, err)
	}
	return nil
}

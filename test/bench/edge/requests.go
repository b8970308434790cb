package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

const (
	requestRounds = 9
	requestTime   = 3 * time.Second        // of a round
	warmTime      = 300 * time.Millisecond // before it, in which Open vSwitch makes its flows
	// requestShare bounds the rate in relation to kube-proxy's, and its inverse bounds the time.
	requestShare = 0.95
)

// load is what a way has served.
type load struct {
	rates []float64       // of each round
	times []time.Duration // of each request
}

// measureRequests sends requests to a node port, each over a new connection: of the node, of a gateway of OVN on the node
// that leads to the same service, and of kube-proxy.
func measureRequests(ctx context.Context, c *cluster) (all []figures.Figure, err error) {
	both := c.ways("requests", 80)
	for _, w := range both {
		err := c.expose(ctx, newService(w.service, corev1.ServiceExternalTrafficPolicyCluster, w.at.Port()), c.newSlice(w.service, "a1", "a2", "b1", "b2"))
		if err != nil {
			return nil, err
		}
	}
	if err := c.prepareGateway(ctx); err != nil {
		return nil, err
	}
	ways := []*way{both[0], c.byGateway(both[0]), both[1]}
	for _, clients := range []int{1, 64} {
		loads := make([]load, len(ways))
		for n := range requestRounds {
			for i := range ways {
				i = (i + n) % len(ways)
				if err := c.turn(ctx, ways[i], "a1", clients, &loads[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
			}
			c.Say("%d clients, round %d of %d: %.0f/s, by the gateway %.0f/s, kube-proxy %.0f/s", clients, n+1, requestRounds, loads[0].rates[n], loads[1].rates[n], loads[2].rates[n])
		}
		sorted(loads)
		all = append(all, compare(fmt.Sprintf("requests by a node port, %d clients", clients), loads[0], loads[2], requestShare)...)
		all = append(all, compare(fmt.Sprintf("requests by a node port of a gateway of OVN, %d clients", clients), loads[1], loads[2], requestShare)...)
	}
	return all, nil
}

// turn opens a way, and sends requests by it for a round. A pod that serves them is named.
func (c *cluster) turn(ctx context.Context, w *way, pod string, clients int, into *load) error {
	// Open vSwitch looks a packet up in one table for each mask of its flows, in the order in which these were made. So a
	// way whose flows are older would be faster.
	if err := c.lab.OVN.ForgetFlows(ctx); err != nil {
		return err
	}
	if err := c.open(ctx, w, pod); err != nil {
		return err
	}
	return errors.Join(c.send(ctx, w, clients, warmTime, &load{}), c.send(ctx, w, clients, requestTime, into))
}

// sorted sorts what ways have served.
func sorted(loads []load) {
	for _, l := range loads {
		slices.Sort(l.rates)
		slices.Sort(l.times)
	}
}

// compare compares a load with that of kube-proxy. bound is that of the rate, and of the inverse of the time.
func compare(name string, own, proxy load, bound float64) []figures.Figure {
	rate, proxyRate := own.rates[requestRounds/2], proxy.rates[requestRounds/2]
	p99, proxyP99 := figures.Percentile(own.times, 99), figures.Percentile(proxy.times, 99)
	share := float64(proxyP99) / float64(p99)
	return []figures.Figure{
		figures.Rate(name+", a connection each",
			fmt.Sprintf("%.2f of kube-proxy's rate (%.0f/s, kube-proxy %.0f/s)", rate/proxyRate, rate, proxyRate), rate/proxyRate, bound),
		figures.Rate(name+": p99, inverse",
			fmt.Sprintf("%.2f of kube-proxy's (%s, kube-proxy %s)", share, figures.Short(p99), figures.Short(proxyP99)), share, bound),
	}
}

// send sends requests for a time.
func (c *cluster) send(ctx context.Context, w *way, clients int, takes time.Duration, into *load) error {
	var (
		mu     sync.Mutex
		failed error
		wg     sync.WaitGroup
		count  int
	)
	begun := time.Now()
	for range clients {
		wg.Go(func() {
			var times []time.Duration
			err := c.outside(func() error {
				for time.Since(begun) < takes {
					asked := time.Now()
					if _, err := ask(ctx, w.at); err != nil {
						return err
					}
					times = append(times, time.Since(asked))
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			failed, count, into.times = errors.Join(failed, err), count+len(times), append(into.times, times...)
		})
	}
	wg.Wait()
	into.rates = append(into.rates, float64(count)/time.Since(begun).Seconds())
	return failed
}

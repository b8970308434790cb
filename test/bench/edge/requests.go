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
	requestRounds = 5
	requestTime   = 3 * time.Second // of a round
	// requestShare bounds the rate in relation to kube-proxy's, and its inverse bounds the time.
	requestShare = 0.95
)

// load is what a way has served.
type load struct {
	rates []float64       // of each round
	times []time.Duration // of each request
}

// measureRequests sends requests to a node port, each over a new connection.
func measureRequests(ctx context.Context, c *cluster) (all []figures.Figure, err error) {
	ways := c.ways("requests", 80)
	for _, w := range ways {
		err := c.expose(ctx, newService(w.service, corev1.ServiceExternalTrafficPolicyCluster, w.at.Port()), c.newSlice(w.service, "a1", "a2", "b1", "b2"))
		if err != nil {
			return nil, err
		}
	}
	for _, clients := range []int{1, 64} {
		var loads [2]load
		for n := range requestRounds {
			for i := range ways {
				i = (i + n) % len(ways)
				if err := c.open(ctx, ways[i], "a1"); err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
				if err := c.send(ctx, ways[i], clients, &loads[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
			}
			c.Say("%d clients, round %d of %d: %.0f/s, kube-proxy %.0f/s", clients, n+1, requestRounds, loads[0].rates[n], loads[1].rates[n])
		}
		all = append(all, compare(clients, loads)...)
	}
	return all, nil
}

func compare(clients int, loads [2]load) []figures.Figure {
	for _, l := range loads {
		slices.Sort(l.rates)
		slices.Sort(l.times)
	}
	rate, proxyRate := loads[0].rates[requestRounds/2], loads[1].rates[requestRounds/2]
	p99, proxyP99 := figures.Percentile(loads[0].times, 99), figures.Percentile(loads[1].times, 99)
	share := float64(proxyP99) / float64(p99)
	return []figures.Figure{
		figures.Rate(fmt.Sprintf("requests by a node port, %d clients, a connection each", clients),
			fmt.Sprintf("%.2f of kube-proxy's rate (%.0f/s, kube-proxy %.0f/s)", rate/proxyRate, rate, proxyRate), rate/proxyRate, requestShare),
		figures.Rate(fmt.Sprintf("requests by a node port, %d clients: p99, inverse", clients),
			fmt.Sprintf("%.2f of kube-proxy's (%s, kube-proxy %s)", share, figures.Short(p99), figures.Short(proxyP99)), share, requestShare),
	}
}

// send sends requests for the time of a round.
func (c *cluster) send(ctx context.Context, w *way, clients int, into *load) error {
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
				for time.Since(begun) < requestTime {
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

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	putRounds = 10
	putRate   = 0.75
)

// oneInNamespaces spreads pods so that about 50 come into each namespace.
var oneInNamespaces = synth.Cluster{Nodes: 10, Namespaces: 100}

// measurePut puts new pods, each durable when it is answered, from one client
// and from 64, by turns with a bare handler over an etcd of its own. The bridge
// gives each pod its address and maps it meanwhile; what of that is left when
// its turn is over is waited for and not counted.
func measurePut(ctx context.Context, b *bench) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, c := range []struct{ clients, chunk int }{{1, 200}, {maxClients, 1920}} {
		b.say("putting pods from %d clients, by turns with a bare handler", c.clients)
		took, err := b.comparePuts(ctx, c.clients, c.chunk)
		if err != nil {
			return nil, err
		}
		puts := float64(putRounds * c.chunk)
		all = append(all, figures.Figure{
			Name: fmt.Sprintf("durable PUT of a pod, %d client(s)", c.clients),
			Measured: fmt.Sprintf("%.2f of a bare handler's rate (%.0f/s, bare %.0f/s)",
				took.rate(), puts/took.ours.Seconds(), puts/took.bare.Seconds()),
			Bound: fmt.Sprintf("at least %g", putRate), Within: took.rate() >= putRate,
		})
	}
	return all, nil
}

func (b *bench) comparePuts(ctx context.Context, clients, chunk int) (sum comparison, err error) {
	dir, err := b.folder("put")
	if err != nil {
		return sum, err
	}
	bareDir, err := b.folder("put-bare")
	if err != nil {
		return sum, err
	}
	etcd, err := startEtcd(ctx, bareDir)
	if err != nil {
		return sum, err
	}
	defer etcd.Close()
	handler, err := serveBare(newBarePut(etcd))
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, handler.stop()) }()
	ours, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	// What comes first is not counted: connections, caches, the first pods.
	if err := ours.fill(ctx, oneInNamespaces, chunk, chunk); err != nil {
		return sum, err
	}
	for n := range putRounds + 1 {
		one, err := putRound(ctx, ours, handler, clients, (n+1)*chunk, (n+2)*chunk)
		if err != nil {
			return sum, err
		}
		if n > 0 {
			sum.ours += one.ours
			sum.bare += one.bare
		}
	}
	return sum, nil
}

func putRound(ctx context.Context, ours *running, handler *bare, clients, from, to int) (c comparison, err error) {
	put := func(at *client) func(int) error {
		return func(i int) error {
			_, err := at.do(ctx, http.MethodPut, oneInNamespaces.PodPath(i), oneInNamespaces.PodsBody(i, i+1))
			return err
		}
	}
	if c.bare, err = load(clients, from, to, put(handler.client)); err != nil {
		return c, err
	}
	if c.ours, err = load(clients, from, to, put(ours.client)); err != nil {
		return c, err
	}
	return c, ours.awaitSync(ctx, to)
}

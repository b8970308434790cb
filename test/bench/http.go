package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	putRounds = 10
	putRate   = 0.6
	getRounds = 20
	getChunk  = 400
	getFactor = 4
)

// oneInNamespaces spreads pods so that about 50 come into each namespace.
var oneInNamespaces = synth.Cluster{Nodes: 10, Namespaces: 100}

// measurePut puts new pods, each durable when it is answered, from one client
// and from 16, by turns with a bare handler over an etcd of its own. The bridge
// gives each pod its address and maps it meanwhile; what of that is left when
// its turn is over is waited for and not counted.
func measurePut(ctx context.Context, b *bench) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, c := range []struct{ clients, chunk int }{{1, 200}, {maxClients, 600}} {
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

// measureGet reads one pod over and over, by turns with a handler that writes
// the same bytes.
func measureGet(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.folder("get")
	if err != nil {
		return nil, err
	}
	ours, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	if err := ours.fill(ctx, oneInNamespaces, 1000, 1000); err != nil {
		return nil, err
	}
	path := oneInNamespaces.PodPath(500)
	answer, err := ours.do(ctx, http.MethodGet, path, "")
	if err != nil {
		return nil, err
	}
	handler, err := serveBare(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, handler.stop()) }()
	b.say("reading a pod, by turns with a bare handler")
	get := func(at *client) (time.Duration, error) {
		return load(1, 0, getChunk, func(int) error {
			_, err := at.do(ctx, http.MethodGet, path, "")
			return err
		})
	}
	sum, err := alternate(getRounds, func() (time.Duration, error) { return get(handler.client) },
		func() (time.Duration, error) { return get(ours.client) })
	if err != nil {
		return nil, err
	}
	const requests = getRounds * getChunk
	return []figures.Figure{{
		Name: "GET of one pod",
		Measured: fmt.Sprintf("%.2f times a bare handler's time (%s, bare %s)",
			1/sum.rate(), figures.Short(sum.ours/requests), figures.Short(sum.bare/requests)),
		Bound: fmt.Sprintf("at most %d", getFactor), Within: 1/sum.rate() <= getFactor,
	}}, nil
}

// alternate measures two sides by turns; the first round is not counted.
func alternate(rounds int, bare, ours func() (time.Duration, error)) (sum comparison, err error) {
	for n := range rounds + 1 {
		var one comparison
		if one.bare, err = bare(); err != nil {
			return sum, err
		}
		if one.ours, err = ours(); err != nil {
			return sum, err
		}
		if n > 0 {
			sum.ours += one.ours
			sum.bare += one.bare
		}
	}
	return sum, nil
}

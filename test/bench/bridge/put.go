package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	putRounds = 10
	putRate   = 0.75
)

// oneInNamespaces distributes pods so that each namespace gets about 50.
var oneInNamespaces = synth.Cluster{Nodes: 10, Namespaces: 100}

// putLoads has the numbers of clients that put pods at the same time, and of pods in a round.
var putLoads = []struct{ clients, chunk int }{{1, 200}, {maxClients, 1920}}

// putServer is a server to which pods are put.
type putServer struct {
	client *client
	// settle waits until the server has finished its work for a number of pods.
	settle func(ctx context.Context, pods int) error
	stop   func() error
}

// measurePut creates pods with one client and with 64. Each PUT is durable when it is answered. It
// measures RESTCONF with its datastore, and a whole bridge that also chooses addresses and maps
// the pods, alternating with a bare handler over an etcd. Work that is left after a measurement
// is awaited and not counted.
func measurePut(ctx context.Context, b *bench) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, c := range putLoads {
		b.Say("putting pods to RESTCONF alone from %d clients, alternating with a bare handler", c.clients)
		rate, measured, err := b.comparePuts(ctx, b.putAlone, c.clients, c.chunk)
		if err != nil {
			return nil, err
		}
		all = append(all, figures.Rate(fmt.Sprintf("durable PUT of a pod, RESTCONF and its datastore alone, %d client(s)", c.clients), measured, rate, putRate))
	}
	for _, c := range putLoads {
		b.Say("putting pods to a whole bridge from %d clients, alternating with a bare handler", c.clients)
		_, measured, err := b.comparePuts(ctx, b.putBridge, c.clients, c.chunk)
		if err != nil {
			return nil, err
		}
		all = append(all, figures.Unbound(fmt.Sprintf("the same with all that the bridge does for the pod meanwhile, %d client(s)", c.clients), measured))
	}
	return all, nil
}

// putAlone starts RESTCONF and its datastore.
func (b *bench) putAlone(ctx context.Context, dir string) (putServer, error) {
	ours, err := b.startAlone(ctx, dir)
	if err != nil {
		return putServer{}, err
	}
	settled := func(context.Context, int) error { return nil } // no work is left after a PUT
	return putServer{ours.client, settled, ours.stop}, nil
}

// putBridge starts a bridge that has its pools and nodes.
func (b *bench) putBridge(ctx context.Context, dir string) (putServer, error) {
	ours, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return putServer{}, err
	}
	if err := ours.fill(ctx, oneInNamespaces, 0, 1); err != nil {
		return putServer{}, errors.Join(err, ours.stop())
	}
	return putServer{ours.client, ours.awaitSync, ours.stop}, nil
}

// comparePuts returns the rate of ours, where the rate of a bare handler is 1, and a text for it.
func (b *bench) comparePuts(
	ctx context.Context, start func(context.Context, string) (putServer, error), clients, chunk int,
) (rate float64, measured string, err error) {
	dir, err := b.Folder("put")
	if err != nil {
		return 0, "", err
	}
	handler, stop, err := b.startBarePut(ctx)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ours, err := start(ctx, dir)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	var sum comparison
	for n := range putRounds + 1 {
		one, err := putRound(ctx, ours, handler, clients, n*chunk, (n+1)*chunk)
		if err != nil {
			return 0, "", err
		}
		if n > 0 { // the first round is not counted: connections and caches are new
			sum.ours += one.ours
			sum.bare += one.bare
		}
	}
	puts := float64(putRounds * chunk)
	return sum.rate(), fmt.Sprintf("%.2f of a bare handler's rate (%.0f/s, bare %.0f/s)",
		sum.rate(), puts/sum.ours.Seconds(), puts/sum.bare.Seconds()), nil
}

// startBarePut starts the reference of a PUT.
func (b *bench) startBarePut(ctx context.Context) (handler *bare, stop func() error, err error) {
	dir, err := b.Folder("put-bare")
	if err != nil {
		return nil, nil, err
	}
	etcd, err := startEtcd(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	if handler, err = serveBare(newBarePut(etcd)); err != nil {
		etcd.Close()
		return nil, nil, err
	}
	return handler, func() error {
		defer etcd.Close()
		return handler.stop()
	}, nil
}

func putRound(ctx context.Context, ours putServer, handler *bare, clients, from, to int) (c comparison, err error) {
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
	return c, ours.settle(ctx, to)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// alone is the RESTCONF server of the bridge with its datastore and its users. No other part of
// the bridge runs.
type alone struct {
	*client
	access *access.Access
	store  *datastore.Datastore
	end    context.CancelFunc
	done   chan error
}

func (b *bench) startAlone(ctx context.Context, dir string) (*alone, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, fmt.Errorf("load the modules: %w", err)
	}
	who, err := access.Open(access.Config{UsersFile: b.usersFile}, b.log, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	store, err := datastore.Open(ctx, datastore.Config{Schema: schema, Dir: dir, Log: b.log})
	if err != nil {
		return nil, errors.Join(err, who.Close())
	}
	a := &alone{access: who, store: store, done: make(chan error, 1)}
	if err := a.serve(ctx, restconf.Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: who, Log: b.log}); err != nil {
		return nil, errors.Join(err, store.Close(), who.Close())
	}
	return a, nil
}

func (a *alone) serve(ctx context.Context, cfg restconf.Config) error {
	server, err := restconf.New(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.client = newClient("http://" + listener.Addr().String())
	ctx, a.end = context.WithCancel(ctx)
	go func() { a.done <- server.Serve(ctx, listener) }()
	return nil
}

// stop ends the server, and waits until it has ended.
func (a *alone) stop() error {
	a.Close()
	a.end()
	if err := errors.Join(<-a.done, a.store.Close(), a.access.Close()); err != nil {
		return fmt.Errorf("stop RESTCONF: %w", err)
	}
	return nil
}

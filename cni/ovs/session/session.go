// Package session connects to the database of Open vSwitch, keeps a local copy of the tables in use, and executes transactions. Reads of the
// copy never wait. A transaction returns when its context ends, even if the server does not read it.
//
// The package knows which columns are copied, and how libovsdb behaves when a connection ends. It does not know what the rows mean, and does
// not reconnect.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Session is a connection to the database, with a local copy of the tables in use.
type Session struct{ client client.Client }

// Connect connects to the database, and calls changed for each row that changes, with its former and its new content. The request for the
// copy of the tables has a timeout, because it goes on when ctx has ended.
func Connect(ctx context.Context, endpoint string, timeout time.Duration, changed func(model.Model)) (*Session, error) {
	tables, err := vswitch.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(endpoint))
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	one := &Session{client: c}
	if err := one.monitor(ctx, timeout, changed); err != nil {
		one.Close()
		return nil, err
	}
	return one, nil
}

// monitor starts the copy of the tables, and calls changed for each row that changes, with its
// former and its new content. The request has a timeout, and goes on that long when ctx has ended: libovsdb uses its answer also after
// an error, while it can still decode it.
func (o *Session) monitor(ctx context.Context, timeout time.Duration, changed func(model.Model)) error {
	copied := o.client.Cache()
	if copied == nil {
		return errClosed
	}
	copied.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { changed(row) },
		UpdateFunc: func(_ string, old, row model.Model) { changed(old); changed(row) },
		DeleteFunc: func(_ string, row model.Model) { changed(row) },
	})
	// Without a list of columns the server would send all of them.
	top, bridge, port, iface := &vswitch.OpenvSwitch{}, &vswitch.Bridge{}, &vswitch.Port{}, &vswitch.Interface{}
	manager, controller := &vswitch.Manager{}, &vswitch.Controller{}
	tables := o.client.NewMonitor(
		client.WithTable(top, &top.ExternalIDs, &top.OtherConfig, &top.CurCfg),
		client.WithTable(manager, &manager.Target, &manager.ExternalIDs, &manager.IsConnected),
		client.WithTable(bridge, &bridge.Name, &bridge.DatapathType, &bridge.Controller, &bridge.Protocols),
		client.WithTable(controller, &controller.Target, &controller.IsConnected),
		client.WithTable(port, &port.Name),
		client.WithTable(iface, &iface.Name, &iface.Type, &iface.ExternalIDs, &iface.Ofport, &iface.OfportRequest, &iface.Error, &iface.LinkState))
	_, err := within(ctx, func() (client.MonitorCookie, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return o.client.Monitor(ctx, tables)
	})
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	return nil
}

// errClosed is why a session ends whose server is away.
var errClosed = errors.New("the server closed the connection")

// within calls the client, and returns when ctx ends. The client itself can wait for longer: for a server that does not read, until the
// connection ends.
func within[T any](ctx context.Context, call func() (T, error)) (result T, err error) {
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		result, err := call()
		answers <- answer{result, err}
	}()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// Watch probes the connection until it fails. A probe is a transaction: Echo of libovsdb would use the answer after the end of the probe, while
// it can still decode it.
func (o *Session) Watch(ctx context.Context, every, timeout time.Duration, probe func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-o.client.DisconnectNotify():
			return errClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		err := probe(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("no answer to a probe: %w", err)
		}
	}
}

// Close ends the session without waiting: Close of the client can wait for a call to a server
// that does not answer.
func (o *Session) Close() { go o.client.Close() }

// Transact executes operations as one transaction.
func (o *Session) Transact(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	results, err := within(ctx, func() ([]ovsdb.OperationResult, error) { return o.client.Transact(ctx, ops...) })
	if err != nil {
		return nil, err
	}
	if refused, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		for _, r := range refused {
			err = fmt.Errorf("%w: %w", err, r)
		}
		return nil, err
	}
	return results, nil
}

// local is the context of reads of the local copy. It has ended, so they never wait: libovsdb can wait without end for the copy of a
// connection that ends at this moment.
var local = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Get reads the row that has the same name as row from the local copy into row.
func (o *Session) Get(row model.Model) error { return o.client.Get(local, row) }

// List reads all rows of a table from the local copy. rows points to a slice of pointers to rows.
func (o *Session) List(rows any) error { return o.client.List(local, rows) }

// Where reads the rows of a table for which a predicate holds, as List does. predicate is a function of a pointer to a row.
func (o *Session) Where(predicate, rows any) error {
	return o.client.WhereCache(predicate).List(local, rows)
}

// Create returns the operations that insert a row.
func (o *Session) Create(row model.Model) ([]ovsdb.Operation, error) { return o.client.Create(row) }

// Bridge reads a bridge from the local copy.
func (o *Session) Bridge(name string) (*vswitch.Bridge, error) {
	b := &vswitch.Bridge{Name: name}
	if err := o.Get(b); err != nil {
		return nil, fmt.Errorf("find bridge %s on the switch: %w", name, err)
	}
	return b, nil
}

// Root reads the single row of Open_vSwitch from the local copy.
func (o *Session) Root() (*vswitch.OpenvSwitch, error) {
	var rows []*vswitch.OpenvSwitch
	if err := o.List(&rows); err != nil {
		return nil, fmt.Errorf("read Open_vSwitch: %w", err)
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("read Open_vSwitch: %d rows, want 1: check that the switch is initialised", len(rows))
	}
	return rows[0], nil
}

// Interface reads an interface from the local copy; nil if there is none.
func (o *Session) Interface(name string) (*vswitch.Interface, error) {
	row := &vswitch.Interface{Name: name}
	err := o.Get(row)
	if errors.Is(err, client.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	return row, nil
}

package ovn

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// session is one connection to a server, and what is known of the database
// through it. It is never mended: what fails is left, and the next call opens
// another. So nothing that is known outlives a server that is restarted, wiped
// or not the leader any more.
type session struct {
	client client.Client
	// connect makes another connection to the same server.
	connect func(context.Context) (client.Client, error)
	fence   fence
	mirror  *mirror // nil: not read yet, or in doubt
	// lost is closed when the session is of no more use: it has ended, or
	// another hand has been at NB_Global.
	lost     chan struct{}
	loseOnce sync.Once
}

// dial opens a session at one endpoint and claims the database. Its deadline is
// that of ctx.
func dial(ctx context.Context, endpoint string, cfg *Config) (*session, error) {
	connect := func(ctx context.Context) (client.Client, error) { return connect(ctx, endpoint, cfg) }
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{
		client: c, connect: connect,
		fence: fence{epoch: cfg.Epoch, datastore: cfg.Datastore}, lost: make(chan struct{}),
	}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return s, nil
}

func connect(ctx context.Context, endpoint string, cfg *Config) (client.Client, error) {
	dbModel, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	options := []client.Option{client.WithEndpoint(endpoint)}
	if cfg.TLS != nil {
		options = append(options, client.WithTLSConfig(cfg.TLS))
	}
	c, err := client.NewOVSDBClient(dbModel, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	if err := c.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return c, nil
}

func (s *session) open(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	s.client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		UpdateFunc: func(_ string, _, row model.Model) { s.judge(row) },
		DeleteFunc: func(string, model.Model) { s.lose() },
	})
	global := &nb.NBGlobal{}
	if _, err := s.client.Monitor(ctx, s.client.NewMonitor(client.WithTable(global, &global.ExternalIDs))); err != nil {
		return fmt.Errorf("monitor NB_Global: %w", err)
	}
	return nil
}

// judge notes when NB_Global does not name our epoch any more.
func (s *session) judge(row model.Model) {
	g, ok := row.(*nb.NBGlobal)
	if ok && s.fence.epoch != "" && (g.ExternalIDs[idEpoch] != s.fence.epoch || g.ExternalIDs[idDatastore] != s.fence.datastore) {
		s.lose()
	}
}

func (s *session) lose() { s.loseOnce.Do(func() { close(s.lost) }) }

// over reports whether the session is of no more use.
func (s *session) over() bool {
	select {
	case <-s.lost:
		return true
	default:
		return s.client.CurrentEndpoint() == "" // the connection has ended
	}
}

// close ends the session without waiting: the client's Close waits for a call
// that waits for a server that is stopped.
func (s *session) close() { go s.client.Close() }

// transact makes one transaction, whose first operation is the fence's. An error
// that is no *refusal and no errFenced leaves open whether it was made.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	return s.transactOver(ctx, s.client, ops)
}

func (s *session) transactOver(ctx context.Context, c client.Client, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	guard := s.fence.guard()
	results, err := s.call(ctx, c, append(guard, ops...))
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		switch {
		case r.Error == "":
		case i < len(guard) && r.Error == errTimedOut:
			return nil, errFenced
		case transient[r.Error]:
			return nil, fmt.Errorf("transact: %s: %s", r.Error, r.Details)
		case i < len(guard)+len(ops):
			return nil, &refusal{op: &append(guard, ops...)[i], reason: r.Error, details: r.Details}
		default:
			return nil, &refusal{reason: r.Error, details: r.Details}
		}
	}
	if len(results) < len(guard)+len(ops) {
		return nil, fmt.Errorf("transact: %d results for %d operations", len(results), len(guard)+len(ops))
	}
	return results[len(guard):], nil
}

// call is client.Transact that ends with ctx and the session also while the
// connection takes nothing more, which the client would wait for.
func (s *session) call(ctx context.Context, c client.Client, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	type answer struct {
		results []ovsdb.OperationResult
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		results, err := c.Transact(ctx, ops...)
		done <- answer{results, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return nil, fmt.Errorf("transact: %w", a.err)
		}
		return a.results, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("transact: no answer: %w", ctx.Err())
	case <-s.lost:
		return nil, errors.New("transact: the connection was given up: try again")
	}
}

// read fills the mirror, over a connection of its own: one keeps the memory of the
// largest answer that came over it, and this is by far the largest.
func (s *session) read(ctx context.Context, c codec) error {
	ops := make([]ovsdb.Operation, len(tables))
	for i, t := range tables {
		ops[i] = ovsdb.Operation{Op: ovsdb.OperationSelect, Table: t.name, Columns: t.names()}
		if t.marked {
			owned := ovsdb.OvsMap{GoMap: map[any]any{idOwner: c.owner}}
			ops[i].Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, owned)}
		}
	}
	reader, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { go reader.Close() }() // as close has it
	results, err := s.transactOver(ctx, reader, ops)
	if err != nil {
		return err
	}
	var (
		rows  []row
		links []link
	)
	for i, t := range tables {
		for _, in := range results[i].Rows {
			r, l := t.parse(in)
			rows = append(rows, r)
			links = append(links, l...)
		}
	}
	s.mirror = load(c, rows, links)
	return nil
}

const errTimedOut = "timed out"

// transient are the errors of an operation that say nothing of what it asks for.
var transient = map[string]bool{
	errTimedOut: true, "resources exhausted": true, "I/O error": true, "aborted": true, "not owner": true, "canceled": true,
	"cluster error": true, "not leader": true, "disconnected": true,
}

// errFenced says that NB_Global does not name our epoch.
var errFenced = errors.New("the database has lost this writer's epoch")

// refusal is a server's answer that a transaction breaks a rule of the database.
// Nothing of the transaction was made.
type refusal struct {
	op      *ovsdb.Operation // nil when it is the transaction as a whole
	reason  string
	details string
}

func (e *refusal) Error() string { return e.reason + ": " + e.details }

// duplicate is the UUID of an insert that was refused because it is there
// already, else "".
func (e *refusal) duplicate() string {
	if e.op != nil && e.op.Op == ovsdb.OperationInsert && e.reason == "duplicate uuid" {
		return e.op.UUID
	}
	return ""
}

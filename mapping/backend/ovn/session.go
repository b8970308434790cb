package ovn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// session is a set of connections to one server, and the mirror of the database
// that was read over them. A session is never repaired: when it fails, it is closed
// and the next call opens another. So the mirror never outlives a server that
// restarts, is wiped or is not the cluster's leader any more.
type session struct {
	server *servers.Server // for probes of the server
	client client.Client   // claims and monitors NB_Global
	conn   *ovsdb.Conn     // reads and writes all other tables
	fence  fence
	mirror *mirror // nil: not read yet, or possibly wrong
	// large is for how many more timeouts of Config the calls in progress may keep the server busy.
	large atomic.Int32
	// lost is closed when the session must not be used any more: a connection has
	// ended, the server is not the leader any more, or NB_Global no longer names the session.
	lost     chan struct{}
	loseOnce sync.Once
}

// dial opens a session at one endpoint and claims the database before the deadline of
// ctx. It fails if the server does not have the role.
func dial(ctx context.Context, list *servers.List, endpoint string, role servers.Role, cfg *Config) (*session, error) {
	server, err := list.Dial(ctx, endpoint, role)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	c, err := connect(ctx, endpoint, cfg)
	if err != nil {
		server.Close()
		return nil, err
	}
	s := &session{
		server: server, client: c, fence: fence{epoch: cfg.Epoch, datastore: cfg.Datastore, session: uuid.NewString()},
		lost: make(chan struct{}),
	}
	if s.conn, err = ovsdb.Dial(ctx, endpoint, codec.Northbound.Name, cfg.TLS); err != nil {
		s.close()
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return s, nil
}

func connect(ctx context.Context, endpoint string, cfg *Config) (client.Client, error) {
	dbModel, err := model.NewClientDBModel(codec.Northbound.Name, map[string]model.Model{nb.NBGlobalTable: &nb.NBGlobal{}})
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
		if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
			err = failed.Err // the rest names the endpoint again
		}
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return c, nil
}

// monitorTimeout bounds the request for the monitor of NB_Global, which has one row. A busy server answers late.
const monitorTimeout = 10 * time.Second

func (s *session) open(ctx context.Context) error {
	if err := s.supported(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	s.client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		UpdateFunc: func(_ string, _, row model.Model) { s.check(row) },
		DeleteFunc: func(string, model.Model) { s.lose() },
	})
	global := &nb.NBGlobal{}
	// Without cancellation by ctx: libovsdb would use the answer while it still decodes it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), monitorTimeout)
	defer cancel()
	if _, err := s.client.Monitor(ctx, s.client.NewMonitor(client.WithTable(global, &global.ExternalIDs))); err != nil {
		return fmt.Errorf("monitor NB_Global: %w", err)
	}
	return nil
}

// check marks the session as lost if NB_Global no longer names it.
func (s *session) check(row model.Model) {
	g, ok := row.(*nb.NBGlobal)
	if ok && s.fence.epoch != "" && !s.fence.holds(g.ExternalIDs) {
		s.lose()
	}
}

// lose marks the session as lost and ends the calls that wait for an answer.
func (s *session) lose() {
	s.loseOnce.Do(func() {
		close(s.lost)
		_ = s.conn.Close()
	})
}

// over reports whether the session must not be used any more.
func (s *session) over() bool {
	select {
	case <-s.lost:
		return true
	case <-s.conn.Ended():
		return true
	case <-s.server.Ended():
		return true
	default:
		return s.client.CurrentEndpoint() == "" // its connection has ended
	}
}

// close closes the session without waiting: the client's Close waits for its calls,
// and these wait for a server that may be stopped.
func (s *session) close() {
	s.server.Close()
	if s.conn != nil {
		_ = s.conn.Close()
	}
	go s.client.Close()
}

// transact makes one transaction, which begins with the fence's operation. If it
// returns neither a *refusal nor errFenced but another error, the transaction may have
// been made.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.Result, error) {
	sent, err := s.conn.Send(ctx, append(s.fence.guard(), ops...), nil)
	if err != nil {
		return nil, fmt.Errorf("transact: %w", err)
	}
	return s.answer(ctx, sent, ops)
}

// answer waits for the answer to a transaction of ops, and returns their results.
func (s *session) answer(ctx context.Context, sent *ovsdb.Call, ops []ovsdb.Operation) ([]ovsdb.Result, error) {
	results, err := s.conn.Wait(ctx, sent)
	if err != nil {
		return nil, fmt.Errorf("transact: %w", err)
	}
	guards := len(s.fence.guard())
	for i, r := range results {
		switch {
		case r.Error == "":
		case i < guards && r.Error == ovsdb.TimedOut:
			return nil, errFenced
		case transient[r.Error]:
			return nil, fmt.Errorf("transact: %s: %s", r.Error, r.Details)
		case i >= guards && i < guards+len(ops):
			return nil, &refusal{op: &ops[i-guards], reason: r.Error, details: r.Details}
		default:
			return nil, &refusal{reason: r.Error, details: r.Details}
		}
	}
	if len(results) < guards+len(ops) {
		return nil, fmt.Errorf("transact: %d results for %d operations", len(results), guards+len(ops))
	}
	return results[guards:], nil
}

// call is client.Transact, but it returns when ctx or the session ends, even if the
// server does not read. The client alone would wait.
func (s *session) call(ctx context.Context, ops ...libovsdb.Operation) ([]libovsdb.OperationResult, error) {
	type answer struct {
		results []libovsdb.OperationResult
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		results, err := s.client.Transact(ctx, ops...)
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
		return nil, errors.New("transact: the connection was closed: try again")
	}
}

// read fills the mirror.
func (s *session) read(ctx context.Context, c codec.Codec) error {
	m, err := load(c, func(v *ovsdb.Visitor, read func(*ovsdb.Table)) error { return s.readAll(ctx, c, v, read) })
	if err == nil {
		s.mirror = m
	}
	return err
}

// readAll is the source that shows the rows of the database. It makes one transaction
// for each table, so that the server works on a table while the one before is decoded.
//
// The transactions together are not one snapshot of the database. That is safe for rows
// of ours: only the writer with the epoch writes them, each transaction waits on the
// epoch, and this backend does not write while it reads. A change that an external
// writer makes meanwhile is read as damage, at the latest by the next read.
func (s *session) readAll(ctx context.Context, c codec.Codec, v *ovsdb.Visitor, read func(*ovsdb.Table)) error {
	sent := make([]*ovsdb.Call, len(codec.ReadOrder))
	for i, t := range codec.ReadOrder {
		var err error
		ops := append(s.fence.guard(), ovsdb.NewSelect(t, c.Selected(t)))
		if sent[i], err = s.conn.Send(ctx, ops, v); err != nil {
			return fmt.Errorf("read %s: %w", t.Name, err)
		}
	}
	for i, t := range codec.ReadOrder {
		if _, err := s.answer(ctx, sent[i], []ovsdb.Operation{{}}); err != nil {
			return fmt.Errorf("read %s: %w", t.Name, err)
		}
		read(t)
	}
	return nil
}

// transient lists the errors of an operation that are not caused by the operation
// itself.
var transient = map[string]bool{
	ovsdb.TimedOut: true, "resources exhausted": true, "I/O error": true, "aborted": true, "not owner": true, "canceled": true,
	"cluster error": true, "not leader": true, "disconnected": true,
}

// errFenced reports that NB_Global does not name this session.
var errFenced = errors.New("the database has lost this writer's epoch, or another session of it has begun")

// refusal is the server's answer that a transaction breaks a rule of the database.
// No operation of the transaction took effect.
type refusal struct {
	op      *ovsdb.Operation // nil if the transaction as a whole was refused
	reason  string
	details string
}

func (e *refusal) Error() string { return e.reason + ": " + e.details }

// duplicate returns the UUID of an insert that was refused because a row with this
// UUID already exists, else "".
func (e *refusal) duplicate() string {
	if e.op != nil && e.op.Verb == ovsdb.Insert && e.reason == "duplicate uuid" {
		return e.op.UUID
	}
	return ""
}

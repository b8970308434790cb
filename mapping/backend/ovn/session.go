package ovn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// session is a pair of connections to one server, and what is known of the
// database through it. It is never mended: what fails is left, and the next call
// opens another. So nothing that is known outlives a server that is restarted,
// wiped or not the leader any more.
type session struct {
	client client.Client // claims and monitors NB_Global
	conn   *conn         // reads and writes the rest
	fence  fence
	mirror *mirror // nil: not read yet, or in doubt
	// lost is closed when the session is of no more use: it has ended, or
	// another hand has been at NB_Global.
	lost     chan struct{}
	loseOnce sync.Once
}

// dial opens a session at one endpoint and claims the database. Its deadline is
// that of ctx.
func dial(ctx context.Context, endpoint string, cfg *Config) (*session, error) {
	c, err := connect(ctx, endpoint, cfg)
	if err != nil {
		return nil, err
	}
	s := &session{client: c, fence: fence{epoch: cfg.Epoch, datastore: cfg.Datastore}, lost: make(chan struct{})}
	if s.conn, err = openConn(ctx, endpoint, cfg.TLS); err != nil {
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

// monitorTimeout is how long the server may take to answer with one row.
const monitorTimeout = 3 * time.Second

func (s *session) open(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	s.client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		UpdateFunc: func(_ string, _, row model.Model) { s.judge(row) },
		DeleteFunc: func(string, model.Model) { s.lose() },
	})
	global := &nb.NBGlobal{}
	// The client still looks at an answer that comes when ctx is done, while it is read.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), monitorTimeout)
	defer cancel()
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

// lose makes the session one of no more use, and ends what waits for it.
func (s *session) lose() {
	s.loseOnce.Do(func() {
		close(s.lost)
		_ = s.conn.Close()
	})
}

// over reports whether the session is of no more use.
func (s *session) over() bool {
	select {
	case <-s.lost:
		return true
	case <-s.conn.ended:
		return true
	default:
		return s.client.CurrentEndpoint() == "" // its connection has ended
	}
}

// close ends the session without waiting: the client's Close waits for a call
// that waits for a server that is stopped.
func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	go s.client.Close()
}

// transact makes one transaction, whose first operation is the fence's. An error
// that is no *refusal and no errFenced leaves open whether it was made.
func (s *session) transact(ctx context.Context, ops []operation) ([]result, error) {
	all := s.fence.guard()
	for _, op := range ops {
		all = append(all, op.json)
	}
	sent, err := s.conn.send(ctx, all, nil)
	if err != nil {
		return nil, fmt.Errorf("transact: %w", err)
	}
	return s.answer(ctx, sent, ops)
}

// answer waits for the answer to a transaction of ops, and returns their results.
func (s *session) answer(ctx context.Context, sent *call, ops []operation) ([]result, error) {
	results, err := s.conn.wait(ctx, sent)
	if err != nil {
		return nil, fmt.Errorf("transact: %w", err)
	}
	guards := len(s.fence.guard())
	for i, r := range results {
		switch {
		case r.reason == "":
		case i < guards && r.reason == errTimedOut:
			return nil, errFenced
		case transient[r.reason]:
			return nil, fmt.Errorf("transact: %s: %s", r.reason, r.detail)
		case i >= guards && i < guards+len(ops):
			return nil, &refusal{op: &ops[i-guards], reason: r.reason, details: r.detail}
		default:
			return nil, &refusal{reason: r.reason, details: r.detail}
		}
	}
	if len(results) < guards+len(ops) {
		return nil, fmt.Errorf("transact: %d results for %d operations", len(results), guards+len(ops))
	}
	return results[guards:], nil
}

// call is client.Transact that ends with ctx and the session also while the
// connection takes nothing more, which the client would wait for.
func (s *session) call(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	type answer struct {
		results []ovsdb.OperationResult
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
		return nil, errors.New("transact: the connection was given up: try again")
	}
}

// read fills the mirror.
func (s *session) read(ctx context.Context, c codec) error {
	m, err := load(c, func(v visitor) error { return s.readAll(ctx, c, v) })
	if err == nil {
		s.mirror = m
	}
	return err
}

// readAll shows what may be ours, in one transaction a table, so that the server
// works on the next while one is read. Together they are not one view of the
// database. That does no harm: rows of ours are written by whoever has the epoch,
// which each of the transactions waits on, and who reads does not write
// meanwhile; what another hand changes between two of them is seen as damage, at
// the latest by the next read, and so are changes after this one.
func (s *session) readAll(ctx context.Context, c codec, v visitor) error {
	words := &words{}
	sent := make([]*call, len(readOrder))
	for i, t := range readOrder {
		var err error
		sent[i], err = s.conn.send(ctx, append(s.fence.guard(), newSelect(t, c.owner).json), func(in *jsontext.Decoder) error {
			d := &decoder{Decoder: in, table: t, to: v, words: words}
			return d.rows()
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", t.name, err)
		}
	}
	for i, t := range readOrder {
		if _, err := s.answer(ctx, sent[i], []operation{{}}); err != nil {
			return fmt.Errorf("read %s: %w", t.name, err)
		}
		v.read(t)
	}
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
	op      *operation // nil when it is the transaction as a whole
	reason  string
	details string
}

func (e *refusal) Error() string { return e.reason + ": " + e.details }

// duplicate is the UUID of an insert that was refused because it is there
// already, else "".
func (e *refusal) duplicate() string {
	if e.op != nil && e.op.verb == insertRow && e.reason == "duplicate uuid" {
		return e.op.uuid
	}
	return ""
}

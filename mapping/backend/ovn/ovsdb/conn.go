package ovsdb

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Conn is a connection to one server that makes transactions over the JSON-RPC of
// RFC 7047, section 4. Answers come in the order of the requests. A call whose
// context ends before its answer came closes the connection: open another then.
type Conn struct {
	socket   net.Conn
	received atomic.Int64 // number of bytes
	database string
	writing  sync.Mutex
	sent     uint64     // requests; of the goroutine that sends
	text     []byte     // buffer of the last request; of the goroutine that sends
	calls    chan *Call // that wait for an answer, in order
	monitor  *Monitor   // that is followed; of the goroutine that receives
	ended    chan struct{}
	err      error // why it has ended
}

// maxCalls is how many calls may wait for an answer.
const maxCalls = 16

// Call is a transaction, or the request for a monitor, that was sent.
type Call struct {
	id      uint64
	ops     []Operation
	rows    *Visitor // of the rows that the operations select; nil if they select none
	monitor *Monitor // nil for a transaction
	done    chan struct{}
	results []Result
	err     error
}

// Result is the server's answer to one operation.
type Result struct {
	// Count is the number of rows that the operation has changed.
	Count int64
	// Error and Details are empty, or say why the operation failed (RFC 7047, section 3.1).
	Error, Details string
}

// Dial connects to one endpoint of a database: unix:PATH, tcp:HOST:PORT or
// ssl:HOST:PORT. The context bounds the attempt, not the connection. The caller must
// close the connection.
func Dial(ctx context.Context, endpoint, database string, config *tls.Config) (*Conn, error) {
	scheme, address, _ := strings.Cut(endpoint, ":")
	var (
		socket net.Conn
		err    error
	)
	switch scheme {
	case "ssl":
		socket, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	default:
		socket, err = (&net.Dialer{}).DialContext(ctx, scheme, address)
	}
	if err != nil {
		return nil, err
	}
	return newConn(socket, database), nil
}

func newConn(socket net.Conn, database string) *Conn {
	c := &Conn{socket: socket, database: database, calls: make(chan *Call, maxCalls), ended: make(chan struct{})}
	go c.receive()
	return c
}

// Close closes the connection. Calls that wait for an answer fail.
func (c *Conn) Close() error { return c.socket.Close() }

// Ended returns a channel that is closed when the connection has ended, by Close or
// by a failure.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err returns why the connection has ended. It must not be called before.
func (c *Conn) Err() error { return c.err }

// Send sends a transaction; Wait returns its results. It may be called again before
// the answer is here, but not by several goroutines at once. The rows that the
// operations select are shown to rows while the answer arrives; if rows is nil they
// are skipped.
func (c *Conn) Send(ctx context.Context, ops []Operation, rows *Visitor) (*Call, error) {
	call := &Call{ops: ops, rows: rows, done: make(chan struct{})}
	return call, c.send(ctx, call, "transact", func(text []byte) []byte {
		for _, op := range ops {
			text = append(append(text, ','), op.json...)
		}
		return text
	})
}

// send sends a call. params appends the parameters after the name of the database.
func (c *Conn) send(ctx context.Context, call *Call, method string, params func([]byte) []byte) error {
	c.sent++
	call.id = c.sent
	c.text = append(c.text[:0], `{"id":`...)
	c.text = strconv.AppendUint(c.text, call.id, 10)
	c.text = append(c.text, `,"method":"`+method+`","params":["`+c.database+`"`...)
	c.text = append(params(c.text), "]}"...)
	select {
	case c.calls <- call:
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		_ = c.Close()
		return ctx.Err()
	}
	return c.write(ctx, c.text)
}

// write sends a message. It closes the connection if the context ends meanwhile.
func (c *Conn) write(ctx context.Context, text []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.socket.Write(text); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

// Wait returns the results of a call, in the order of its operations. The server
// tries no operation after one that failed, and may add one result for the commit.
// An error leaves open whether the transaction was made.
func (c *Conn) Wait(ctx context.Context, call *Call) ([]Result, error) {
	select {
	case <-call.done:
		return call.results, call.err
	case <-ctx.Done():
	case <-c.ended:
	}
	select {
	case <-call.done: // too: the answer counts
		return call.results, call.err
	default:
	}
	select {
	case <-c.ended:
		return nil, c.err
	default:
		_ = c.Close() // nobody would read the answer
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// WhileHeard returns a context for calls with long answers. It ends when the server has sent nothing for a time. The caller must
// call cancel.
func (c *Conn) WhileHeard(ctx context.Context, silence time.Duration) (heard context.Context, cancel context.CancelFunc) {
	heard, end := context.WithCancelCause(ctx)
	go func() {
		ticker := time.NewTicker(silence / 4)
		defer ticker.Stop()
		received, last := c.received.Load(), time.Now()
		for time.Since(last) < silence {
			select {
			case <-heard.Done():
				return
			case <-ticker.C:
			}
			if now := c.received.Load(); now != received {
				received, last = now, time.Now()
			}
		}
		end(fmt.Errorf("the server has sent nothing for %s: %w", silence, context.DeadlineExceeded))
	}()
	return heard, func() { end(context.Canceled) }
}

// counted counts the received bytes.
type counted struct{ *Conn }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.socket.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// receive reads messages until the connection ends.
func (c *Conn) receive() {
	in := jsontext.NewDecoder(bufio.NewReaderSize(counted{c}, 1<<16), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if err := c.message(in); err != nil {
			c.err = fmt.Errorf("the connection has ended: %w", err)
			close(c.ended)
			_ = c.Close()
			return
		}
	}
}

// message is a request or an answer, without its result.
type message struct {
	id, method, params, failure jsontext.Value
	answered                    *Call
}

// message reads one message: the answer to the first call that waits, a request of the
// server, or a notification of the monitor. Servers send one kind of request: an echo.
func (c *Conn) message(in *jsontext.Decoder) error {
	var m message
	err := object(in, func(name []byte) (err error) {
		switch string(name) {
		case "result":
			return c.result(in, &m)
		case "id":
			m.id, err = value(in)
		case "error":
			m.failure, err = value(in)
		case "method":
			m.method, err = value(in)
		case "params":
			m.params, err = value(in)
		default:
			err = in.SkipValue()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case m.method != nil:
		return c.serve(m)
	}
	return m.finish()
}

// result reads the result of an answer into the call that it belongs to.
func (c *Conn) result(in *jsontext.Decoder, m *message) error {
	select {
	case m.answered = <-c.calls:
	default:
		return errors.New("an answer without a request")
	}
	if monitor := m.answered.monitor; monitor != nil && in.PeekKind() == '{' {
		c.monitor = monitor
		if err := monitor.updates(in); err != nil {
			return err
		}
		monitor.Begun()
		return nil
	}
	if in.PeekKind() != '[' {
		return in.SkipValue() // null: there is an error instead
	}
	return array(in, func() error {
		r, err := m.answered.result(in)
		m.answered.results = append(m.answered.results, r)
		return err
	})
}

// finish ends the call that was answered.
func (m message) finish() error {
	call := m.answered
	if call == nil || string(m.id) != strconv.FormatUint(call.id, 10) {
		return fmt.Errorf("an answer to request %s, which was not the next", m.id)
	}
	if m.failure != nil && m.failure.Kind() != 'n' {
		call.err = fmt.Errorf("the server refuses: %s", m.failure)
	}
	close(call.done)
	return nil
}

// serve answers a request of the server; a notification gets no answer.
func (c *Conn) serve(m message) error {
	if string(m.method) == `"update"` && c.monitor != nil {
		return c.monitor.notified(m.params)
	}
	if string(m.method) != `"echo"` || m.id == nil || m.id.Kind() == 'n' {
		return nil
	}
	text := bytes.Join([][]byte{[]byte(`{"id":`), m.id, []byte(`,"result":`), m.params, []byte(`,"error":null}`)}, nil)
	return c.write(context.Background(), text)
}

// result reads the result of the next operation. It is null if the operation was not
// tried.
func (c *Call) result(in *jsontext.Decoder) (Result, error) {
	var r Result
	if in.PeekKind() != '{' {
		return r, in.SkipValue()
	}
	err := object(in, func(name []byte) (err error) {
		switch string(name) {
		case "count":
			r.Count, err = integer(in)
		case "error":
			r.Error, err = text(in)
		case "details":
			r.Details, err = text(in)
		case "rows":
			if n := len(c.results); c.rows != nil && n < len(c.ops) && c.ops[n].Table != nil {
				return c.rows.read(in, c.ops[n].Table)
			}
			err = in.SkipValue()
		default:
			err = in.SkipValue()
		}
		return err
	})
	return r, err
}

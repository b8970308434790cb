package ovn

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

	"github.com/go-json-experiment/json/jsontext"
)

// database is the name by which servers know the northbound database.
const database = "OVN_Northbound"

// conn is a connection that transactions are made over, in the JSON-RPC of RFC
// 7047, section 4. Requests may be sent before those ahead of them are answered;
// answers come in the order of requests, and are decoded while they come, so that
// none is ever held as a whole. It is never mended: a call that ends without its
// answer ends the connection.
type conn struct {
	net.Conn
	writing sync.Mutex
	sent    uint64     // requests, and
	text    []byte     // the last of them; both are of who has the turn
	calls   chan *call // that wait for an answer, in order
	ended   chan struct{}
	err     error // why it has ended
}

// maxCalls is how many calls may wait for an answer.
const maxCalls = 16

// call is a transaction that was asked for.
type call struct {
	id   uint64
	rows func(*jsontext.Decoder) error // reads the rows of a result; nil: they are not read
	// done is closed when the answer is here: the results, or why there are none.
	done    chan struct{}
	results []result
	err     error
}

// result is what the server says of one operation.
type result struct {
	count          int64
	reason, detail string // of an error
}

// openConn connects to one endpoint; ctx bounds the attempt alone.
func openConn(ctx context.Context, endpoint string, config *tls.Config) (*conn, error) {
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
	c := &conn{Conn: socket, calls: make(chan *call, maxCalls), ended: make(chan struct{})}
	go c.receive()
	return c, nil
}

// send asks for a transaction of operations in their JSON form.
func (c *conn) send(ctx context.Context, operations [][]byte, rows func(*jsontext.Decoder) error) (*call, error) {
	c.sent++
	one := &call{id: c.sent, rows: rows, done: make(chan struct{})}
	c.text = append(c.text[:0], `{"id":`...)
	c.text = strconv.AppendUint(c.text, one.id, 10)
	c.text = append(c.text, `,"method":"transact","params":["`+database+`"`...)
	for _, op := range operations {
		c.text = append(append(c.text, ','), op...)
	}
	c.text = append(c.text, "]}"...)
	select {
	case c.calls <- one:
	case <-c.ended:
		return nil, c.err
	case <-ctx.Done():
		_ = c.Close()
		return nil, ctx.Err()
	}
	return one, c.write(ctx, c.text)
}

// write sends a message. A context that ends meanwhile ends the connection.
func (c *conn) write(ctx context.Context, text []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.Write(text); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

// wait returns the answer to a call.
func (c *conn) wait(ctx context.Context, one *call) ([]result, error) {
	select {
	case <-one.done:
		return one.results, one.err
	case <-ctx.Done():
		_ = c.Close() // what would come is of no more use
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case <-c.ended:
	}
	select {
	case <-one.done:
		return one.results, one.err
	default:
		return nil, c.err
	}
}

// receive takes what the server sends until the connection ends.
func (c *conn) receive() {
	in := jsontext.NewDecoder(bufio.NewReaderSize(c.Conn, 1<<16), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if err := c.message(in); err != nil {
			c.err = fmt.Errorf("the connection has ended: %w", err)
			close(c.ended)
			_ = c.Close()
			return
		}
	}
}

// message is a request or an answer, without what a call has taken of it.
type message struct {
	id, method, params, failure jsontext.Value
	answered                    *call
}

// message takes one message: the answer to the first call that waits, or a
// request of the server's own, of which it has one: for a sign of life.
func (c *conn) message(in *jsontext.Decoder) error {
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

// result takes the member of an answer that is read while it comes.
func (c *conn) result(in *jsontext.Decoder, m *message) error {
	select {
	case m.answered = <-c.calls:
	default:
		return errors.New("an answer to no request")
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

// finish hands an answer to its call.
func (m message) finish() error {
	one := m.answered
	if one == nil || string(m.id) != strconv.FormatUint(one.id, 10) {
		return fmt.Errorf("an answer to request %s, which was not the next", m.id)
	}
	if m.failure != nil && m.failure.Kind() != 'n' {
		one.err = fmt.Errorf("the server refuses: %s", m.failure)
	}
	close(one.done)
	return nil
}

// serve answers a request of the server's; what wants no answer gets none.
func (c *conn) serve(m message) error {
	if string(m.method) != `"echo"` || m.id == nil || m.id.Kind() == 'n' {
		return nil
	}
	text := bytes.Join([][]byte{[]byte(`{"id":`), m.id, []byte(`,"result":`), m.params, []byte(`,"error":null}`)}, nil)
	return c.write(context.Background(), text)
}

// result reads the result of one operation; null stands for one that was not
// tried.
func (c *call) result(in *jsontext.Decoder) (result, error) {
	var r result
	if in.PeekKind() != '{' {
		return r, in.SkipValue()
	}
	err := object(in, func(name []byte) (err error) {
		switch string(name) {
		case "count":
			r.count, err = integer(in)
		case "error":
			r.reason, err = text(in)
		case "details":
			r.detail, err = text(in)
		case "rows":
			if c.rows != nil {
				return c.rows(in)
			}
			err = in.SkipValue()
		default:
			err = in.SkipValue()
		}
		return err
	})
	return r, err
}

// object reads an object: member is called with the name of each, and reads its
// value. The name is valid until then.
func object(in *jsontext.Decoder, member func(name []byte) error) error {
	if err := open(in, '{'); err != nil {
		return err
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadValue()
		if err != nil {
			return err
		}
		if err := member(name[1 : len(name)-1]); err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

// array reads an array: element reads each value of it.
func array(in *jsontext.Decoder, element func() error) error {
	if err := open(in, '['); err != nil {
		return err
	}
	for more(in) {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

func open(in *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := in.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("%s where %s should be", token.Kind(), kind)
	}
	return err
}

// more reports whether an array or object has more, or reading it will fail.
func more(in *jsontext.Decoder) bool {
	switch in.PeekKind() {
	case ']', '}', 0:
		return false
	}
	return true
}

func value(in *jsontext.Decoder) (jsontext.Value, error) {
	v, err := in.ReadValue()
	return v.Clone(), err
}

// text reads a string; of another value, its JSON.
func text(in *jsontext.Decoder) (string, error) {
	v, err := in.ReadValue()
	if err != nil || v.Kind() != '"' {
		return string(v), err
	}
	plain, _ := jsontext.AppendUnquote(nil, v) // what is no UTF-8 is replaced
	return string(plain), nil
}

func integer(in *jsontext.Decoder) (int64, error) {
	v, err := in.ReadValue()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(v), 10, 64)
}

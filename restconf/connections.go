package restconf

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/coe-bridge/coe-bridge/restconf/access"
)

// fileShare is the part of the files that the process may open that connections get: the
// datastore must find one whenever it needs it.
const fileShare = 2

// maxConnections is how many connections there are at once.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return DefaultMaxStreams
	}
	return max(1, int(min(files.Cur, 1<<20))/fileShare)
}

// bounded is a listener of which so many connections are open at once. A connection that
// comes then takes the place of the oldest stranger. If there is no stranger, it waits.
type bounded struct {
	net.Listener
	strangers *strangers
	places    chan struct{}
	closed    chan struct{}
	once      sync.Once
}

func bound(l net.Listener, connections int, s *strangers) *bounded {
	return &bounded{Listener: l, strangers: s, places: make(chan struct{}, connections), closed: make(chan struct{})}
}

// Accept implements net.Listener. The connection is a stranger.
func (b *bounded) Accept() (net.Conn, error) {
	accepted, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !b.take() {
		_ = accepted.Close() // it was not served
		return nil, net.ErrClosed
	}
	c := &conn{
		Conn: accepted, from: access.AddressOf(accepted.RemoteAddr().String()),
		strangers: b.strangers, closed: make(chan struct{}), leave: sync.OnceFunc(func() { <-b.places }),
	}
	b.strangers.add(c)
	return c, nil
}

// take takes a place, and reports whether there is one before the listener is closed.
func (b *bounded) take() bool {
	select {
	case b.places <- struct{}{}:
		return true
	default:
		b.strangers.closeOldest()
	}
	select {
	case b.places <- struct{}{}:
		return true
	case <-b.closed:
		return false
	}
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type connKey struct{}

// withConn makes the connection known to connOf, for the requests on it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the connection of a request; nil where Serve did not accept it.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return own(c)
}

// own is the connection of ours below TLS.
func own(c net.Conn) *conn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	mine, _ := c.(*conn)
	return mine
}

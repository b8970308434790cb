package restconf

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of strangers. One address gets a part of the places, so that it does not
// close the connections of other addresses.
const (
	maxStrangers     = 2048
	strangersPart    = 4 // of all connections, or of all strangers for one address
	strangersTimeout = 10 * time.Second
	// strangersAnswers are the answers that a connection may have under way without
	// credentials. Over HTTP/2 it could have hundreds, and read none of them.
	strangersAnswers = 4
	// strangersFree are the answers in a row without credentials after which each read of a
	// connection waits for strangersPause. This bounds the work for a client that goes on.
	strangersFree  = 8
	strangersPause = 250 * time.Millisecond
)

// strangers are the open connections on which no request was authenticated so far, from
// the moment they are accepted: TLS handshakes that do not end are among them. There are at
// most so many in all, and at most so many from one address, or from one /64 of IPv6. One
// more closes the oldest of its address, or of all, and is never refused: a client that is
// authenticated at once gets through a flood of connections that are not.
//
// A stranger without a request is closed after the timeout. Requests have the timeouts of
// the HTTP server.
type strangers struct {
	most, mostFrom int
	timeout        time.Duration
	limited        func() // is called for each that was closed for another

	mu   sync.Mutex
	open []*conn // oldest first
}

// newStrangers returns the strangers of a server that allows this number of connections.
func newStrangers(connections int, limited func()) *strangers {
	most := max(1, min(maxStrangers, connections/strangersPart))
	return &strangers{most: most, mostFrom: max(1, most/strangersPart), timeout: strangersTimeout, limited: limited}
}

// conn is a connection that has a place until it is closed.
type conn struct {
	net.Conn
	from      netip.Prefix
	strangers *strangers
	leave     func()
	answers   atomic.Int32 // under way, of requests that were not authenticated
	refused   atomic.Int32 // requests since the last one that was authenticated
	closed    chan struct{}
	close     sync.Once

	// For strangers only, with their lock.
	timer *time.Timer // nil: it is not a stranger
	busy  bool        // a request is under way
}

// add makes a new connection a stranger.
func (s *strangers) add(c *conn) {
	s.mu.Lock()
	oldest := s.tooMany(c.from)
	s.open = append(s.open, c)
	c.timer = time.AfterFunc(s.timeout, func() { s.expire(c) })
	s.mu.Unlock()
	s.evict(oldest)
}

// tooMany is the stranger to close so that another one from an address may come; nil for
// none. The lock is held.
func (s *strangers) tooMany(from netip.Prefix) *conn {
	var oldest *conn
	n := 0
	for _, c := range s.open {
		if c.from == from {
			if n++; n == 1 {
				oldest = c
			}
		}
	}
	switch {
	case n >= s.mostFrom:
		return oldest
	case len(s.open) >= s.most:
		return s.open[0]
	}
	return nil
}

// closeOldest closes the oldest stranger, if there is one.
func (s *strangers) closeOldest() {
	s.mu.Lock()
	var oldest *conn
	if len(s.open) > 0 {
		oldest = s.open[0]
	}
	s.mu.Unlock()
	s.evict(oldest)
}

func (s *strangers) evict(c *conn) {
	if c != nil {
		_ = c.Close() // an error concerns the client only
		s.limited()
	}
}

// expire closes a stranger without a request.
func (s *strangers) expire(c *conn) {
	s.mu.Lock()
	over := c.timer != nil && !c.busy
	s.mu.Unlock()
	if over {
		_ = c.Close()
	}
}

// state follows what the HTTP server does with a connection.
func (s *strangers) state(of net.Conn, state http.ConnState) {
	c := own(of)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil || c.timer == nil {
		return
	}
	switch state {
	case http.StateActive:
		c.busy = true
		c.timer.Stop()
	case http.StateIdle:
		c.busy = false
		c.timer.Reset(s.timeout)
	}
}

// remove takes a connection out of the strangers, if it is one.
func (s *strangers) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.timer == nil {
		return
	}
	c.timer.Stop()
	c.timer = nil
	i := slices.Index(s.open, c)
	s.open = slices.Delete(s.open, i, i+1)
}

// authenticated says that a request on the connection was authenticated. It may be nil.
func (c *conn) authenticated() {
	if c != nil {
		c.refused.Store(0)
		c.strangers.remove(c)
	}
}

// answerStranger answers a request that was not authenticated; when too many of these
// wait for the client to read, with a status alone. c may be nil.
func (c *conn) answerStranger(w http.ResponseWriter, answer func()) {
	if c != nil {
		c.refused.Add(1)
		defer c.answers.Add(-1)
		if c.answers.Add(1) > strangersAnswers {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
	}
	answer()
}

// Read implements net.Conn. After strangersFree answers without credentials it waits first.
func (c *conn) Read(p []byte) (int, error) {
	if c.refused.Load() > strangersFree {
		pause := time.NewTimer(strangersPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.close.Do(func() { close(c.closed) })
	c.strangers.remove(c)
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite lets who is still sending read the answer that is there, as net/http has it
// of a connection that can.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

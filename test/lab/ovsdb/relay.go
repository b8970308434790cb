package ovsdb

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Relay is between clients and a server. It can cut connections in the middle of an answer, hold them in the middle of a request, and
// refuse clients.
type Relay struct {
	listener net.Listener
	endpoint string
	network  string
	to       string

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	refuses bool
	cuts    bool
	left    int // bytes of answers until all connections are cut, while cuts is set
	hold    *hold
	passing sync.WaitGroup
}

// hold is a time in which nothing passes.
type hold struct {
	left         int // bytes of requests until it begins
	begun, ended chan struct{}
}

// NewRelay returns a relay to a server, with an endpoint of the same scheme. It ends with the test.
func NewRelay(t testing.TB, endpoint string) *Relay {
	t.Helper()
	scheme, address, _ := strings.Cut(endpoint, ":")
	r := &Relay{network: "tcp", to: address, conns: map[net.Conn]struct{}{}}
	at := "127.0.0.1:0"
	if scheme == "unix" {
		dir, err := os.MkdirTemp("", "relay") // the path of a unix socket has at most 108 characters
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		r.network, at = scheme, filepath.Join(dir, "s")
	}
	var err error
	r.listener, err = net.Listen(r.network, at)
	require.NoError(t, err)
	r.endpoint = scheme + ":" + r.listener.Addr().String()
	r.passing.Go(r.accept)
	t.Cleanup(func() {
		_ = r.listener.Close()
		r.Refuse()
		r.passing.Wait()
	})
	return r
}

// Endpoint returns the address for clients.
func (r *Relay) Endpoint() string { return r.endpoint }

// Refuse cuts all connections, and each new one at once.
func (r *Relay) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = true
	r.cut()
}

// Admit ends Refuse.
func (r *Relay) Admit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = false
}

// CutAfter cuts all connections after that many further bytes of answers.
func (r *Relay) CutAfter(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts, r.left = true, bytes
}

// HoldAfter lets nothing pass after that many further bytes of requests: the server seems to hang. held is closed when that begins. It
// ends when release is called.
func (r *Relay) HoldAfter(bytes int) (held <-chan struct{}, release func()) {
	h := &hold{bytes, make(chan struct{}), make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = h
	return h.begun, sync.OnceFunc(func() { close(h.ended) })
}

// awaitRelease counts bytes of requests, and waits while nothing passes.
func (r *Relay) awaitRelease(requests int) {
	r.mu.Lock()
	h := r.hold
	holds := false
	if h != nil {
		if h.left > 0 && h.left <= requests {
			close(h.begun)
		}
		h.left -= requests
		holds = h.left <= 0
	}
	r.mu.Unlock()
	if holds {
		<-h.ended
	}
}

// cut needs mu.
func (r *Relay) cut() {
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(r.network, r.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !r.add(client, server) {
			_, _ = client.Close(), server.Close()
			continue
		}
		r.passing.Go(func() {
			r.pass(server, client, func(n int) int {
				r.awaitRelease(n)
				return n
			})
		})
		r.passing.Go(func() {
			r.pass(client, server, func(n int) int {
				r.awaitRelease(0)
				return r.allowed(n)
			})
		})
	}
}

// add reports whether a connection is admitted.
func (r *Relay) add(client, server net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses {
		return false
	}
	r.conns[client], r.conns[server] = struct{}{}, struct{}{}
	return true
}

// allowed returns how many bytes of the next n of answers pass.
func (r *Relay) allowed(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cuts {
		return n
	}
	n = min(n, r.left)
	r.left -= n
	return n
}

// pass forwards data until one end closes, or until not all of it is allowed.
func (r *Relay) pass(to, from net.Conn, allowed func(int) int) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		pass := allowed(n)
		if _, failed := to.Write(buffer[:pass]); err != nil || failed != nil {
			return
		}
		if pass < n {
			r.mu.Lock()
			r.cuts = false
			r.cut()
			r.mu.Unlock()
			return
		}
	}
}

package agent_test

import (
	"io"
	"net"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
)

// relay lets an agent reach the bridge from its host's namespace.
type relay struct {
	url string

	mu    sync.Mutex
	to    string // host and port of the bridge
	isCut bool
	conns map[net.Conn]bool
}

func (w *world) newRelay(host string) *relay {
	w.t.Helper()
	r := &relay{conns: map[net.Conn]bool{}}
	r.lead(w.bridge.Bridge().URL())
	var l net.Listener
	inHost(w.t, w.lab.Namespace(host), func() {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
	})
	r.url = "http://" + l.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { r.accept(l, &running) })
	w.t.Cleanup(func() {
		_ = l.Close()
		r.cut(true)
		running.Wait()
	})
	return r
}

func (r *relay) accept(l net.Listener, running *sync.WaitGroup) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.target())
		if err != nil || !r.add(from, to) {
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			running.Go(func() {
				_, _ = io.Copy(pair[1], pair[0])
				_ = pair[0].Close()
				_ = pair[1].Close()
			})
		}
	}
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
		if r.isCut {
			_ = c.Close()
		}
	}
	return !r.isCut
}

// cut closes all connections and rejects new ones, or accepts new ones again.
func (r *relay) cut(isCut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = isCut
	if isCut {
		for c := range r.conns {
			_ = c.Close()
		}
		clear(r.conns)
	}
}

// lead forwards new connections to a bridge.
func (r *relay) lead(bridge string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = strings.TrimPrefix(bridge, "http://")
}

func (r *relay) target() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to
}

// startBridge starts the killed bridge again.
func (w *world) startBridge() {
	w.t.Helper()
	w.bridge.Start()
	for _, a := range w.agents {
		a.relay.lead(w.bridge.Bridge().URL())
	}
}

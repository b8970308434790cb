// Package healthchecks answers the health checks of load balancers: on the healthCheckNodePort of a service it
// reports whether the service has endpoints on the node. It answers like kube-proxy. The package knows
// neither the bridge nor how packets reach endpoints.
package healthchecks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// Check is the service that a port answers for.
type Check struct {
	Namespace, Service string
	Endpoints          int // on the node
}

const (
	// timeout bounds each connection: a load balancer needs some milliseconds.
	timeout = 5 * time.Second
	// maxHeader bounds the bytes of a request.
	maxHeader = 4 << 10
	// maxConnections bounds the connections of all ports. For a new one, the oldest one of the port with the most
	// is closed: clients of one port do not keep load balancers from asking at others.
	maxConnections = 256
)

// Server answers health checks. Sync and Close must not be called at once.
type Server struct {
	netns     netns.NsHandle
	ports     map[uint16]*http.Server
	serving   sync.WaitGroup
	connected Connections

	mu      sync.Mutex
	checks  map[uint16]Check
	healthy bool
}

// New returns a Server in a network namespace, without ports.
func New(ns netns.NsHandle) *Server {
	return &Server{netns: ns, ports: map[uint16]*http.Server{}}
}

// Sync makes the node answer on exactly these ports. healthy reports whether the node leads packets to
// endpoints; otherwise load balancers must not choose it. A port on which another program listens is an error,
// and the others are served.
func (s *Server) Sync(checks map[uint16]Check, healthy bool) (err error) {
	s.mu.Lock()
	s.checks, s.healthy = checks, healthy
	s.mu.Unlock()
	for port, server := range s.ports {
		if _, wanted := checks[port]; !wanted {
			err = errors.Join(err, server.Close())
			delete(s.ports, port)
		}
	}
	for _, port := range slices.Sorted(maps.Keys(checks)) { // the error is the same each time
		if s.ports[port] != nil {
			continue
		}
		if failed := s.open(port); failed != nil {
			err = errors.Join(err, fmt.Errorf("answer health checks of service %s/%s: %w", checks[port].Namespace, checks[port].Service, failed))
		}
	}
	return err
}

// Close ends all ports.
func (s *Server) Close() error {
	err := s.Sync(nil, false)
	s.serving.Wait()
	return err
}

// open begins to answer on a port.
func (s *Server) open(port uint16) error {
	var listener net.Listener
	err := links.Inside(s.netns, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.answer(w, port) }),
		ReadTimeout: timeout, WriteTimeout: timeout, MaxHeaderBytes: maxHeader, ConnState: s.connected.Note(port),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it is about clients
	}
	server.SetKeepAlivesEnabled(false)
	s.ports[port] = server
	s.serving.Go(func() { _ = server.Serve(listener) }) // it ends with Close
	return nil
}

// form is the answer of kube-proxy.
const form = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

func (s *Server) answer(w http.ResponseWriter, port uint16) {
	s.mu.Lock()
	check, healthy := s.checks[port], s.healthy
	s.mu.Unlock()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(check.Endpoints))
	if check.Endpoints == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintf(w, form, check.Namespace, check.Service, check.Endpoints, healthy) // the client is gone
}

// Connections are the open connections of servers, the oldest first. If there are too many, one is closed for a new one.
type Connections struct {
	mu  sync.Mutex
	all []connection
}

type connection struct {
	net.Conn
	port uint16
}

// Note returns a function that follows the connections of a port, as ConnState of http.Server. It closes one if there
// are too many.
func (c *Connections) Note(port uint16) func(net.Conn, http.ConnState) {
	return func(conn net.Conn, state http.ConnState) { c.note(port, conn, state) }
}

func (c *Connections) note(port uint16, conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.all = append(c.all, connection{conn, port}); len(c.all) > maxConnections {
			c.closeOne()
		}
	case http.StateClosed, http.StateHijacked:
		c.all = slices.DeleteFunc(c.all, func(one connection) bool { return one.Conn == conn })
	}
}

// closeOne closes the oldest connection of the port that has the most.
func (c *Connections) closeOne() {
	count, most := map[uint16]int{}, 0
	for _, one := range c.all {
		count[one.port]++
		most = max(most, count[one.port])
	}
	oldest := slices.IndexFunc(c.all, func(one connection) bool { return count[one.port] == most })
	_ = c.all[oldest].Close()
	c.all = slices.Delete(c.all, oldest, oldest+1)
}

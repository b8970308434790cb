package restconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The bounds of a connection.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second // to send a body of the largest size
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 10 * time.Second
	maxHeader     = 64 << 10
)

// Serve answers requests on l, and keeps the streams of changes, until ctx ends.
// Then it lets running requests finish, except streams, which end at once. It
// returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := make(chan error, 1)
	go func() {
		defer cancel()
		kept <- s.keep(ctx)
	}()
	err := s.serveHTTP(ctx, l)
	cancel()
	s.following.Wait()
	return errors.Join(err, <-kept)
}

func (s *Server) serveHTTP(ctx context.Context, l net.Listener) error {
	connections := maxConnections()
	strangers := newStrangers(connections, func() { s.cfg.Limited(LimitConnections) })
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout + s.cfg.Timeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), endingKey{}, ctx.Done())
		},
		ConnContext: withConn,
		ConnState:   strangers.state,
		ErrorLog:    slog.NewLogLogger(&sparse{Handler: s.log.Handler()}, slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- s.accept(server, bound(l, connections, strangers)) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve RESTCONF: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}

type endingKey struct{}

// endingOf is closed when Serve ends; nil for a request that Serve did not accept.
func endingOf(r *http.Request) <-chan struct{} {
	ending, _ := r.Context().Value(endingKey{}).(<-chan struct{})
	return ending
}

func (s *Server) accept(server *http.Server, l net.Listener) error {
	if s.cfg.TLS != nil {
		server.TLSConfig = s.cfg.TLS
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

// sparseEvery is how often the HTTP server may log: a client without credentials could
// fill the disk with failed handshakes.
const sparseEvery = time.Second

// sparse logs what the HTTP server reports, at most once in sparseEvery, and counts the
// rest. It logs each panic.
type sparse struct {
	slog.Handler

	mu   sync.Mutex
	next time.Time
	left int
}

// Handle implements slog.Handler.
func (s *sparse) Handle(ctx context.Context, report slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	panicked := strings.HasPrefix(report.Message, "http: panic") || strings.HasPrefix(report.Message, "http2: panic")
	if now.Before(s.next) && !panicked {
		s.left++
		return nil
	}
	report.AddAttrs(slog.Int("left-out-before", s.left))
	s.next, s.left = now.Add(sparseEvery), 0
	return s.Handler.Handle(ctx, report)
}

package odl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds a connection from the relay to the controller.
const dialTimeout = 10 * time.Second

// relay accepts connections on loopback, and forwards each to a lab's network.
type relay struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

func (c *Controller) newRelay() (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for who asks the controller: %w", err)
	}
	address := fmt.Sprintf("%s:%d", c.address, restPort)
	r := &relay{listener: listener, dial: func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return c.Lab.Dial(ctx, c.namespace, "tcp", address)
	}}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.ended.Go(func() { r.accept(ctx) })
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) accept(ctx context.Context) {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.ended.Go(func() { r.serve(ctx, from.(*net.TCPConn)) })
	}
}

// serve forwards data in both directions, until both sides have ended or the relay is closed.
func (r *relay) serve(ctx context.Context, from *net.TCPConn) {
	defer func() { _ = from.Close() }()
	to, err := r.dial(ctx)
	if err != nil {
		_ = from.SetLinger(0) // close with a reset, which is similar to a refused connection
		return
	}
	defer func() { _ = to.Close() }()
	cut := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer cut()
	var there sync.WaitGroup
	there.Go(func() { pass(to.(*net.TCPConn), from) })
	pass(from, to.(*net.TCPConn))
	there.Wait()
}

// pass copies data until one side has ended, and then ends the other side.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = to.Close()
		return
	}
	_ = to.CloseWrite()
}

func (r *relay) close() error {
	r.stop()
	err := r.listener.Close()
	r.ended.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close relay to the controller: %w", err)
	}
	return nil
}

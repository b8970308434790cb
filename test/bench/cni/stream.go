package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	streamFor = time.Second
	pingsFor  = 500 * time.Millisecond
	port      = "5201"
	ioTimeout = 20 * time.Second
)

// run sends a stream over a way, and then small messages in both directions.
func (w *world) run(ctx context.Context, one *way) error {
	rate, err := w.stream(ctx, one)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	median, err := w.pings(ctx, one)
	if err != nil {
		return fmt.Errorf("round trips: %w", err)
	}
	one.rates, one.times = append(one.rates, rate), append(one.times, median)
	return nil
}

// connect connects over a way. serve gets the other end of the connection, and done waits until
// serve returns.
func (w *world) connect(ctx context.Context, one *way, serve func(net.Conn) error) (_ net.Conn, done func() error, err error) {
	var l net.Listener
	err = inside(w.lab.Namespace(one.to), func() (err error) {
		l, err = net.Listen("tcp", ":"+port)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = errors.Join(conn.SetDeadline(time.Now().Add(ioTimeout)), serve(conn), conn.Close())
		}
		served <- err
	}()
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	conn, err := w.lab.Dial(ctx, one.from, "tcp", net.JoinHostPort(one.address.String(), port))
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return conn, func() error { return errors.Join(conn.Close(), <-served, l.Close()) }, conn.SetDeadline(time.Now().Add(ioTimeout))
}

// stream returns the throughput in Gbit/s, as the receiver sees it.
func (w *world) stream(ctx context.Context, one *way) (rate float64, err error) {
	conn, done, err := w.connect(ctx, one, func(c net.Conn) error {
		begun := time.Now()
		n, err := io.Copy(io.Discard, c)
		rate = float64(n) * 8 / 1e9 / time.Since(begun).Seconds()
		return err
	})
	if err != nil {
		return 0, err
	}
	data, end := make([]byte, 128<<10), time.Now().Add(streamFor)
	for err == nil && time.Now().Before(end) {
		_, err = conn.Write(data)
	}
	err = errors.Join(err, done()) // after this, rate is set
	return rate, err
}

// pings returns the median duration of a round trip.
func (w *world) pings(ctx context.Context, one *way) (time.Duration, error) {
	conn, done, err := w.connect(ctx, one, func(c net.Conn) error {
		_, err := io.Copy(c, c)
		return err
	})
	if err != nil {
		return 0, err
	}
	var took []time.Duration
	message, end := make([]byte, 64), time.Now().Add(pingsFor)
	for err == nil && time.Now().Before(end) {
		begun := time.Now()
		if _, err = conn.Write(message); err == nil {
			_, err = io.ReadFull(conn, message)
		}
		took = append(took, time.Since(begun))
	}
	if err := errors.Join(err, done()); err != nil {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	forbidden = 9000 // the port of the streams
	sendEvery = 50 * time.Millisecond
	// quiet is how long nothing must arrive. A stream that is allowed never pauses as long.
	quiet = 2 * time.Second
)

// streams are packets from each pod to its peer.
type streams struct {
	senders, receivers []net.Conn
	last               []atomic.Int64 // the time of each receiver's last packet
	all                sync.WaitGroup
	end                chan struct{}
}

func (h *hosts) newStreams() (_ *streams, err error) {
	s := &streams{last: make([]atomic.Int64, len(h.at)), end: make(chan struct{})}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	for i, end := range h.at {
		at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(end.address, forbidden))
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.at[peer(i)].address, forbidden))
		err := h.lab.In(end.device, func() error {
			receiver, err := net.ListenUDP("udp", at)
			if err != nil {
				return err
			}
			s.receivers = append(s.receivers, receiver)
			sender, err := net.DialUDP("udp", nil, to)
			if err == nil {
				s.senders = append(s.senders, sender)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("send from %s: %w", end.device, err)
		}
		s.all.Go(func() { s.receive(i) })
	}
	s.all.Go(s.send)
	return s, nil
}

// stop ends the streams.
func (s *streams) stop() {
	close(s.end)
	for _, c := range append(s.senders, s.receivers...) {
		_ = c.Close()
	}
	s.all.Wait()
}

// receive notes the packets of a pod until its socket is closed.
func (s *streams) receive(i int) {
	buffer := make([]byte, 16)
	for {
		if _, err := s.receivers[i].Read(buffer); err != nil {
			return
		}
		s.last[i].Store(time.Now().UnixNano())
	}
}

// send sends from all pods until the end.
func (s *streams) send() {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		for _, c := range s.senders {
			_, _ = c.Write([]byte("x")) // a forbidden packet is not an error
		}
		select {
		case <-s.end:
			return
		case <-tick.C:
		}
	}
}

// awaitOpen waits until packets of all pods arrive.
func (s *streams) awaitOpen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	since := time.Now().UnixNano()
	return ovnhost.Poll(ctx, func(context.Context) error {
		for i := range s.last {
			if s.last[i].Load() < since {
				return fmt.Errorf("no packet of stream %d arrives", i)
			}
		}
		return nil
	})
}

// latest returns the time of the last packet of all.
func (s *streams) latest() time.Time {
	var at int64
	for i := range s.last {
		at = max(at, s.last[i].Load())
	}
	return time.Unix(0, at)
}

// awaitQuiet waits until no packet arrives, and returns the time of the last one.
func (s *streams) awaitQuiet(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		last := s.latest()
		left := quiet - time.Since(last)
		if left <= 0 {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("packets that policies forbid arrive still: %w", ctx.Err())
		case <-time.After(left):
		}
	}
}

// requireQuiet fails if a packet has arrived since the last one.
func (s *streams) requireQuiet(last time.Time) error {
	if now := s.latest(); now.After(last) {
		return fmt.Errorf("a forbidden packet has arrived %s after the verdict", now.Sub(last))
	}
	return nil
}

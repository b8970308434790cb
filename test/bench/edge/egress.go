package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

const (
	egressRounds = 10
	// streamInterval is the time between two datagrams of the pod: 200 each second.
	streamInterval = 5 * time.Millisecond
	// calm is how long the stream goes on before and after an event, and late how long an answer may take.
	calm, late  = time.Second, 2 * time.Second
	egressBound = 3 * time.Second
	// tunnelPings is how many packets the pod sends to each holder before a planned move.
	tunnelPings = 3
)

// measureEgress moves the egress address of a pod that sends 200 datagrams each second to the outside. First the holder is
// cordoned, which must lose none, and then the other one is killed.
func measureEgress(ctx context.Context, c *cluster) (all []figures.Figure, err error) {
	c.Say("starting OVN and Kubernetes for egress addresses")
	w, err := newEgressWorld(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	lost, sent := 0, 0
	var outages []time.Duration
	for n := range egressRounds {
		s, err := w.planned(ctx)
		if err != nil {
			return nil, fmt.Errorf("planned move %d: %w", n+1, err)
		}
		missing, _ := s.losses()
		lost, sent = lost+missing, sent+len(s.sent)
		outage, err := w.failover(ctx)
		if err != nil {
			return nil, fmt.Errorf("failover %d: %w", n+1, err)
		}
		outages = append(outages, outage)
		c.Say("round %d of %d: planned move: %d of %d packets lost; holder killed: nothing for %s", n+1, egressRounds, missing, len(s.sent), figures.Short(outage))
	}
	slices.Sort(outages)
	killed := figures.AtMost(fmt.Sprintf("the holder of an egress address is killed (%d times): until the first packet by the next one, p99", egressRounds),
		figures.Percentile(outages, 99), egressBound)
	killed.Measured += fmt.Sprintf(" (p50 %s)", figures.Short(figures.Percentile(outages, 50)))
	return []figures.Figure{killed, {
		Name:     fmt.Sprintf("the holder of an egress address is cordoned (%d times), 200 packets/s: packets lost", egressRounds),
		Measured: fmt.Sprintf("%d of %d", lost, sent), Bound: "0", Within: lost == 0,
	}}, nil
}

// openTunnels sends from the pod to the holders until they answer: the userspace datapath of Open vSwitch loses packets while it
// resolves the other end of a tunnel, and a host that has been killed has another MAC address.
func (w *egressWorld) openTunnels(ctx context.Context) error {
	for _, host := range holders {
		out, err := w.lab.Exec(ctx, host, "ip", "-4", "-o", "addr", "show", "dev", "coe0")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		i := slices.Index(fields, "inet")
		if i < 0 || i+1 == len(fields) {
			return fmt.Errorf("%s has no address in the pod network: %s", host, out)
		}
		text, _, _ := strings.Cut(fields[i+1], "/")
		address, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		for range tunnelPings {
			if err := w.lab.Ping(ctx, namespace+":pod", address); err != nil {
				return fmt.Errorf("the pod does not reach %s: %w", host, err)
			}
		}
	}
	return nil
}

// planned cordons the holder while the pod sends.
func (w *egressWorld) planned(ctx context.Context) (*stream, error) {
	holder, err := w.settled(ctx, "")
	if err == nil {
		err = w.openTunnels(ctx)
	}
	if err != nil {
		return nil, err
	}
	s, err := w.stream(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(pause(ctx, calm), w.cordon(ctx, holder, true))
	if err == nil {
		_, err = w.settled(ctx, holder)
	}
	err = errors.Join(err, pause(ctx, calm), s.end(), w.cordon(ctx, holder, false))
	return s, err
}

// failover kills the holder while the pod sends, and returns how long nothing came back. Then it starts the node again.
func (w *egressWorld) failover(ctx context.Context) (time.Duration, error) {
	holder, err := w.settled(ctx, "")
	if err != nil {
		return 0, err
	}
	s, err := w.stream(ctx)
	if err != nil {
		return 0, err
	}
	err = errors.Join(pause(ctx, calm), w.agents[holder].Kill(), w.lab.Down(ctx, holder), pause(ctx, 2*egressBound), s.end())
	if err != nil {
		return 0, err
	}
	_, outage := s.losses()
	if err := errors.Join(w.lab.Up(ctx, holder), w.startAgent(ctx, holder)); err != nil {
		return 0, err
	}
	_, err = w.settled(ctx, holder)
	return outage, err
}

// stream is a stream of datagrams from the pod to the outside, which sends them back.
type stream struct {
	conn     net.Conn
	stop     context.CancelFunc
	running  sync.WaitGroup
	sent     []time.Time // by number
	mu       sync.Mutex
	answered map[uint64]bool
}

// stream starts a stream, and waits for its first answer.
func (w *egressWorld) stream(ctx context.Context) (*stream, error) {
	conn, err := w.lab.Dial(ctx, namespace+":pod", "udp", net.JoinHostPort(outsideAddress, outsidePort))
	if err != nil {
		return nil, err
	}
	if err := awaitAnswer(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{conn: conn, stop: cancel, answered: map[uint64]bool{}}
	s.running.Go(func() { s.send(ctx) })
	s.running.Go(s.receive)
	return s, nil
}

// awaitAnswer sends until an answer comes: the switch loses the first packets of a tunnel.
func awaitAnswer(ctx context.Context, conn net.Conn) error {
	const first = ^uint64(0)
	buffer := make([]byte, 64)
	for range 100 {
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, first)); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Read(buffer); err == nil {
			return conn.SetReadDeadline(time.Time{})
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("the pod gets no answer from outside")
}

func (s *stream) send(ctx context.Context) {
	tick := time.NewTicker(streamInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n := uint64(len(s.sent))
		s.sent = append(s.sent, time.Now())
		_, _ = s.conn.Write(binary.BigEndian.AppendUint64(nil, n)) // a loss counts as such
	}
}

func (s *stream) receive() {
	buffer := make([]byte, 64)
	for {
		n, err := s.conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n == 8 {
			s.mu.Lock()
			s.answered[binary.BigEndian.Uint64(buffer)] = true
			s.mu.Unlock()
		}
	}
}

// end ends the stream, and waits for late answers.
func (s *stream) end() error {
	s.stop()
	<-time.After(late)
	err := s.conn.Close()
	s.running.Wait()
	return err
}

// losses returns how many datagrams had no answer, and the longest time from the last one that had an answer to the next
// one.
func (s *stream) losses() (lost int, longest time.Duration) {
	last := s.sent[0]
	for n, at := range s.sent {
		if !s.answered[uint64(n)] {
			lost++
			continue
		}
		longest, last = max(longest, at.Sub(last)), at
	}
	return lost, max(longest, s.sent[len(s.sent)-1].Sub(last))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

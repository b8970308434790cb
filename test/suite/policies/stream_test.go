package policies

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/packets"
)

// sendEvery is the interval of the packets of a stream.
const sendEvery = 10 * time.Millisecond

// stream is a UDP connection whose packets have numbers. Its server sends them back.
type stream struct {
	c      *cluster
	name   string
	conn   net.Conn
	unread int // lab.Unread at the begin
	end    chan struct{}
	all    sync.WaitGroup

	mu       sync.Mutex
	answered []bool // by number of the packet
	sent     []time.Time
	last     time.Time
}

// pod returns the pod with a name, NAMESPACE/NAME.
func (c *cluster) pod(name string) *pod {
	c.t.Helper()
	for _, p := range c.pods {
		if p.String() == name {
			return p
		}
	}
	require.FailNow(c.t, "no pod "+name)
	return nil
}

// stream begins a stream from a pod to a port of another, when the policies allow it.
func (c *cluster) stream(from, to string, port uint16) *stream {
	c.t.Helper()
	at := netip.AddrPortFrom(c.pod(to).addresses[0], port)
	conn, err := c.lab.Dial(c.t.Context(), c.pod(from).device(), "udp", at.String())
	require.NoError(c.t, err)
	s := &stream{c: c, name: fmt.Sprintf("%s to %s port %d", from, to, port), conn: conn, end: make(chan struct{})}
	s.unread, err = packets.Unread(c.t.Context(), c.lab, hosts)
	require.NoError(c.t, err)
	bridgetest.Await(c.t, sendEvery, converge, s.name+" is open", func() error {
		if _, err := conn.Write([]byte("open")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 8))
		return err
	})
	require.NoError(c.t, conn.SetReadDeadline(time.Time{}))
	s.all.Go(s.receive)
	s.all.Go(s.send)
	c.t.Cleanup(func() {
		s.stop()
		_ = conn.Close()
		s.all.Wait()
	})
	return s
}

// stop ends the sending.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.end:
	default:
		close(s.end)
	}
}

func (s *stream) send() {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		select {
		case <-s.end:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		s.answered, s.sent = append(s.answered, false), append(s.sent, time.Now())
		s.mu.Unlock()
		_, _ = s.conn.Write(binary.BigEndian.AppendUint64(nil, number)) // a lost packet has no answer
	}
}

func (s *stream) receive() {
	packet := make([]byte, 8)
	for {
		n, err := s.conn.Read(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != len(packet) {
			continue // the answer to an opening packet
		}
		s.mu.Lock()
		s.answered[binary.BigEndian.Uint64(packet)] = true
		s.last = time.Now()
		s.mu.Unlock()
	}
}

// requireComplete stops the stream, and requires that all packets were answered. It excuses as many packets as the kernel has dropped before the
// switches have read them: the userspace datapath of Open vSwitch needs a processor in time.
func (s *stream) requireComplete() {
	s.c.t.Helper()
	s.stop()
	bridgetest.Await(s.c.t, sendEvery, converge, "all packets are answered", func() error {
		lost, sent := s.lost()
		if len(lost) == 0 {
			return nil
		}
		unread, err := packets.Unread(s.c.t.Context(), s.c.lab, hosts)
		if err == nil && len(lost) > unread-s.unread {
			err = fmt.Errorf("%s lost %d of %d packets, sent at %s; the switches have not read %d",
				s.name, len(lost), sent, strings.Join(lost, " "), unread-s.unread)
		}
		return err
	})
}

// lost returns the times of the packets that have no answer, and how many were sent.
func (s *stream) lost() (times []string, sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, answered := range s.answered {
		if !answered {
			times = append(times, s.sent[number].UTC().Format("15:04:05.000"))
		}
	}
	return times, len(s.answered)
}

// silence is the time without an answer after which a stream is cut.
const silence = time.Second

// requireCut requires that the stream gets no answers any more.
func (s *stream) requireCut() {
	s.c.t.Helper()
	s.c.awaitPackets(10*sendEvery, s.name+" is cut", func() error {
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		if since := time.Since(last); since < silence {
			return fmt.Errorf("the last answer came %s ago", since)
		}
		return nil
	})
}

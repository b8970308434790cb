package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// A flow sends a packet each flowInterval. One of flowRound packets is as large as the MTU, and another one begins a connection. The
// others are small, so that the buffers of a switch that waits for a processor have room for more of them.
const (
	flowInterval = 20 * time.Millisecond
	flowRound    = 10
	largeOne     = 0
	newOne       = 5
	flowBuffer   = 8 << 20
	flowPort     = 9999
	// furtherAnswers is how many later packets have answers when a packet without one is lost. Packets do not overtake as many.
	furtherAnswers = 10
)

// flow is a stream of packets one way.
type flow struct {
	Way
	sender   net.Conn
	receiver io.Closer
	dial     func(context.Context) (net.Conn, error) // from a port of its own
	large    int                                     // payload
	end      context.CancelFunc
	running  sync.WaitGroup
	marked   int // packets that answers waits for

	mu       sync.Mutex
	sent     int
	arrived  int
	answered map[int]bool
	last     time.Time     // of the last answer, or of the begin
	gap      time.Duration // the longest between two answers
	serving  net.Conn      // the connection of TCP that the receiver has of sender
	again    int           // how many packets other connections of TCP have sent again
	err      error         // the first one of the flow
}

// startFlow starts a flow. Its sockets are in the namespaces of the lab.
func startFlow(lab *ovnhost.Lab, w Way, mtu int) (*flow, error) {
	if w.Port == 0 {
		w.Port = flowPort
	}
	f := &flow{Way: w, large: mtu - w.headers(), answered: map[int]bool{}, last: time.Now()}
	ctx, end := context.WithCancel(context.Background())
	f.end = end
	f.dial = func(ctx context.Context) (conn net.Conn, err error) {
		err = lab.In(w.From, func() (err error) {
			conn, err = (&net.Dialer{Control: w.control}).DialContext(ctx, w.network(), w.sentTo().String())
			return err
		})
		return conn, err
	}
	if err := lab.In(w.To, func() error { return f.listen(ctx) }); err != nil {
		end()
		return nil, err
	}
	var err error
	if f.sender, err = f.dial(ctx); err != nil {
		end()
		return nil, errors.Join(err, f.receiver.Close())
	}
	f.running.Go(func() { f.receive(f.sender) })
	f.running.Go(func() { f.send(ctx) })
	return f, nil
}

// listen sends packets back, from the current network namespace, until the receiver is closed.
func (f *flow) listen(ctx context.Context) error {
	at, config := netip.AddrPortFrom(f.Address, f.Port).String(), net.ListenConfig{Control: f.control}
	if f.TCP {
		l, err := config.Listen(ctx, f.network(), at)
		if err == nil {
			f.receiver = l
			f.running.Go(func() { f.accept(ctx, l) })
		}
		return err
	}
	conn, err := config.ListenPacket(ctx, f.network(), at)
	if err == nil {
		udp := conn.(*net.UDPConn)
		f.receiver = udp
		f.running.Go(func() { f.answer(udp) })
	}
	return err
}

// answer sends packets of UDP back.
func (f *flow) answer(receiver *net.UDPConn) {
	packet := make([]byte, f.large+1)
	for {
		n, from, err := receiver.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			f.mu.Lock()
			f.arrived++
			f.mu.Unlock()
			_, _ = receiver.WriteToUDPAddrPort(packet[:n], from) // without an answer the packet is lost
		}
	}
}

// receive notes answers to packets from a port, until it is closed. A further port has one answer. The caller closes the port.
func (f *flow) receive(conn net.Conn) {
	packet := make([]byte, f.large+1)
	for {
		n, err := f.read(conn, packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= 8 {
			f.mu.Lock()
			if conn != f.sender {
				f.again += sentAgain(conn)
			}
			f.answered[int(binary.BigEndian.Uint64(packet))] = true
			f.gap, f.last = max(f.gap, time.Since(f.last)), time.Now()
			f.mu.Unlock()
		}
		if f.TCP && err != nil || err == nil && conn != f.sender {
			f.note(err)
			return
		}
	}
}

// send sends packets until the flow ends.
func (f *flow) send(ctx context.Context) {
	ticker := time.NewTicker(flowInterval)
	defer ticker.Stop()
	packet := make([]byte, f.large)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		size := sizeOf(n, f.large)
		binary.BigEndian.PutUint64(packet, uint64(n))
		f.mu.Lock()
		f.sent = n + 1
		f.mu.Unlock()
		if n%flowRound == newOne && !f.Denied { // each packet that is denied is the first of a connection
			f.sendNew(ctx, slices.Clone(packet[:size]))
			continue
		}
		_, err := f.sender.Write(packet[:size])
		f.note(err)
	}
}

// sizeOf returns the payload of a packet with a number.
func sizeOf(n, large int) int {
	if n%flowRound == largeOne {
		return large
	}
	return 8
}

// sendNew sends a packet from a port of its own, and waits for its answer, until the flow ends.
func (f *flow) sendNew(ctx context.Context, packet []byte) {
	f.running.Go(func() {
		conn, err := f.dial(ctx)
		if err != nil {
			f.note(err)
			return
		}
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		_, err = conn.Write(packet)
		f.note(err)
		f.receive(conn)
	})
}

// note keeps the first error of the flow.
func (f *flow) note(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// arrivals returns how many packets were sent until now, and how many arrived.
func (f *flow) arrivals() (sent, arrived int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent, f.arrived
}

// answers waits until packets after the marked ones have answers, and with TCP, whose connections overtake each other, until the marked ones have
// answers. It returns the numbers of the marked ones that have none.
func (f *flow) answers(ctx context.Context) (without []int, err error) {
	err = ovnhost.Poll(ctx, func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		without = f.unanswered(0, f.marked)
		later := f.sent - f.marked - len(f.unanswered(f.marked, f.sent))
		if later < furtherAnswers || f.TCP && len(without) > 0 {
			return errors.Join(fmt.Errorf("no further answers to packets %s", f.Way), f.err)
		}
		return nil
	})
	return without, err
}

// unanswered returns the packets of a range that have no answer. The caller holds the lock.
func (f *flow) unanswered(from, to int) (without []int) {
	for n := from; n < to; n++ {
		if !f.answered[n] {
			without = append(without, n)
		}
	}
	return without
}

func (f *flow) longestGap() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gap
}

// close ends the flow.
func (f *flow) close() error {
	f.end()
	err := errors.Join(f.sender.Close(), f.receiver.Close())
	f.running.Wait()
	return err
}

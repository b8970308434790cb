package ovnhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
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
	flowPatience   = 2 * time.Minute
)

// LongestGap sends packets as KeepsPackets does while do runs, and returns the longest time without an answer of all ways.
func (l *Lab) LongestGap(ctx context.Context, mtu int, ways []Way, do func() error) (longest time.Duration, err error) {
	flows, err := l.startFlows(mtu, ways)
	defer func() { err = errors.Join(err, closeFlows(flows)) }()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, flowPatience)
	defer cancel()
	for _, f := range flows {
		if _, _, err := f.answers(ctx); err != nil {
			return 0, err
		}
		longest = max(longest, f.longestGap())
	}
	return longest, nil
}

// startFlows returns the flows that have started, also with an error.
func (l *Lab) startFlows(mtu int, ways []Way) (flows []*flow, err error) {
	for _, w := range ways {
		f, err := l.startFlow(w, mtu)
		if err != nil {
			return flows, fmt.Errorf("send packets from %s to %s: %w", w.From, w.To, err)
		}
		flows = append(flows, f)
	}
	return flows, nil
}

func closeFlows(flows []*flow) (err error) {
	for _, f := range flows {
		err = errors.Join(err, f.close())
	}
	return err
}

// flow is a stream of packets one way.
type flow struct {
	Way
	sender   net.Conn
	receiver *net.UDPConn
	dial     func() (net.Conn, error) // from a port of its own
	large    int                      // payload
	end      context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	sent     int
	arrived  int
	answered map[int]bool
	last     time.Time     // of the last answer, or of the begin
	gap      time.Duration // the longest between two answers
	err      error         // the last one of the sender
}

func (l *Lab) startFlow(w Way, mtu int) (*flow, error) {
	network, headers, level, option := "udp4", 28, syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER
	if w.Address.Is6() {
		network, headers, level, option = "udp6", 48, syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER
	}
	control := func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, flowBuffer),
				syscall.SetsockoptInt(int(fd), level, option, syscall.IP_PMTUDISC_DO),
			)
		}), err)
	}
	if w.Port == 0 {
		w.Port = flowPort
	}
	f := &flow{Way: w, large: mtu - headers, answered: map[int]bool{}, last: time.Now()}
	err := l.In(w.To, func() error {
		conn, err := (&net.ListenConfig{Control: control}).ListenPacket(context.Background(), network, netip.AddrPortFrom(w.Address, w.Port).String())
		if err == nil {
			f.receiver = conn.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	to := netip.AddrPortFrom(w.Address, w.Port)
	if w.Service.IsValid() {
		to = netip.AddrPortFrom(w.Service, w.Port)
	}
	f.dial = func() (conn net.Conn, err error) {
		err = l.In(w.From, func() (err error) {
			conn, err = (&net.Dialer{Control: control}).Dial(network, to.String())
			return err
		})
		return conn, err
	}
	if f.sender, err = f.dial(); err != nil {
		return nil, errors.Join(err, f.receiver.Close())
	}
	ctx, end := context.WithCancel(context.Background())
	f.end = end
	f.running.Go(f.answer)
	f.running.Go(func() { f.receive(f.sender) })
	f.running.Go(func() { f.send(ctx) })
	return f, nil
}

// answer sends packets back.
func (f *flow) answer() {
	packet := make([]byte, f.large+1)
	for {
		n, from, err := f.receiver.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			f.mu.Lock()
			f.arrived++
			f.mu.Unlock()
			_, _ = f.receiver.WriteToUDPAddrPort(packet[:n], from) // without an answer the packet is lost
		}
	}
}

// receive notes answers to packets from a port, until it is closed. A further port has one answer.
func (f *flow) receive(conn net.Conn) {
	packet := make([]byte, f.large+1)
	for {
		n, err := conn.Read(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= 8 {
			f.mu.Lock()
			f.answered[int(binary.BigEndian.Uint64(packet))] = true
			f.gap, f.last = max(f.gap, time.Since(f.last)), time.Now()
			f.mu.Unlock()
			if conn != f.sender {
				_ = conn.Close()
			}
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
		size := 8
		if n%flowRound == largeOne {
			size = f.large
		}
		binary.BigEndian.PutUint64(packet, uint64(n))
		f.mu.Lock()
		f.sent = n + 1
		f.mu.Unlock()
		var err error
		if n%flowRound == newOne && !f.Denied { // each packet that is denied is the first of a connection
			err = f.sendNew(ctx, packet[:size])
		} else {
			_, err = f.sender.Write(packet[:size])
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			f.mu.Lock()
			f.err = err
			f.mu.Unlock()
		}
	}
}

// sendNew sends a packet from a port of its own, and waits elsewhere for its answer, until the flow ends.
func (f *flow) sendNew(ctx context.Context, packet []byte) error {
	conn, err := f.dial()
	if err != nil {
		return err
	}
	f.running.Go(func() {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		f.receive(conn)
	})
	_, err = conn.Write(packet)
	return err
}

// arrivals returns how many packets were sent until now, and how many arrived.
func (f *flow) arrivals() (sent, arrived int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent, f.arrived
}

// answers waits until later packets than those until now have answers. It returns how many packets there are until now, and the numbers of those
// that have none.
func (f *flow) answers(ctx context.Context) (sent int, without []int, err error) {
	sent, _ = f.arrivals()
	err = Poll(ctx, func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		later := 0
		for n := sent; n < f.sent; n++ {
			if f.answered[n] {
				later++
			}
		}
		if later < furtherAnswers {
			return errors.Join(fmt.Errorf("no further answers to packets %s", f.Way), f.err)
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range sent {
		if !f.answered[n] {
			without = append(without, n)
		}
	}
	return sent, without, err
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

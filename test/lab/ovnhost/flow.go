package ovnhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A flow sends a packet each flowInterval. One of largeOnes is as large as the MTU. The others are small, so that the buffers of a switch
// that waits for a processor have room for more of them.
const (
	flowInterval = 20 * time.Millisecond
	largeOnes    = 10
	flowBuffer   = 8 << 20
	flowPort     = 9999
	// furtherAnswers is how many later packets have answers when a packet without one is lost. Packets do not overtake as many.
	furtherAnswers = 10
	flowPatience   = 2 * time.Minute
)

// Way is the way of packets from one pod or host to another one, which has the address.
type Way struct {
	From, To string
	Address  netip.Addr
}

// KeepsPackets sends packets all ways while do runs, and gets an answer to each. Some packets are as large as the MTU, and none is
// fragmented. It returns an error if a packet or its answer is lost. A late answer is an answer: a busy machine delays packets. It excuses as
// many packets as the kernel has dropped before the switches of the hosts have read them: the userspace datapath of Open vSwitch needs a processor in time. The text says how
// many packets there were.
func (l *Lab) KeepsPackets(ctx context.Context, hosts []string, mtu int, ways []Way, do func()) (text string, err error) {
	before, err := l.unread(ctx, hosts)
	if err != nil {
		return "", err
	}
	var flows []*flow
	defer func() {
		for _, f := range flows {
			err = errors.Join(err, f.close())
		}
	}()
	for _, w := range ways {
		f, err := l.startFlow(w, mtu)
		if err != nil {
			return "", fmt.Errorf("send packets from %s to %s: %w", w.From, w.To, err)
		}
		flows = append(flows, f)
	}
	do()
	ctx, cancel := context.WithTimeout(ctx, flowPatience)
	defer cancel()
	sent, lost, where := 0, 0, []string{}
	for _, f := range flows {
		of, without, err := f.answers(ctx)
		if err != nil {
			return "", err
		}
		if sent += of; len(without) > 0 {
			lost += len(without)
			where = append(where, fmt.Sprintf("from %s to %s: %d of %d, %v", f.From, f.To, len(without), of, without))
		}
	}
	after, err := l.unread(ctx, hosts)
	if err != nil {
		return "", err
	}
	if lost > after-before {
		return "", fmt.Errorf("%d packets are lost, of which switches have not read %d: %s", lost, after-before, strings.Join(where, "; "))
	}
	return fmt.Sprintf("%d packets, of which %d are lost; switches have not read %d", sent, lost, after-before), nil
}

// flow is a stream of packets one way.
type flow struct {
	Way
	sender   net.Conn
	receiver *net.UDPConn
	large    int // payload
	stop     chan struct{}
	running  sync.WaitGroup

	mu       sync.Mutex
	sent     int
	answered map[int]bool
	err      error // the last one of the sender
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
	f := &flow{Way: w, large: mtu - headers, stop: make(chan struct{}), answered: map[int]bool{}}
	at := netip.AddrPortFrom(w.Address, flowPort).String()
	err := l.In(w.To, func() error {
		conn, err := (&net.ListenConfig{Control: control}).ListenPacket(context.Background(), network, at)
		if err == nil {
			f.receiver = conn.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = l.In(w.From, func() (err error) {
		f.sender, err = (&net.Dialer{Control: control}).Dial(network, at)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, f.receiver.Close())
	}
	f.running.Go(f.answer)
	f.running.Go(f.receive)
	f.running.Go(f.send)
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
			_, _ = f.receiver.WriteToUDPAddrPort(packet[:n], from) // without an answer the packet is lost
		}
	}
}

// receive notes answers.
func (f *flow) receive() {
	packet := make([]byte, f.large+1)
	for {
		n, err := f.sender.Read(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= 8 {
			f.mu.Lock()
			f.answered[int(binary.BigEndian.Uint64(packet))] = true
			f.mu.Unlock()
		}
	}
}

// send sends packets until the flow ends.
func (f *flow) send() {
	ticker := time.NewTicker(flowInterval)
	defer ticker.Stop()
	packet := make([]byte, f.large)
	for n := 0; ; n++ {
		select {
		case <-f.stop:
			return
		case <-ticker.C:
		}
		size := 8
		if n%largeOnes == 0 {
			size = f.large
		}
		binary.BigEndian.PutUint64(packet, uint64(n))
		f.mu.Lock()
		f.sent = n + 1
		f.mu.Unlock()
		if _, err := f.sender.Write(packet[:size]); err != nil && !errors.Is(err, net.ErrClosed) {
			f.mu.Lock()
			f.err = err
			f.mu.Unlock()
		}
	}
}

// answers waits until later packets than those until now have answers. It returns how many packets there are until now, and the numbers of those
// that have none.
func (f *flow) answers(ctx context.Context) (sent int, without []int, err error) {
	f.mu.Lock()
	sent = f.sent
	f.mu.Unlock()
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
			return fmt.Errorf("no further answers to packets from %s to %s; the last error of the sender: %w", f.From, f.To, f.err)
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

// close ends the flow.
func (f *flow) close() error {
	close(f.stop)
	err := errors.Join(f.sender.Close(), f.receiver.Close())
	f.running.Wait()
	return err
}

// drops matches the number of packets in a line of ss about the memory of a socket.
var drops = regexp.MustCompile(`skmem:\([^)]*,d(\d+)\)`)

// unread returns the number of packets that the kernel has dropped because the switches of the hosts did not read them: they waited for a
// processor until the buffers of their sockets were full.
func (l *Lab) unread(ctx context.Context, hosts []string) (sum int, err error) {
	for _, host := range hosts {
		out, err := l.Exec(ctx, host, "ss", "--packet", "--memory")
		if err != nil {
			return 0, fmt.Errorf("count packets that the switch of %s has not read: %w", host, err)
		}
		sum += dropped(out)
	}
	return sum, nil
}

// dropped sums up the packets that sockets have dropped, in the output of ss about their memory.
func dropped(output string) (sum int) {
	for _, line := range drops.FindAllStringSubmatch(output, -1) {
		n, _ := strconv.Atoi(line[1]) // a number of the kernel, which has 32 bits
		sum += n
	}
	return sum
}

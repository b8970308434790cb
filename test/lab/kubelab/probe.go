package kubelab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	probeInterval = 10 * time.Millisecond
	// probePatience is how long an answer may take: delayed packets are not lost.
	probePatience = 2 * time.Second
	// echoPort is the UDP port of the test program, and of an Echo.
	echoPort = 8081
)

// In calls f on a thread in the place's network. Sockets that f creates stay in the network, regardless of the thread that uses
// them later.
func (p Place) In(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked, so that the thread ends with this goroutine
		result <- func() error {
			ns, err := netns.GetFromPath(p.netns)
			if err != nil {
				return fmt.Errorf("open the network of %s: %w", p.Name, err)
			}
			defer func() { _ = ns.Close() }()
			if err := netns.Set(ns); err != nil {
				return fmt.Errorf("enter the network of %s: %w", p.Name, err)
			}
			return f()
		}()
	}()
	return <-result
}

// Echo answers UDP packets at a place's address like the test program of pods, until it is closed.
func (p Place) Echo() (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := p.In(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Address, echoPort)))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte(strings.TrimPrefix(string(buf[:n]), "echo ")), from)
		}
	}()
	return conn, nil
}

// echoPatience is how long AwaitEcho waits for an answer before it sends the next request.
const echoPatience = 300 * time.Millisecond

// AwaitEcho waits until the test program or an Echo answers at an address. Each request has another source port, because a UDP
// connection from before a service exists keeps its destination.
func (p Place) AwaitEcho(ctx context.Context, to netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Patience)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := p.In(func() error { return echoOnce(to) })
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func echoOnce(to netip.Addr) error {
	conn, err := net.Dial("udp", netip.AddrPortFrom(to, echoPort).String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(echoPatience)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "echo 0"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 100))
	return err
}

// Probe sends a packet every 10 ms from one place to another, and counts unanswered packets.
type Probe struct {
	Name string

	conn  net.Conn
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu       sync.Mutex
	sent     []time.Time // when each packet was sent
	from     int         // the first that counts
	answered map[int]bool
}

// StartProbe starts to send to the address of a test program or Echo.
func (p Place) StartProbe(name string, to netip.Addr) (*Probe, error) {
	r := &Probe{Name: p.Name + " -> " + name, answered: map[int]bool{}}
	err := p.In(func() (err error) {
		r.conn, err = net.Dial("udp", netip.AddrPortFrom(to, echoPort).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", r.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.ended.Go(func() { r.send(ctx) })
	go r.receive()
	return r, nil
}

func (r *Probe) send(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.mu.Lock()
		next := len(r.sent)
		r.sent = append(r.sent, time.Now())
		r.mu.Unlock()
		_, _ = fmt.Fprintf(r.conn, "echo %d", next) // a packet that cannot be sent counts as unanswered
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *Probe) receive() {
	buf := make([]byte, 100)
	for {
		n, err := r.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error: the packet is not answered
		}
		number, err := strconv.Atoi(string(buf[:n]))
		if err != nil {
			continue // not of this probe
		}
		r.mu.Lock()
		r.answered[number] = true
		r.mu.Unlock()
	}
}

// steadyPackets is the number of consecutive answers that Steady requires, of packets among the last lookedAt.
const (
	steadyPackets = 50
	lookedAt      = 1000
)

// Steady waits for a number of consecutive answers, which may be late. Only later packets count.
func (r *Probe) Steady(ctx context.Context) error {
	first, err := r.awaitSteady(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = first
	return err
}

// Answered waits for a number of consecutive answers like Steady. The packets that count stay the same.
func (r *Probe) Answered(ctx context.Context) error {
	_, err := r.awaitSteady(ctx)
	return err
}

// awaitSteady returns the number of the packet after the consecutive ones.
func (r *Probe) awaitSteady(ctx context.Context) (next int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Patience)
	defer cancel()
	for {
		if next, ok := r.steady(); ok {
			return next, nil
		}
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
			return 0, fmt.Errorf("probe %s: %w: not %d packets in a row are answered", r.Name, ctx.Err(), steadyPackets)
		}
	}
}

func (r *Probe) steady() (next int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	inRow := 0
	for i := len(r.sent) - 1; i >= max(0, len(r.sent)-lookedAt); i-- {
		if inRow++; !r.answered[i] {
			inRow = 0
		}
		if inRow == steadyPackets {
			return i + steadyPackets, true
		}
	}
	return 0, false
}

// Stop ends the probe. It returns the number of packets that count, and ranges of lost ones.
func (r *Probe) Stop() (sent int, lost []string) {
	r.stop()
	r.ended.Wait()
	defer func() { _ = r.conn.Close() }()
	deadline := time.Now().Add(probePatience)
	for {
		sent, lost = r.state()
		if len(lost) == 0 || time.Now().After(deadline) {
			return sent, lost
		}
		<-time.After(probeInterval)
	}
}

// state returns the number of packets that count, and the unanswered ones.
func (r *Probe) state() (sent int, missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, gap := range r.gaps() {
		missing = append(missing, fmt.Sprintf("%d-%d", gap[0], gap[1]))
	}
	return len(r.sent) - r.from, missing
}

// Gap returns the longest time for which no packet was answered, after Stop.
func (r *Probe) Gap() (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, gap := range r.gaps() {
		longest = max(longest, r.sent[gap[1]].Sub(r.sent[gap[0]])+probeInterval)
	}
	return longest
}

// gaps returns the ranges of unanswered packets that count: the numbers of the first and the last one. The caller holds the lock.
func (r *Probe) gaps() (all [][2]int) {
	for i := r.from; i < len(r.sent); i++ {
		if r.answered[i] {
			continue
		}
		first := i
		for i+1 < len(r.sent) && !r.answered[i+1] {
			i++
		}
		all = append(all, [2]int{first, i})
	}
	return all
}

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// A link may send perSecond requests, and burst at once. Others wait in the socket, whose buffer has queueBytes, and the kernel drops
// what does not fit. A pod that sends many costs no more than that.
const (
	perSecond  = 10
	burst      = 20
	queueBytes = 16 << 10
)

// Server answers the requests on links of a node. Its methods may be called concurrently.
type Server struct {
	node    netns.NsHandle
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex
	closed  bool
	links   map[string]*link // by name
	running sync.WaitGroup
}

// link is a link on which requests are answered.
type link struct {
	conn  *packet.Conn
	from  net.HardwareAddr
	lease atomic.Pointer[Lease]
	stop  context.CancelFunc
}

// New returns a Server for a node's network namespace, which must stay open until Close. The caller must call Close.
func New(node netns.NsHandle, log *slog.Logger, registry prometheus.Registerer) *Server {
	s := &Server{node: node, log: log, links: map[string]*link{}}
	s.metrics = newMetrics(registry, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.links))
	})
	return s
}

// Serve answers the requests on a link, the node's end of a pod's, with a lease. If it answers there already, it does so with the new
// lease. Stop must be called before the link is replaced.
func (s *Server) Serve(name string, l *Lease) error {
	if err := l.valid(); err != nil {
		return fmt.Errorf("serve DHCP on link %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("serve DHCP on link %s: the server is closed", name)
	}
	if served := s.links[name]; served != nil {
		served.lease.Store(l)
		return nil
	}
	one := &link{}
	one.lease.Store(l)
	err := links.Inside(s.node, func() error { return one.listen(name) })
	if err != nil {
		return fmt.Errorf("serve DHCP on link %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	one.stop = cancel
	s.links[name] = one
	s.running.Go(func() { s.answerOn(ctx, name, one) })
	return nil
}

// Links returns the names of the links on which requests are answered, sorted.
func (s *Server) Links() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.links))
}

// Stop answers no further requests on a link. It need not be one of Links.
func (s *Server) Stop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.links[name]; one != nil {
		one.stop()
		delete(s.links, name)
	}
}

// Close stops on all links, and waits.
func (s *Server) Close() {
	s.mu.Lock()
	for name, one := range s.links {
		one.stop()
		delete(s.links, name)
	}
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// listen opens the socket. It gets packets before the switch does: a socket for one protocol would get none, because the switch takes
// the packets first.
func (one *link) listen(name string) error {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	program, err := filter()
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: program})
	if err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var set error
		err = raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes)
			// Without this the kernel copies every packet to the pod before it asks the filter. Kernels before 4.20 do.
			_ = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		})
		err = errors.Join(err, set)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("set the options of a packet socket: %w", err), conn.Close())
	}
	one.conn, one.from = conn, ifi.HardwareAddr
	return nil
}

// answerOn answers the requests on a link until ctx is done.
func (s *Server) answerOn(ctx context.Context, name string, one *link) {
	defer func() { _ = one.conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = one.conn.Close() })()
	var (
		limit  = rate.NewLimiter(perSecond, burst)
		buffer = make([]byte, maxFrame)
		failed bool
	)
	for limit.Wait(ctx) == nil {
		n, _, err := one.conn.ReadFrom(buffer)
		if err != nil {
			continue // the link is down, or gone, which Stop follows
		}
		out := s.answerTo(one, buffer[:n])
		if out == nil {
			continue
		}
		if _, err := one.conn.WriteTo(out, &packet.Addr{HardwareAddr: out[:hardwareBytes]}); err != nil && !failed && ctx.Err() == nil {
			failed = true
			s.log.Warn("could not answer a DHCP request; logging no further failure of the link", "link", name, "err", err)
		}
	}
}

// answerTo returns the frame that answers a frame; nil if it gets no answer.
func (s *Server) answerTo(one *link, frame []byte) []byte {
	lease := one.lease.Load()
	in, err := dhcpv4.FromBytes(payload(frame))
	if err != nil {
		s.metrics.ignored.WithLabelValues(string(malformed)).Inc()
		return nil
	}
	out, why := lease.answer(in)
	if out == nil {
		s.metrics.ignored.WithLabelValues(string(why)).Inc()
		return nil
	}
	s.metrics.answers.WithLabelValues(out.MessageType().String()).Inc()
	return lease.frame(one.from, out)
}

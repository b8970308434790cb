package policies

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/sctp"
)

// answerTime is how long a probe waits for an answer. A connection that is allowed and takes
// longer is probed again.
const answerTime = 300 * time.Millisecond

// cell is a connection to probe: a cell of a truth table.
type cell struct {
	from, to         *pod
	source, address  netip.Addr // of the same family
	port             policy.Port
	open, wantedOpen bool
}

func (c *cell) String() string {
	return fmt.Sprintf("%s (%s) to %s (%s) %s/%d", c.from, c.source, c.to, c.address, c.port.Protocol, c.port.Number)
}

// ends returns the pods and the nodes.
func (c *cluster) ends() []*pod { return slices.Concat(c.pods, c.nodes) }

// table returns a cell for each two pods, and each pod and node, family, protocol and port.
func (c *cluster) table() []*cell {
	var cells []*cell
	for _, from := range c.ends() {
		for _, to := range c.ends() {
			if slices.Contains(c.nodes, from) && slices.Contains(c.nodes, to) {
				continue
			}
			for family, address := range to.addresses[:min(len(from.addresses), len(to.addresses))] { // a node has IPv4 alone
				for _, protocol := range []string{"tcp", "udp", "sctp"} {
					for _, number := range ports {
						cells = append(cells, &cell{
							from: from, to: to, source: from.addresses[family], address: address,
							port: policy.Port{Protocol: protocol, Number: number},
						})
					}
				}
			}
		}
	}
	return cells
}

// probe makes the connections, and sets which of them are open. It makes them all at once, except that
// SCTP goes in one direction first, and then in the other: the userspace datapath of Open vSwitch 3.1
// tracks SCTP by addresses alone, and would take an INIT for the answer of one in the other direction.
func (c *cluster) probe(cells []*cell) {
	c.t.Helper()
	isBack := func(one *cell) bool { return one.port.Protocol == "sctp" && one.to.device() < one.from.device() }
	forth := slices.DeleteFunc(slices.Clone(cells), isBack)
	back := slices.DeleteFunc(slices.Clone(cells), func(one *cell) bool { return !isBack(one) })
	for _, some := range [][]*cell{forth, back} {
		if slices.ContainsFunc(some, func(one *cell) bool { return one.port.Protocol == "sctp" }) {
			require.NoError(c.t, c.lab.ForgetConnections(c.t.Context()))
		}
		if len(some) > 0 {
			c.probeAtOnce(some)
		}
	}
}

// probeAtOnce makes all connections at once, and sets which of them are open.
func (c *cluster) probeAtOnce(cells []*cell) {
	c.t.Helper()
	sockets, inits := map[int32]*cell{}, map[uint16]*cell{}
	bySource := map[*pod][]*cell{}
	for _, one := range cells {
		one.open = false
		bySource[one.from] = append(bySource[one.from], one)
	}
	defer func() {
		for fd := range sockets {
			_ = unix.Close(int(fd))
		}
	}()
	for from, some := range bySource {
		require.NoError(c.t, c.lab.In(from.device(), func() error {
			for _, one := range some {
				if one.port.Protocol == "sctp" {
					source := c.nextSource()
					inits[source] = one
					if err := sctp.Send(source, netip.AddrPortFrom(one.address, one.port.Number)); err != nil {
						return fmt.Errorf("probe %s: %w", one, err)
					}
					continue
				}
				fd, err := one.begin()
				if err != nil {
					return fmt.Errorf("probe %s: %w", one, err)
				}
				sockets[int32(fd)] = one
			}
			return nil
		}))
	}
	require.NoError(c.t, await(sockets, len(inits) > 0))
	require.NoError(c.t, c.receiveInits(inits))
}

// begin begins a connection from the current network namespace, and returns its socket.
func (c *cell) begin() (fd int, err error) {
	family, kind := unix.AF_INET6, unix.SOCK_DGRAM
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(c.port.Number), Addr: c.address.As16()}
	if c.address.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(c.port.Number), Addr: c.address.As4()}
	}
	if c.port.Protocol == "tcp" {
		kind = unix.SOCK_STREAM
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	err = unix.Connect(fd, to)
	if err == nil && kind == unix.SOCK_DGRAM {
		_, err = unix.Write(fd, []byte("x"))
	}
	if kind == unix.SOCK_STREAM && err == nil || errors.Is(err, unix.EINPROGRESS) {
		// Closing resets the connection, so that nothing of it stays in the connection tables.
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// await waits for answers on sockets for answerTime, and sets which connections are open. It returns
// early if all have answered, unless packets without answers were sent too.
func await(sockets map[int32]*cell, unanswered bool) error {
	var waiting []unix.PollFd
	for fd, one := range sockets {
		events := int16(unix.POLLIN)
		if one.port.Protocol == "tcp" {
			events = unix.POLLOUT
		}
		waiting = append(waiting, unix.PollFd{Fd: fd, Events: events})
	}
	for deadline := time.Now().Add(answerTime); (unanswered || len(waiting) > 0) && time.Now().Before(deadline); {
		_, err := unix.Poll(waiting, int(time.Until(deadline).Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for answers: %w", err)
		}
		waiting = slices.DeleteFunc(waiting, func(w unix.PollFd) bool {
			if w.Revents != 0 {
				failed, err := unix.GetsockoptInt(int(w.Fd), unix.SOL_SOCKET, unix.SO_ERROR)
				sockets[w.Fd].open = err == nil && failed == 0 && w.Revents&(unix.POLLIN|unix.POLLOUT) != 0
			}
			return w.Revents != 0
		})
	}
	return nil
}

// judge sets what the evaluator says about each cell.
func judge(cells []*cell, w policy.World) {
	judge := policy.Compile(w)
	for _, one := range cells {
		one.wantedOpen = judge.Allowed(judge.At(one.source)[0], judge.At(one.address)[0], one.port)
	}
}

// wrong returns the cells whose connections are not as the evaluator says.
func wrong(cells []*cell) (differ []*cell) {
	for _, one := range cells {
		if one.open != one.wantedOpen {
			differ = append(differ, one)
		}
	}
	return differ
}

// agree waits until the network agrees with the evaluator in every cell. Then it probes every cell
// again: what is denied stays denied.
func (c *cluster) agree(cells []*cell) {
	c.t.Helper()
	c.probe(cells)
	c.settle(wrong(cells))
	c.probe(cells)
	differ := wrong(cells)
	for _, one := range differ {
		require.False(c.t, one.open && !c.isStale, "%s is open again: the evaluator denies it", one)
	}
	c.settle(differ) // a machine that is too busy to answer in time
}

// settle probes cells until they are as the evaluator says.
func (c *cluster) settle(cells []*cell) {
	c.t.Helper()
	c.awaitPackets(time.Millisecond, "the network agrees with the evaluator", func() error {
		if cells = wrong(cells); len(cells) == 0 {
			return nil
		}
		c.probe(cells)
		if cells = wrong(cells); len(cells) > 0 {
			return fmt.Errorf("%d cells differ, such as %s: open %v", len(cells), cells[0], cells[0].open)
		}
		return nil
	})
}

// staleTime is when Open vSwitch 3.1 has had the time to do what its tables say.
const staleTime = 10 * time.Second

// awaitPackets waits until holds, which sends packets, returns nil. From time to time it removes stale
// datapath flows (see ovnhost.Lab.HasStaleFlows): the packets can make further ones.
func (c *cluster) awaitPackets(interval time.Duration, what string, holds func() error) {
	c.t.Helper()
	forget := time.Now().Add(staleTime)
	bridgetest.Await(c.t, interval, converge, what, func() error {
		err := holds()
		if err != nil && c.isStale && time.Now().After(forget) {
			c.t.Logf("%s: the flows of Open vSwitch 3.1 can be stale: %s", what, err)
			forget = time.Now().Add(staleTime)
			return errors.Join(err, c.lab.ForgetFlows(c.t.Context()))
		}
		return err
	})
}

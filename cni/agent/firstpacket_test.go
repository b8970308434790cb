package agent_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

var firstPackets = flag.Int("first-packet-starts", 24, "number of pods that TestFirstPacket starts")

const (
	probeEvery = 500 * time.Microsecond
	probePort  = 9999
	// probesAfter is how many more packets each sender sends after ADD has returned, and how many
	// it sends while northd is stopped.
	probesAfter = 50
)

// TestFirstPacket: no packet to or from a pod passes that its ACLs forbid, if the pod joins its
// port group in the transaction that creates its switch port. A pod on each host sends from the
// moment the address is known, and the new pod sends from the moment it has a link. The same
// holds while northd is stopped and continued, while the bridge is killed, and when the parts of
// OVN and of the switch are restarted.
//
// The bridge chooses addresses only. The test writes the rows of OVN itself, in one transaction for each
// pod, as the OVN backend does (TestPortJoinsInItsTransaction in mapping/backend/ovn).
func TestFirstPacket(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := newWorldOver(t, lab, "--backend", "memory")
	w.startAgents(patient)
	f := &firstPacket{world: w, watchers: map[*watcher]bool{}}
	f.createNetwork()
	for i, host := range lab.Hosts {
		f.addWatcher(host.Name, i)
	}
	for n := range *firstPackets {
		f.start(n)
	}
	f.last(*firstPackets)
}

// firstPacket is a network whose rows the test writes.
type firstPacket struct {
	*world
	watchers map[*watcher]bool
}

// watcher is a pod without ACLs that exchanges packets with the new pods.
type watcher struct {
	*sandbox
	seen *arrivals
}

// gatewayMAC is the MAC address of the only router port.
const gatewayMAC = "0a:58:00:00:00:01"

func (f *firstPacket) createNetwork() {
	f.nb(f.t.Context(), "lr-add router -- lrp-add router gateway "+gatewayMAC+" 192.0.2.1/32 --",
		"ls-add pods -- lsp-add pods pods-gateway -- lsp-set-type pods-gateway router --",
		"lsp-set-addresses pods-gateway router -- lsp-set-options pods-gateway router-port=gateway --",
		"--id=@in create ACL direction=to-lport priority=1000 action=drop match=\"outport==@deny&&ip\" --",
		"--id=@out create ACL direction=from-lport priority=1000 action=drop match=\"inport==@deny&&ip\" --",
		"--id=@some create ACL direction=to-lport priority=1001 action=allow-related match=\"outport==@deny&&ip4.src==198.51.100.0/24\" --",
		"create Port_Group name=deny acls=@in,@out,@some")
}

// nb runs commands of ovn-nbctl in one transaction. A tilde stands for a space in an argument.
func (f *firstPacket) nb(ctx context.Context, commands ...string) {
	args := strings.Fields(strings.Join(commands, " "))
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "~", " ")
	}
	_, err := f.lab.NBCtl(ctx, args...)
	require.NoError(f.t, err)
}

// leased is what the bridge has chosen for a pod.
type leased struct {
	Pod       string `json:"pod-uid"`
	Name      string `json:"name"`
	MAC       string `json:"mac-address"`
	Addresses []struct {
		IP      netip.Addr `json:"ip"`
		Length  int        `json:"prefix-length"`
		Gateway netip.Addr `json:"gateway"`
	} `json:"address"`
}

func (f *firstPacket) lease(s *sandbox) (found leased) {
	f.t.Helper()
	await(f.t, s.name+" has an address", func() error {
		var all struct {
			Interfaces []leased `json:"interface"`
		}
		if _, err := f.bridge.Client().Read(f.t.Context(), "operational/coe-agent:interfaces", &all); err != nil {
			return err
		}
		for _, found = range all.Interfaces {
			if found.Pod == s.uid {
				return nil
			}
		}
		return fmt.Errorf("no record of %s", s.name)
	})
	return found
}

// createPort creates the switch port of a pod in one transaction with its membership in a port
// group, and the router's address for its block.
func (f *firstPacket) createPort(l leased, group string) {
	a := l.Addresses[0]
	join := ""
	if group != "" {
		join = "-- add Port_Group " + group + " ports @port"
	}
	f.nb(f.t.Context(), fmt.Sprintf("add Logical_Router_Port gateway networks \"%s/%d\" --", a.Gateway, a.Length),
		fmt.Sprintf("--id=@port create Logical_Switch_Port name=%q addresses=\"%s~%s\" options:iface-id-ver=%q --", l.Name, l.MAC, a.IP, l.Pod),
		"add Logical_Switch pods ports @port", join)
}

func (f *firstPacket) addWatcher(host string, n int) {
	f.t.Helper()
	w := &watcher{sandbox: f.pod(host, n, "default", "watcher-"+host)}
	f.createPort(f.lease(w.sandbox), "")
	w.mustAdd()
	w.seen = f.listen(w.sandbox)
	f.watchers[w] = true
}

// start starts a pod that nothing may reach, and removes it.
func (f *firstPacket) start(n int) {
	f.t.Helper()
	p := f.newProbed(n)
	defer p.stop()
	killed := n%8 == 3
	if killed {
		f.bridge.Kill()
	}
	if n%4 == 1 {
		require.NoError(f.t, f.lab.Northd.Stop())
	}
	added := make(chan error, 1)
	go func() {
		_, err := p.add(f.t.Context(), invoke{})
		added <- err
	}()
	f.createPort(p.lease, "deny")
	if n%4 == 1 {
		p.awaitProbes()
		require.NoError(f.t, f.lab.Northd.Cont())
	}
	if killed {
		f.startBridge()
	}
	require.NoError(f.t, <-added)
	p.awaitProbes()
	f.nonePassed(p)
	f.remove(p, n)
}

func (f *firstPacket) nonePassed(p *probed) {
	f.t.Helper()
	for w := range f.watchers {
		require.Zero(f.t, p.seen.from(w.address), "%s received packets from %s", p.name, w.name)
		require.Zero(f.t, w.seen.from(p.lease.Addresses[0].IP), "%s sent packets to %s", p.name, w.name)
	}
}

// last starts a pod that nothing may reach, and restarts the parts of its host's switch and of
// OVN. Then the pod leaves the port group. The probes pass now, which shows that they work.
func (f *firstPacket) last(n int) {
	f.t.Helper()
	p := f.newProbed(n)
	defer p.stop()
	f.createPort(p.lease, "deny")
	p.mustAdd()
	host := f.lab.Host(p.host)
	for _, part := range []*ovnhost.Process{
		host.Controller, host.VSwitchd, host.OVSDB.Process, f.lab.Northd, f.lab.SB.Process, f.lab.NB.Process,
	} {
		require.NoError(f.t, part.Restart(f.t.Context()))
		require.NoError(f.t, f.lab.Sync(f.t.Context()))
		p.awaitProbes()
		f.nonePassed(p)
	}
	f.nb(f.t.Context(), "clear Port_Group deny ports")
	for w := range f.watchers {
		await(f.t, "probes pass", func() error {
			in, out := p.seen.from(w.address), w.seen.from(p.lease.Addresses[0].IP)
			if in == 0 || out == 0 {
				return fmt.Errorf("%d packets from %s and %d packets to it", in, w.name, out)
			}
			return nil
		})
	}
}

// probed is a new pod with probes in both directions.
type probed struct {
	*sandbox
	lease leased
	seen  *arrivals
	sent  []*atomic.Int64 // by sender
	stop  func()
}

// awaitProbes waits until each sender has sent probesAfter more packets.
func (p *probed) awaitProbes() {
	p.w.t.Helper()
	targets := make([]int64, len(p.sent))
	for i, sent := range p.sent {
		targets[i] = sent.Load() + probesAfter
	}
	await(p.w.t, "probes are sent", func() error {
		for i, sent := range p.sent {
			if n := sent.Load(); n < targets[i] {
				return fmt.Errorf("%d of %d packets", n, targets[i])
			}
		}
		return nil
	})
}

// newProbed posts a pod, waits for its address, and starts the probes.
func (f *firstPacket) newProbed(n int) *probed {
	f.t.Helper()
	number := n + len(f.watchers)
	host := f.lab.Hosts[n%len(f.lab.Hosts)].Name
	p := &probed{sandbox: f.pod(host, number, "default", fmt.Sprintf("first%d", n))}
	p.seen = f.listen(p.sandbox)
	p.lease = f.lease(p.sandbox)
	ctx, cancel := context.WithCancel(f.t.Context())
	var sending sync.WaitGroup
	for w := range f.watchers {
		in, out := new(atomic.Int64), new(atomic.Int64)
		p.sent = append(p.sent, in, out)
		sending.Go(func() { w.probe(ctx, p.lease.Addresses[0].IP, in) })
		sending.Go(func() { p.probe(ctx, w.address, out) })
	}
	p.stop = func() {
		cancel()
		sending.Wait()
		p.seen.stop()
	}
	return p
}

func (f *firstPacket) remove(p *probed, n int) {
	f.t.Helper()
	p.stop()
	require.NoError(f.t, p.del())
	p.remove()
	f.delete(n + len(f.watchers))
	f.nb(f.t.Context(), "lsp-del "+p.lease.Name)
}

// probe sends packets from a watcher until ctx ends, and counts them.
func (w *watcher) probe(ctx context.Context, to netip.Addr, sent *atomic.Int64) {
	conn, err := w.w.lab.Dial(ctx, w.inLab(), "udp", netip.AddrPortFrom(to, probePort).String())
	if err != nil {
		return // ctx has ended, or the test fails for want of packets
	}
	defer func() { _ = conn.Close() }()
	regularly(ctx, func() {
		if _, err := conn.Write([]byte("probe")); err == nil { // an ICMP error fails the next write
			sent.Add(1)
		}
	})
}

// regularly calls do every probeEvery until ctx ends.
func regularly(ctx context.Context, do func()) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// probe sends frames to the gateway from a new pod until ctx ends, from the moment it has a link, and counts them.
func (p *probed) probe(ctx context.Context, to netip.Addr, sent *atomic.Int64) {
	_ = p.inside(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(socket) }()
		frame := p.frame(to)
		regularly(ctx, func() {
			link, err := net.InterfaceByName("eth0")
			if err == nil && unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}) == nil {
				sent.Add(1)
			}
		})
		return nil
	})
}

// frame is an Ethernet frame to the gateway with a UDP packet from the pod.
func (p *probed) frame(to netip.Addr) []byte {
	gateway, _ := net.ParseMAC(gatewayMAC)
	own, _ := net.ParseMAC(p.lease.MAC)
	ip := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	ip = append(append(ip, p.lease.Addresses[0].IP.AsSlice()...), to.AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum&0xffff))
	frame := append(append(gateway, own...), 8, 0)
	frame = append(frame, ip...)
	for _, v := range []uint16{probePort, probePort, 8, 0} {
		frame = binary.BigEndian.AppendUint16(frame, v)
	}
	return frame
}

// inside calls do on a thread in the pod's namespace.
func (s *sandbox) inside(do func() error) error {
	ns, err := netns.GetFromPath(s.path())
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return links.Inside(ns, do)
}

// arrivals counts the IPv4 packets that arrive in a network namespace.
type arrivals struct {
	stop func()

	mu    sync.Mutex
	count map[netip.Addr]int // by source
}

func (a *arrivals) from(source netip.Addr) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[source]
}

// listen counts the packets of a pod's namespace until stop is called or the test ends.
func (f *firstPacket) listen(s *sandbox) *arrivals {
	f.t.Helper()
	var socket int
	require.NoError(f.t, s.inside(func() (err error) {
		every := binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff})
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(every)); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000})
	}))
	ctx, cancel := context.WithCancel(context.Background())
	a := &arrivals{count: map[netip.Addr]int{}}
	var listening sync.WaitGroup
	listening.Go(func() { a.run(ctx, socket) })
	a.stop = func() {
		cancel()
		listening.Wait()
	}
	f.t.Cleanup(a.stop)
	return a
}

func (a *arrivals) run(ctx context.Context, socket int) {
	defer func() { _ = unix.Close(socket) }()
	packet := make([]byte, 64)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(socket, packet, 0)
		link, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || n < 20 || !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		source, _ := netip.AddrFromSlice(packet[12:16])
		a.mu.Lock()
		a.count[source]++
		a.mu.Unlock()
	}
}

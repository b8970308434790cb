package nic_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nic"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// patience bounds a wait.
const patience = 2 * time.Minute

// killVariable makes this test binary move a NIC, and kill itself after a step:
// "join|leave NAME STEP DATABASE FOLDER BOOT".
const killVariable = "NIC_TEST_KILL"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(killVariable)); len(args) == 6 {
		if err := moveAndDie(args[0], args[1], args[2], args[3], args[4], args[5]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(bridgetest.Main(m))
}

func moveAndDie(way, name, step, database, dir, boot string) error {
	last, err := strconv.Atoi(step)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	s, err := ovs.New(ovs.Config{Endpoint: database, Log: log})
	if err != nil {
		return err
	}
	go s.Run(context.Background())
	node, err := netns.Get()
	if err != nil {
		return err
	}
	m := nic.New(nic.Config{Switch: s, Netns: node, Dir: dir, Boot: boot, Log: log})
	taken := 0
	m.After(func(nic.Step) error {
		if taken++; taken == last {
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		return nil
	})
	if way == "join" {
		_, err = m.Join(context.Background(), name, false)
	} else {
		_, err = m.Leave(context.Background(), name, false)
	}
	return err
}

// node is a host with a NIC, whose other end is in a namespace outside.
type node struct {
	t       *testing.T
	host    *ovnhost.Host
	ns      string // of the host
	outside string
	dir     string // of the records
	boot    string // the file that identifies the boot
	vswitch *ovs.Switch
	*nic.Mover
}

const (
	theNIC    = "nic0"
	theBridge = "brnic0"
)

func newNode(t *testing.T) *node {
	lab := ovnhost.SwitchesForTest(t, "host1")
	n := &node{t: t, host: lab.Hosts[0], ns: lab.Namespace("host1"), outside: lab.Namespace("outside"), dir: filepath.Join(t.TempDir(), "nics")}
	n.boot = filepath.Join(t.TempDir(), "boot")
	n.reboot("first")
	n.ip("netns", "add", n.outside)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.outside).Run() })
	n.ip("-n", n.ns, "link", "add", theNIC, "type", "veth", "peer", "name", "eth0", "netns", n.outside)
	n.ip("-n", n.ns, "link", "set", theNIC, "mtu", "1400", "address", "02:00:00:00:99:01", "up")
	n.ip("-n", n.outside, "link", "set", "eth0", "mtu", "1400", "up")
	n.ip("-n", n.outside, "address", "add", "10.9.0.254/24", "dev", "eth0")
	n.ip("-n", n.outside, "-6", "address", "add", "fd09::fe/64", "dev", "eth0", "nodad")
	outside, err := netns.GetFromName(n.outside)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outside.Close() })
	require.NoError(t, links.SoftwareChecksums(outside, "eth0"))
	n.connectSwitch(0)
	n.Mover = n.mover()
	return n
}

// connectSwitch connects to the switch, with a timeout; 0 is the default.
func (n *node) connectSwitch(timeout time.Duration) {
	n.t.Helper()
	var err error
	n.vswitch, err = ovs.New(ovs.Config{Endpoint: n.host.OVSDB.Remote, Timeout: timeout, Log: slog.New(slog.NewTextHandler(n.t.Output(), nil))})
	require.NoError(n.t, err)
	n.background(n.vswitch.Run)
}

func (n *node) mover() *nic.Mover {
	ns, err := netns.GetFromName(n.ns)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = ns.Close() })
	return nic.New(nic.Config{Switch: n.vswitch, Netns: ns, Dir: n.dir, Boot: n.boot, Log: slog.New(slog.NewTextHandler(n.t.Output(), nil))})
}

// reboot gives the boot an identity.
func (n *node) reboot(identity string) {
	require.NoError(n.t, os.WriteFile(n.boot, []byte(identity), 0o600))
}

// background runs f until the end of the test, or until stop is called.
func (n *node) background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	n.t.Cleanup(stop)
	return stop
}

func (n *node) command(name string, args ...string) string {
	n.t.Helper()
	out, err := namespace.Output(exec.CommandContext(n.t.Context(), name, args...))
	require.NoError(n.t, err)
	return out
}

func (n *node) ip(args ...string) string {
	n.t.Helper()
	return n.command("ip", args...)
}

// in calls f in a namespace.
func (n *node) in(name string, f func() error) {
	n.t.Helper()
	ns, err := netns.GetFromName(name)
	require.NoError(n.t, err)
	defer func() { _ = ns.Close() }()
	require.NoError(n.t, links.Inside(ns, f))
}

// lines runs commands of ip on the host, a line each.
func (n *node) lines(commands string) {
	n.t.Helper()
	for line := range strings.Lines(commands) {
		if args := strings.Fields(line); len(args) > 0 {
			n.ip(append([]string{"-n", n.ns}, args...)...)
		}
	}
}

// usable waits until no address of the NIC is tentative.
func (n *node) usable() {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return n.ip("-n", n.ns, "address", "show", "dev", theNIC, "tentative") == "" }, patience, 20*time.Millisecond)
}

var limited = regexp.MustCompile(`\d+sec`)

// has returns the addresses, routes and neighbours of a link, and its MAC address, MTU and some settings,
// in which the name of the NIC stands for the link. Times that are limited are left out.
func (n *node) has(link string) string {
	n.t.Helper()
	var shown []struct {
		Address string
		MTU     int
		Infos   []map[string]any `json:"addr_info"`
	}
	require.NoError(n.t, json.Unmarshal([]byte(n.ip("-n", n.ns, "-j", "address", "show", "dev", link)), &shown))
	var all []string
	for _, info := range shown[0].Infos {
		for _, time := range []string{"valid_life_time", "preferred_life_time"} {
			if info[time] != float64(1<<32-1) {
				info[time] = "limited"
			}
		}
		text, err := json.Marshal(info)
		require.NoError(n.t, err)
		all = append(all, string(text))
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(n.ip("-n", n.ns, family, "-d", "route", "show", "table", "all")) {
			if !strings.Contains(line, "table local") {
				all = append(all, limited.ReplaceAllString(strings.TrimSpace(line), "limited"))
			}
		}
	}
	all = append(all, n.ip("-n", n.ns, "neighbour", "show", "dev", link, "nud", "permanent"))
	all = append(all, fmt.Sprintf("%s mtu %d", shown[0].Address, shown[0].MTU))
	all = append(all, "rp_filter "+n.command("ip", "netns", "exec", n.ns, "sysctl", "-n", "net.ipv4.conf."+link+".rp_filter"))
	named := regexp.MustCompile(`\b` + link + `\b`)
	for i, line := range all {
		all[i] = named.ReplaceAllString(line, theNIC)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// nothing requires that a NIC has neither addresses nor routes.
func (n *node) nothing(link string) {
	n.t.Helper()
	require.NotContains(n.t, n.ip("-n", n.ns, "address", "show", "dev", link), "inet")
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(n.ip("-n", n.ns, family, "route", "show", "table", "all", "dev", link)) {
			require.Contains(n.t, line, "table local")
		}
	}
}

// joined requires that the bridge has what the NIC had.
func (n *node) joined(had string) {
	n.t.Helper()
	require.Equal(n.t, had, n.has(theBridge))
	n.nothing(theNIC)
	out, err := n.host.VSCtl(n.t.Context(), "list-ports", theBridge)
	require.NoError(n.t, err)
	require.Equal(n.t, theNIC, strings.TrimSpace(out))
}

// left requires that the NIC has everything, and that nothing else is left.
func (n *node) left(had string) {
	n.t.Helper()
	require.Equal(n.t, had, n.has(theNIC))
	_, err := n.host.VSCtl(n.t.Context(), "br-exists", theBridge)
	require.Error(n.t, err)
	require.NoError(n.t, exec.Command("ip", "netns", "exec", n.ns, "ip", "link", "show", theNIC).Run())
	require.Error(n.t, exec.Command("ip", "netns", "exec", n.ns, "ip", "link", "show", theBridge).Run())
	require.NotContains(n.t, n.command("ip", "netns", "exec", n.ns, "nft", "list", "tables"), "coe-bridge")
	records, err := filepath.Glob(filepath.Join(n.dir, "*.json"))
	require.NoError(n.t, err)
	require.Empty(n.t, records)
}

// echo is a TCP connection on which numbers are sent and come back.
type echo struct {
	echoes  atomic.Int64
	failure atomic.Pointer[error]
}

// connect opens a connection from outside to an address of the host, and uses it until the end of the test.
func (n *node) connect(address string) *echo {
	n.t.Helper()
	var (
		listener net.Listener
		conn     net.Conn
		running  sync.WaitGroup
		e        echo
	)
	n.in(n.ns, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	})
	running.Go(func() {
		server, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		lines := bufio.NewReader(server)
		for {
			line, err := lines.ReadString('\n')
			if err == nil {
				_, err = server.Write([]byte(line))
			}
			if err != nil {
				return
			}
		}
	})
	n.in(n.outside, func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), patience)
		return err
	})
	running.Go(func() {
		lines := bufio.NewReader(conn)
		for i := 0; ; i++ {
			sent := fmt.Sprintln(i)
			_, err := conn.Write([]byte(sent))
			var got string
			if err == nil {
				got, err = lines.ReadString('\n')
			}
			if err == nil && got != sent {
				err = fmt.Errorf("sent %q, got %q", sent, got)
			}
			if err != nil {
				e.failure.Store(&err)
				return
			}
			e.echoes.Add(1)
		}
	})
	n.t.Cleanup(func() {
		_ = conn.Close()
		_ = listener.Close()
		running.Wait()
	})
	e.works(n.t) // both ends have the connection
	return &e
}

// works requires that the connection works.
func (e *echo) works(t *testing.T) {
	t.Helper()
	const enough = 3 // one can have been on its way
	target := e.echoes.Load() + enough
	require.Eventually(t, func() bool { return e.echoes.Load() >= target || e.failure.Load() != nil }, patience, time.Millisecond)
	if failure := e.failure.Load(); failure != nil {
		require.NoError(t, *failure)
	}
}

func (n *node) join() []nic.Step {
	n.t.Helper()
	steps, err := n.Join(n.t.Context(), theNIC, false)
	require.NoError(n.t, err)
	return steps
}

func texts(steps []nic.Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.String())
	}
	return all
}

func (n *node) leave() []nic.Step {
	n.t.Helper()
	steps, err := n.Leave(n.t.Context(), theBridge, false)
	require.NoError(n.t, err)
	return steps
}

// TestMove: everything that a NIC has moves to its bridge and back. Connections survive.
func TestMove(t *testing.T) {
	n := newNode(t)
	n.command("ip", "netns", "exec", n.ns, "sysctl", "-w", "net.ipv4.conf."+theNIC+".rp_filter=1")
	n.lines(`
		address add 10.9.0.1/24 brd + dev nic0
		address add 10.9.0.2/24 dev nic0 label nic0:1
		address add 10.9.1.1/24 dev nic0 valid_lft 3600 preferred_lft 1800
		address add 10.9.2.1 peer 10.9.2.2/32 dev nic0
		address add 10.9.3.1/24 dev nic0 noprefixroute metric 77
		address add 169.254.7.7/16 dev nic0 scope link
		-6 address add fd09::1/64 dev nic0
		-6 address add fd09:1::1/64 dev nic0 valid_lft 3600 preferred_lft 1800 nodad
		route add 10.20.0.0/16 via 10.9.0.254 dev nic0 metric 50 proto static
		route add 10.21.0.0/16 via 10.9.0.254 dev nic0 src 10.9.0.2 mtu 1300
		route add 10.22.0.0/16 via 192.0.2.1 dev nic0 onlink
		route add 10.23.0.0/16 dev nic0 scope link table 100
		route add default via 10.9.0.254 dev nic0 table 100
		route add default via 10.9.0.254 dev nic0 metric 1000
		route add 10.24.0.0/16 nexthop via 10.9.0.253 dev nic0 weight 2 nexthop via 10.9.0.252 dev nic0
		route add 10.25.0.0/16 nexthop via 10.9.0.251 dev nic0 nexthop via 172.31.99.1 dev br-phy
		neighbour add 10.9.0.250 lladdr 02:00:00:00:00:99 dev nic0 nud permanent`)
	n.usable()
	n.lines(`
		-6 route add fd20::/64 via fd09::fe dev nic0 metric 50
		-6 route add fd21::/64 nexthop via fd09::fd dev nic0 nexthop via fd09::fc dev nic0
		-6 route add fd22::/64 via fe80::1 dev nic0 expires 3600
		-6 route add default via fe80::1 dev nic0 table 100
		-6 neighbour add fd09::fb lladdr 02:00:00:00:00:98 dev nic0 nud permanent`)
	had := n.has(theNIC)
	connections := []*echo{n.connect("10.9.0.1"), n.connect("10.9.0.2"), n.connect("fd09::1")}
	work := func() {
		t.Helper()
		for _, c := range connections {
			c.works(t)
		}
	}

	planned, err := n.Join(t.Context(), theNIC, true)
	require.NoError(t, err)
	n.left(had)
	require.Equal(t, texts(planned), texts(n.join()), "a dry run returns the same steps")
	work()
	n.joined(had)
	require.Empty(t, n.join(), "the NIC has joined")
	n.joined(had)

	n.lines("address add 10.9.9.9/24 dev nic0") // as a network manager would
	require.NotEmpty(t, n.join())
	n.nothing(theNIC)
	n.lines("address del 10.9.9.9/24 dev brnic0")
	n.joined(had)
	n.lines(`
		route add 10.9.0.253/32 dev nic0
		route append default via 10.9.0.253 dev nic0 metric 1000`) // the network manager has another gateway
	n.join()
	require.Equal(t, "default via 10.9.0.253 metric 1000", strings.TrimSpace(n.ip("-n", n.ns, "route", "show", "default", "dev", theBridge)))
	n.lines(`
		route replace default via 10.9.0.254 dev brnic0 metric 1000
		route del 10.9.0.253/32 dev brnic0`)
	n.joined(had)

	planned, err = n.Leave(t.Context(), theBridge, true)
	require.NoError(t, err)
	n.joined(had)
	require.Equal(t, texts(planned), texts(n.leave()), "a dry run returns the same steps")
	work()
	n.left(had)
	require.Empty(t, n.leave(), "the NIC has left")

	// A second NIC does not disturb the first one.
	n.lines(`
		link add nic1 type veth peer name nic1-peer
		link set nic1-peer up
		link set nic1 up
		address add 10.10.0.1/24 dev nic1`)
	n.join()
	_, err = n.Join(t.Context(), "nic1", false)
	require.NoError(t, err)
	n.leave()
	ignored := n.command("ip", "netns", "exec", n.ns, "nft", "list", "table", "inet", "coe-bridge-nics")
	require.Contains(t, ignored, `iifname "nic1"`)
	require.NotContains(t, ignored, `"nic0"`)
	work()
	_, err = n.Leave(t.Context(), "brnic1", false)
	require.NoError(t, err)
	n.lines("link del nic1")
	n.left(had)

	_, err = n.host.VSCtl(t.Context(), "add-br", theBridge)
	require.NoError(t, err)
	_, err = n.Join(t.Context(), theNIC, false)
	require.ErrorContains(t, err, "a bridge brnic0 that coe-bridge has not created")
	_, err = n.Leave(t.Context(), theBridge, false)
	require.ErrorContains(t, err, "was not created by coe-bridge")
}

// simple gives the NIC an address of each family and a default route, and returns what it has.
func (n *node) simple() (had string) {
	n.t.Helper()
	n.lines(`
		address add 10.9.0.1/24 dev nic0
		-6 address add fd09::1/64 dev nic0
		route add default via 10.9.0.254 dev nic0`)
	n.usable()
	n.lines(`
		-6 route add default via fd09::fe dev nic0
		-6 route add fd30::/64 via fe80::1 dev nic0`)
	n.command("ip", "netns", "exec", n.ns, "sysctl", "-w", "net.ipv4.conf."+theNIC+".rp_filter=1")
	return n.has(theNIC)
}

// killed moves a NIC in another process, which kills itself after a step. It reports whether the process was killed.
func (n *node) killed(way, name string, step int) bool {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), "ip", "netns", "exec", n.ns, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s %s %s", killVariable, way, name, step, n.host.OVSDB.Remote, n.dir, n.boot))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	status, ok := errors.AsType[*exec.ExitError](err)
	require.True(n.t, ok && status.ExitCode() < 0, "%s: %s", err, out)
	return true
}

// TestAlone: a NIC that does not serve the node, and its bridge, have no IPv6 while it is in the bridge, also after a boot. What
// routers have announced is removed, and IPv6 is turned on again when it leaves.
func TestAlone(t *testing.T) {
	n := newNode(t)
	off := func(link string) string {
		t.Helper()
		return strings.TrimSpace(n.command("ip", "netns", "exec", n.ns, "sysctl", "-n", "net.ipv6.conf."+link+".disable_ipv6"))
	}
	needed := func(why string, internal ...string) {
		t.Helper()
		var addresses []netip.Addr
		for _, a := range internal {
			addresses = append(addresses, netip.MustParseAddr(a))
		}
		got, err := n.Needed(theNIC, addresses, []netip.Addr{netip.MustParseAddr("fd00::2")})
		require.NoError(t, err)
		require.Equal(t, why, got)
	}
	const announced = "-6 address add fd09::1/64 dev nic0 mngtmpaddr valid_lft 3600 preferred_lft 1800 nodad"
	alone := func() []nic.Step {
		t.Helper()
		steps, err := n.JoinAlone(t.Context(), theNIC, false)
		require.NoError(t, err)
		return steps
	}
	joined := func() {
		t.Helper()
		require.Equal(t, "1", off(theNIC))
		require.Equal(t, "1", off(theBridge))
		for _, link := range []string{theNIC, theBridge} {
			require.Empty(t, n.ip("-n", n.ns, "-6", "address", "show", "dev", link))
		}
	}
	needed("")
	n.lines(announced)
	needed("nic0 has address fd09::1/64, and no other link has a global IPv6 address")
	n.ip("-n", n.ns, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1-peer")
	n.ip("-n", n.ns, "link", "set", "eth1", "up")
	n.ip("-n", n.ns, "link", "set", "lo", "up")
	n.lines("-6 address add fd08::1/128 dev lo nodad\n-6 address add fe80::8/64 dev eth1 nodad\n-6 address add fd00::2/64 dev eth1 nodad")
	needed("nic0 has address fd09::1/64, and no other link has a global IPv6 address") // fd00::2 is of the pod network
	n.lines("-6 address add fd08::2/64 dev eth1 nodad")
	needed("")
	needed("nic0 has address fd09::1/64, an internal address of the node", "10.9.0.1", "fd09::1")
	require.NotEmpty(t, alone())
	joined()
	require.Empty(t, alone())

	n.command("ip", "netns", "exec", n.ns, "sysctl", "-w", "net.ipv6.conf."+theNIC+".disable_ipv6=0") // as after a boot
	n.lines(announced)
	n.reboot("second")
	_, err := n.Release(t.Context())
	require.NoError(t, err)
	steps, err := n.Settle(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, steps)
	joined()
	steps, err = n.Settle(t.Context())
	require.NoError(t, err)
	require.Empty(t, steps)

	n.leave()
	require.Equal(t, "0", off(theNIC))
	n.lines("-6 address add fd09::1/64 dev nic0 nodad")
	needed("nic0 has address fd09::1/64")
	n.lines("-6 address del fd09::1/64 dev nic0")

	n.command("ip", "netns", "exec", n.ns, "sysctl", "-w", "net.ipv6.conf."+theNIC+".disable_ipv6=1") // somebody else has turned it off
	alone()
	n.leave()
	require.Equal(t, "1", off(theNIC))
}

// TestKilled: a process that moves a NIC is killed after each of its steps. The next one finishes the move, or
// undoes it, and a connection survives all of this.
func TestKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	had := n.simple()
	connection := n.connect("10.9.0.1")
	settle := func() {
		t.Helper()
		_, err := n.Settle(t.Context())
		require.NoError(t, err)
	}
	step := 1
	for ; n.killed("join", theNIC, step); step++ {
		connection.works(t) // also between two steps
		if step%2 == 0 {
			settle()
			n.joined(had)
			connection.works(t)
		}
		n.leave()
		n.left(had)
		connection.works(t)
	}
	require.Greater(t, step, 10)
	n.joined(had)
	for step = 1; n.killed("leave", theBridge, step); step++ {
		connection.works(t)
		if step%2 == 0 {
			settle()
			n.left(had)
			connection.works(t)
		}
		n.join()
		n.joined(had)
		connection.works(t)
	}
	require.Greater(t, step, 5)
	n.left(had)
}

// TestCancelled: a move that has begun is finished.
func TestCancelled(t *testing.T) {
	n := newNode(t)
	had := n.simple()
	ctx, cancel := context.WithCancel(t.Context())
	n.After(func(nic.Step) error {
		cancel()
		return nil
	})
	_, err := n.Join(ctx, theNIC, false)
	require.NoError(t, err)
	n.joined(had)
	_, err = n.Leave(ctx, theBridge, false)
	require.ErrorIs(t, err, context.Canceled, "another one does not begin")
	n.joined(had)
}

// TestFailed: a first move whose step fails is undone.
func TestFailed(t *testing.T) {
	n := newNode(t)
	had := n.simple()
	connection := n.connect("10.9.0.1")
	planned, err := n.Join(t.Context(), theNIC, true)
	require.NoError(t, err)
	failing := errors.New("the step fails")
	for i := range planned {
		taken := 0
		n.After(func(nic.Step) error {
			if taken++; taken == i+1 {
				return failing
			}
			return nil
		})
		_, err := n.Join(t.Context(), theNIC, false)
		require.ErrorIs(t, err, failing)
		n.left(had)
	}
	connection.works(t)

	n.connectSwitch(3 * time.Second)
	n.Mover = n.mover()
	require.NoError(t, n.host.VSwitchd.Stop())
	_, err = n.Join(t.Context(), theNIC, false)
	require.ErrorContains(t, err, "check that ovs-vswitchd runs")
	require.ErrorContains(t, err, "coe-bridge gateway bridge-to-nics brnic0 tries again")
	connection.works(t)
	require.NoError(t, n.host.VSwitchd.Cont())
	n.connectSwitch(0)
	n.Mover = n.mover()
	n.leave()
	n.left(had)
	connection.works(t)
}

// TestRun: a Mover that runs restores the bridge when its link is lost, and moves the NIC after a boot once it
// has addresses.
func TestRun(t *testing.T) {
	n := newNode(t)
	had := n.simple()
	n.join()
	connection := n.connect("10.9.0.1")
	stop := n.background(n.Run)
	restored := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			out, err := exec.CommandContext(t.Context(), "ip", "-n", n.ns, "route", "show", "default", "dev", theBridge).CombinedOutput()
			return err == nil && strings.Contains(string(out), "10.9.0.254")
		}, patience, 20*time.Millisecond)
		require.Eventually(t, func() bool { return n.has(theBridge) == had }, patience, 20*time.Millisecond)
	}
	lose := func() {
		t.Helper()
		require.NoError(t, n.host.VSwitchd.Kill())
		n.lines("link del brnic0")
	}
	lose()
	require.NoError(t, n.host.VSwitchd.Start(t.Context()))
	restored()
	n.joined(had)
	connection.works(t)
	n.command("ip", "netns", "exec", n.ns, "nft", "flush", "ruleset") // as firewalls do
	require.Eventually(t, func() bool {
		out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", n.ns, "nft", "list", "table", "inet", "coe-bridge-nics").CombinedOutput()
		return err == nil && strings.Contains(string(out), theNIC)
	}, patience, 20*time.Millisecond)

	_, err := n.host.VSCtl(t.Context(), "del-port", theNIC) // as Open vSwitch does with transient ports
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		out, err := n.host.VSCtl(t.Context(), "list-ports", theBridge)
		return err == nil && strings.Contains(out, theNIC)
	}, patience, 20*time.Millisecond)
	connection.works(t)

	stop()
	lose()
	n.command("ip", "netns", "exec", n.ns, "nft", "delete", "table", "inet", "coe-bridge-nics")
	n.reboot("second")
	n.Mover = n.mover()
	released, err := n.Release(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{theNIC}, released)
	out, err := n.host.VSCtl(t.Context(), "list-ports", theBridge)
	require.NoError(t, err)
	require.Empty(t, out)
	n.background(n.Run)
	require.NoError(t, n.host.VSwitchd.Start(t.Context()))
	n.lines(`
		address add 10.9.0.1/24 dev nic0
		-6 address add fd09::1/64 dev nic0
		route add default via 10.9.0.254 dev nic0`) // the network manager
	require.Eventually(t, func() bool {
		out := n.ip("-n", n.ns, "address", "show", "dev", theNIC)
		return !strings.Contains(out, "inet ")
	}, patience, 20*time.Millisecond)
	connection.works(t)
	released, err = n.Release(t.Context())
	require.NoError(t, err)
	require.Empty(t, released, "it has joined since the boot")

	require.NoError(t, n.Cleanup(t.Context()))
	require.NoError(t, exec.Command("ip", "-n", n.ns, "link", "show", theNIC).Run())
	_, err = n.host.VSCtl(t.Context(), "br-exists", theBridge)
	require.Error(t, err)
	connection.works(t)
}

// TestHungMove: while another process has stopped in the middle of a move, each try ends with its context and leaves nothing.
func TestHungMove(t *testing.T) {
	n := newNode(t)
	n.simple()
	n.join()
	lock, err := os.OpenFile(filepath.Join(n.dir, "lock"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(all)
	}
	before, goroutines := files(), runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := n.Settle(ctx)
		cancel()
		require.ErrorContains(t, err, "another process moves a NIC")
	}
	require.LessOrEqual(t, files(), before+1)
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+1)
	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	_, err = n.Settle(t.Context())
	require.NoError(t, err)
}

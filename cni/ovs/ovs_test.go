package ovs_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// node is an OVN host with a Switch.
type node struct {
	t    *testing.T
	lab  *ovnhost.Lab
	host *ovnhost.Host
	*ovs.Switch
}

func newNode(t *testing.T, controller ovs.Controller) *node {
	return follow(t, ovnhost.ForTest(t, "host1"), controller)
}

// follow runs a Switch for the only host of a lab.
func follow(t *testing.T, lab *ovnhost.Lab, controller ovs.Controller) *node {
	t.Helper()
	return followWith(t, lab, ovs.Config{Controller: controller})
}

// followWith is follow with further settings.
func followWith(t *testing.T, lab *ovnhost.Lab, cfg ovs.Config) *node {
	n := &node{t: t, lab: lab, host: lab.Hosts[0]}
	var err error
	cfg.Endpoint, cfg.Timeout, cfg.Probe = n.host.OVSDB.Remote, 10*time.Second, 200*time.Millisecond
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	n.Switch, err = ovs.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return n
}

func (n *node) within() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience.Patience)
	n.t.Cleanup(cancel)
	return ctx
}

// port creates the link of port i, and returns the port.
func (n *node) port(i int) vif.Port {
	n.t.Helper()
	p := vif.Port{
		Name: fmt.Sprintf("tap%08x-00", i), Interface: fmt.Sprintf("default:web%d", i), PodUID: fmt.Sprintf("uid%d", i), MAC: fmt.Sprintf("0a:58:0a:2a:00:%02x", i),
		Addresses:  []netip.Addr{netip.AddrFrom4([4]byte{10, 42, 0, byte(i)})},
		Attachment: vif.Attachment{Network: "coe", Container: fmt.Sprintf("c%d", i), IfName: "eth0", Netns: fmt.Sprintf("/run/netns/c%d", i)},
	}
	n.link(p)
	return p
}

func (n *node) link(p vif.Port) {
	n.t.Helper()
	name := n.lab.Namespace(p.Attachment.Container)
	out, err := exec.CommandContext(n.t.Context(), "ip", "netns", "add", name).CombinedOutput()
	require.NoError(n.t, err, "%s", out)
	n.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	pod, err := netns.GetFromName(name)
	require.NoError(n.t, err)
	defer func() { _ = pod.Close() }()
	home, err := netns.GetFromName(n.lab.Namespace("host1"))
	require.NoError(n.t, err)
	defer func() { _ = home.Close() }()
	mac, err := net.ParseMAC(p.MAC)
	require.NoError(n.t, err)
	require.NoError(n.t, links.Add(n.t.Context(), links.Pair{
		Node: home, Pod: pod, Port: p.Name, Name: "eth0", MAC: mac, MTU: 1400, Addresses: []netip.Prefix{netip.PrefixFrom(p.Addresses[0], 24)},
	}))
}

func TestPorts(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	var want []vif.Port
	for i := range 10 {
		p := n.port(i)
		if i%2 == 0 {
			p.HostPorts = []vif.HostPort{
				{Address: netip.IPv4Unspecified(), Protocol: "tcp", Number: 8080, Pod: 80},
				{Address: netip.MustParseAddr("192.0.2.1"), Protocol: "udp", Number: 53, Pod: 5353},
			}
		}
		require.NoError(t, n.Add(n.within(), p))
		require.NoError(t, n.Await(n.within(), p))
		want = append(want, p)
	}
	_, err := n.host.VSCtl(t.Context(), "add-port", "br-int", "other", "--", "set", "Interface", "other", "type=internal", "external_ids:iface-id=other")
	require.NoError(t, err)
	ports, err := n.Ports(n.within())
	require.NoError(t, err)
	require.Equal(t, want, ports, "other ports are not listed")

	found, ok, err := n.Find(n.within(), vif.Attachment{Container: "c3", IfName: "eth0"})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want[3], found)

	_, ok, err = n.Find(n.within(), vif.Attachment{Container: "c3", IfName: "net1"})
	require.NoError(t, err)
	require.False(t, ok)

	require.Error(t, n.Add(n.within(), want[3]), "a port of that name exists")
	require.NoError(t, n.Delete(n.within(), want[3].Name, vif.Attachment{Container: "another", IfName: "eth0"}))
	require.NoError(t, n.Check(n.within(), want[3].Name), "the port of another attachment stays")
	require.NoError(t, n.Delete(n.within(), want[3].Name, want[3].Attachment))
	require.NoError(t, n.Delete(n.within(), want[3].Name, want[3].Attachment), "again")
	require.Error(t, n.Check(n.within(), want[3].Name))
	_, ok, err = n.Port(n.within(), "other")
	require.NoError(t, err)
	require.False(t, ok, "the port of another program is not ours")
}

// A port is deleted while the switch is paused, and added again with another link of the same name after
// AwaitDeletions. A link that is created earlier is set down: when the switch continues, it gives the
// link the flags of the old one, which was down at last.
func TestSameNameAgain(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	require.NoError(t, n.Add(n.within(), p))
	require.NoError(t, n.Await(n.within(), p))
	old := n.of(p, "ofport")
	for i := range 3 {
		n.unlink(p)
		require.Eventually(t, func() bool { return n.of(p, "admin_state") == "down\n" }, patience.Patience, 5*time.Millisecond, "the switch knows")
		require.NoError(t, n.host.VSwitchd.Stop())
		require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
		released := make(chan error, 1)
		go func() { released <- n.AwaitDeletions(n.within()) }()
		require.NoError(t, n.host.VSwitchd.Cont())
		require.NoError(t, <-released)
		p.Attachment.Container = fmt.Sprintf("again%d", i)
		n.link(p)
		require.NoError(t, n.Add(n.within(), p))
		require.NoError(t, n.Await(n.within(), p), "the link is up")
		next := n.of(p, "ofport")
		require.NotEqual(t, old, next, "the switch has released the old link")
		old = next
	}
}

// of reads a column of the interface of a port.
func (n *node) of(p vif.Port, column string) string {
	n.t.Helper()
	out, err := n.host.VSCtl(n.t.Context(), "get", "Interface", p.Name, column)
	require.NoError(n.t, err)
	return out
}

func (n *node) unlink(p vif.Port) {
	n.t.Helper()
	home, err := netns.GetFromName(n.lab.Namespace("host1"))
	require.NoError(n.t, err)
	defer func() { _ = home.Close() }()
	require.NoError(n.t, links.Delete(home, p.Name))
}

func TestWhatIsMissing(t *testing.T) {
	n := newNode(t, ovs.OVN)
	p := n.port(1)
	waits := func(forWhat string) {
		t.Helper()
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := n.Await(ctx, p)
			return err != nil && strings.Contains(err.Error(), forWhat)
		}, patience.Patience, 10*time.Millisecond, forWhat)
	}
	require.NoError(t, n.Add(n.within(), p))
	waits("check that interface default:web1 has a logical switch port")
	require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
	waits("the switch has no port tap00000001-00")

	n.unlink(p)
	require.NoError(t, n.Add(n.within(), p))
	waits("the switch cannot use link tap00000001-00")
	require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))

	require.NoError(t, n.host.Controller.Kill(), "it makes the bridge")
	_, err := n.host.VSCtl(t.Context(), "del-br", "br-int")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.Ready() != nil }, patience.Patience, 5*time.Millisecond)
	require.ErrorContains(t, n.Ready(), "find bridge br-int")
	require.ErrorContains(t, n.Add(n.within(), p), "the switch has no bridge br-int")
}

// Calls wait for a database that is down or hangs, and then continue.
func TestDatabaseGoes(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	require.NoError(t, n.Add(n.within(), p))
	for _, fault := range []struct{ begin, end func() error }{
		{n.host.OVSDB.Kill, func() error { return n.host.OVSDB.Start(t.Context()) }},
		{n.host.OVSDB.Stop, n.host.OVSDB.Cont},
	} {
		require.NoError(t, fault.begin())
		require.Eventually(t, func() bool { return n.Ready() != nil }, patience.Patience, 5*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := n.Ports(ctx)
		require.ErrorContains(t, err, "no connection to the switch")
		cancel()
		ports := make(chan error, 1)
		go func() {
			_, err := n.Ports(n.within())
			ports <- err
		}()
		require.NoError(t, fault.end())
		require.NoError(t, <-ports, "the waiting call succeeds")
		require.NoError(t, n.Await(n.within(), p))
		require.NoError(t, n.Ready())
	}
}

// TestDatabaseFlaps kills the database whenever the switch is ready. Ready reports each failure, and
// a waiting call succeeds in the end.
func TestDatabaseFlaps(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	require.NoError(t, n.Add(n.within(), p))
	for range 6 {
		require.Eventually(t, func() bool { return n.Ready() == nil }, patience.Patience, time.Millisecond, "it is back")
		require.NoError(t, n.host.OVSDB.Kill())
		require.Eventually(t, func() bool { return n.Ready() != nil }, patience.Patience, time.Millisecond, "it is gone")
		require.NoError(t, n.host.OVSDB.Start(t.Context()))
	}
	require.NoError(t, n.Await(n.within(), p))
}

func TestNew(t *testing.T) {
	_, err := ovs.New(ovs.Config{Controller: "nobody"})
	require.ErrorContains(t, err, "want ovn or odl")
}

func TestSettings(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	settings, err := n.Settings(n.within())
	require.NoError(t, err)
	require.Equal(t, n.host.Address.String(), settings["ovn-encap-ip"])
	userspace, err := n.Userspace(n.within())
	require.NoError(t, err)
	require.True(t, userspace)
}

// TestReadyAtTheEndOfAConnection: who asks when the connection ends gets an answer, and does not wait for a connection that is gone.
func TestReadyAtTheEndOfAConnection(t *testing.T) {
	n := newNode(t, ovs.OVN)
	for range 10 {
		require.Eventually(t, func() bool { return n.Ready() == nil }, patience.Patience, 10*time.Millisecond)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			var asking sync.WaitGroup
			for range 8 {
				asking.Go(func() {
					for n.Ready() == nil { // it asks all the time
					}
				})
			}
			asking.Wait()
		}()
		require.NoError(t, n.host.OVSDB.Kill())
		select {
		case <-answered:
		case <-time.After(patience.Patience):
			require.Fail(t, "Ready has not answered")
		}
		require.NoError(t, n.host.OVSDB.Start(t.Context()))
	}
}

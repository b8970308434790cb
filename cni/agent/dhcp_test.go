package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/dhcpclient"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// withRoute is what the record of a pod with oneAddress has besides, and withDHCP that of a pod that also asks for DHCP.
const (
	withRoute = oneAddress + `,"route":[{"destination":"0.0.0.0/0","next-hop":"10.42.0.1"}]`
	withDHCP  = withRoute + `,"dhcp":{"lease-time":%d,"dns-server":["10.96.0.10","fd00::a"]}`
)

// TestDHCP: a DHCP client configures the link of a pod as ADD did, on a switch that OpenDaylight programs. It renews its lease, and it
// is answered after a restart of the agent. It gets new values of the bridge, and no answer when the pod asks for DHCP no more.
func TestDHCP(t *testing.T) {
	t.Parallel()
	w := &world{t: t, lab: ovnhost.SwitchesForTest(t, "host1")}
	bridge := newFakeBridge(t, withRoute)
	w.openDaylight("host1")
	first := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	w.manage(first)
	stop := first.keepDHCP()
	_, err := w.lab.Hosts[0].VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	bridge.say <- false
	await(t, "OpenDaylight is there", func() error { return w.notReady(first) })
	bridge.follow(w)
	p := w.sandbox("host1", "web", "front", "u1", "sandbox1")
	require.Nil(t, first.call(t.Context(), call.Add, p))
	before, client := p.look(), p.dhcpClient()
	require.Error(t, client.run("-n", "-q", "-t", "2", "-T", "1"), "the pod does not ask for DHCP")

	bridge.change(fmt.Sprintf(withDHCP, 5400))
	client.awaitLease(map[string]string{
		"ip": "10.42.0.2", "mask": "24", "router": "10.42.0.1", "dns": "10.96.0.10", "mtu": fmt.Sprint(before.MTU), "lease": "5400",
		"serverid": "10.42.0.1", "staticroutes": "0.0.0.0/0 10.42.0.1",
	})
	after := p.look()
	require.Equal(t, before.Addresses, after.Addresses)
	require.Equal(t, before.Routes, after.Routes)
	client.renews()
	require.Nil(t, first.call(t.Context(), call.Add, p), "again")

	stop()
	require.Error(t, client.run("-n", "-q", "-t", "2", "-T", "1"), "no agent")
	second := w.inProcess("host1", bridge.url, ovs.OpenDaylight)
	second.keepDHCP()
	client.awaitLease(map[string]string{"ip": "10.42.0.2", "lease": "5400"})
	require.NoError(t, client.run("-n", "-q", "-r", "10.42.0.9"), "another address is refused, and the client begins again")
	require.Equal(t, "10.42.0.2", client.got()["ip"])

	bridge.change(fmt.Sprintf(withDHCP, 60))
	client.awaitLease(map[string]string{"lease": "60"})
	bridge.change(withRoute)
	await(t, "the pod asks for DHCP no more", func() error {
		if client.run("-n", "-q", "-t", "2", "-T", "1") == nil {
			return errors.New("it gets an answer")
		}
		return nil
	})
	bridge.change(fmt.Sprintf(withDHCP, 60))
	client.awaitLease(map[string]string{"lease": "60"})
	require.Nil(t, second.call(t.Context(), call.Del, p))
	require.NoError(t, w.left("host1", second.dir).is(0))
	require.Nil(t, second.call(t.Context(), call.Add, p))
	require.NoError(t, client.run("-n", "-q"), "after the end of ADD at the latest")
}

// change changes the record of the pod.
func (b *fakeBridge) change(addresses string) { b.addresses.Store(&addresses) }

// keepDHCP runs KeepDHCP until stop is called or the test ends.
func (a *inProcess) keepDHCP() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.KeepDHCP(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	a.w.t.Cleanup(stop)
	return stop
}

// look reads the pod's link.
func (s *sandbox) look() links.Link {
	s.w.t.Helper()
	ns := s.w.node(s.container)
	defer func() { require.NoError(s.w.t, ns.Close()) }()
	is, err := links.Look(ns, "eth0")
	require.NoError(s.w.t, err)
	return is
}

// dhcpClient is a DHCP client on the link of a pod.
type dhcpClient struct {
	*dhcpclient.Client
	pod *sandbox
}

func (s *sandbox) dhcpClient() *dhcpClient {
	client, err := dhcpclient.New(s.w.lab, s.inLab(), s.w.t.TempDir())
	require.NoError(s.w.t, err)
	return &dhcpClient{client, s}
}

// run removes the addresses of the link, and asks for an address.
func (c *dhcpClient) run(options ...string) error { return c.Run(c.pod.w.t.Context(), options...) }

// renews runs the client until it has renewed its lease. Nobody answers ARP requests for the gateway.
func (c *dhcpClient) renews() {
	t := c.pod.w.t
	t.Helper()
	_, err := c.pod.w.lab.Exec(t.Context(), c.pod.inLab(), "ip", "neigh", "replace", "10.42.0.1", "lladdr", "0a:58:0a:2a:00:01", "dev", "eth0")
	require.NoError(t, err)
	require.NoError(t, c.Renew(t.Context()))
}

// got returns what the client got last.
func (c *dhcpClient) got() map[string]string {
	got, err := c.Got()
	require.NoError(c.pod.w.t, err)
	return got
}

// awaitLease waits until the client gets these values.
func (c *dhcpClient) awaitLease(want map[string]string) {
	c.pod.w.t.Helper()
	await(c.pod.w.t, fmt.Sprint("a lease with ", want), func() error {
		if err := c.run("-n", "-q", "-t", "2", "-T", "1"); err != nil {
			return err
		}
		got := c.got()
		for name, value := range want {
			if got[name] != value {
				return fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		return nil
	})
}

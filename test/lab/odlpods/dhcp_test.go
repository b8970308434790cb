package odlpods_test

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/dhcpclient"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// withDNS is the pool of all pods, with an address of DNS.
const withDNS = "dhcp_allocation_pool:network:\n- network-id: default\n  allocation-pool: [{subnet: 10.42.0.0/16, dns-servers: [10.96.0.10]}]\n"

// testDHCP tests that a pod of each host that loses its IPv4 configuration gets it back by DHCP, and then reaches pods, its node, a service and
// what is outside as before. It renews its lease, for which it asks the server at the address of its gateway. A changed pool
// changes the next lease, and no agent means no answer.
func (w *world) testDHCP() {
	ctx := w.t.Context()
	for _, p := range []odlpods.Plugged{w.pods[0], w.pods[4]} {
		client := w.dhcpClient(p)
		before := w.routes(p)
		address := p.Result.IPs[0]
		length, _ := address.Address.Mask.Size()
		client.leases(map[string]string{
			"ip": p.Address.String(), "mask": fmt.Sprint(length), "router": address.Gateway.String(), "serverid": address.Gateway.String(),
			"mtu": fmt.Sprint(p.Result.Interfaces[1].Mtu), "lease": "3600", "dns": "",
		})
		require.Equal(w.t, before, w.routes(p))
		w.worksByDHCP(p)

		require.NoError(w.t, client.Renew(ctx))
		require.Equal(w.t, before, w.routes(p))
		w.worksByDHCP(p)
	}
	p := w.pods[0]
	client := w.dhcpClient(p)
	require.NoError(w.t, w.lab.Apply(ctx, "pool", withDNS))
	client.leases(map[string]string{"ip": p.Address.String(), "dns": "10.96.0.10"})
	require.NoError(w.t, w.lab.Agents[p.Host].Kill())
	require.Error(w.t, client.Run(ctx, once...), "no agent")
	require.NoError(w.t, w.lab.Agents[p.Host].Start(ctx))
	client.leases(map[string]string{"ip": p.Address.String(), "dns": "10.96.0.10"})
	require.NoError(w.t, w.lab.AwaitNetwork(ctx))
	w.worksByDHCP(p)
}

// once makes a DHCP client ask for a short time, and end.
var once = []string{"-n", "-q", "-t", "2", "-T", "1"}

// dhcpClient is a DHCP client of a pod.
type dhcpClient struct {
	*dhcpclient.Client
	w          *world
	pod        odlpods.Plugged
	neighbours string // permanent ones, which the agent has set
}

func (w *world) dhcpClient(p odlpods.Plugged) *dhcpClient {
	w.t.Helper()
	client, err := dhcpclient.New(w.lab.Lab, p.String(), w.t.TempDir())
	require.NoError(w.t, err)
	neighbours, err := w.lab.Exec(w.t.Context(), p.String(), "ip", "-4", "neigh", "show", "dev", "eth0", "nud", "permanent")
	require.NoError(w.t, err)
	require.NotEmpty(w.t, neighbours)
	return &dhcpClient{client, w, p, neighbours}
}

// leases waits until the client gets these values. It sets the permanent neighbours again, which the kernel removes with the last address:
// beside the userspace datapath, the kernel of the node answers ARP requests for them too, on the port of the pod.
func (c *dhcpClient) leases(want map[string]string) {
	t := c.w.t
	t.Helper()
	require.NoError(t, odlpods.Await(t.Context(), func(ctx context.Context) error {
		if err := c.Run(ctx, once...); err != nil {
			return err
		}
		got, err := c.Got()
		for name, value := range want {
			if err == nil && got[name] != value {
				err = fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		return err
	}))
	for line := range strings.Lines(c.neighbours) {
		fields := strings.Fields(line) // ADDRESS lladdr MAC PERMANENT
		_, err := c.w.lab.Exec(t.Context(), c.pod.String(), "ip", "neigh", "replace", fields[0], "lladdr", fields[2], "dev", "eth0", "nud", "permanent")
		require.NoError(t, err)
	}
}

// protocol matches the protocol of a route.
var protocol = regexp.MustCompile(` proto \S+`)

// routes returns the IPv4 addresses and routes of a pod, without the protocols of the routes.
func (w *world) routes(p odlpods.Plugged) (all []string) {
	w.t.Helper()
	for _, argv := range [][]string{{"ip", "-4", "-brief", "address", "show", "eth0"}, {"ip", "-4", "route"}} {
		out, err := w.lab.Exec(w.t.Context(), p.String(), argv...)
		require.NoError(w.t, err)
		for line := range strings.Lines(protocol.ReplaceAllString(out, "")) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	slices.Sort(all)
	return all
}

// worksByDHCP requires that a pod reaches all pods, its node, a service, and what is outside.
func (w *world) worksByDHCP(p odlpods.Plugged) {
	w.t.Helper()
	for _, to := range w.pods {
		w.mustPing(p.Pod, to.Address)
	}
	by, _ := w.ask(p.String(), netip.AddrPortFrom(w.lab.Host(p.Host).Address, hostPort))
	require.Equal(w.t, p.Host, by)
	w.both(p.String(), page, []string{w.pods[0].String(), w.pods[2].String()})
	by, _ = w.ask(p.String(), netip.AddrPortFrom(ovnhost.Central, podPort))
	require.Equal(w.t, ovnhost.CentralNamespace, by)
}

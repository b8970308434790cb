package ovn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// followed is a Ports that runs, with the ports that it has reported.
type followed struct {
	*ovn.Ports
	mu        sync.Mutex
	installed []string
	chassis   map[string]string
}

// follow follows the ports of a lab until the test ends or stop is called.
func follow(t *testing.T, cfg ovn.Config) (w *followed, stop func()) {
	t.Helper()
	w = &followed{}
	ports, err := ovn.NewPorts(cfg, func(port string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.installed = append(w.installed, port)
	}, func(hosts map[string]string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.chassis = hosts
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	w.Ports = ports
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ports.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return w, stop
}

func (w *followed) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.installed)
}

// awaitChassis waits until OVN has these chassis.
func (w *followed) awaitChassis(t *testing.T, want map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return maps.Equal(w.chassis, want)
	}, time.Minute, 10*time.Millisecond)
}

// await waits until the times of a port are as they should be, while all databases answer.
func (w *followed) await(t *testing.T, port string, is func(ovn.PortTimes) bool) (times ovn.PortTimes) {
	t.Helper()
	var (
		known bool
		err   error
	)
	require.Eventually(t, func() bool {
		times, known, err = w.Port(port)
		return known && err == nil && is(times)
	}, time.Minute, 10*time.Millisecond, "%s: %+v %v", port, &times, &err)
	return times
}

// TestPorts follows a pod on its way through a real OVN, with and without the southbound database.
func TestPorts(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1")
	cfg := ovn.Config{Endpoints: lab.NB.Remote, Layout: ovn.LayoutNode, Southbound: lab.SB.Remote, Probe: 50 * time.Millisecond}
	b, err := ovn.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	whole, _ := follow(t, cfg)
	northOnly, _ := follow(t, ovn.Config{Endpoints: lab.NB.Remote})

	p := livePod{"a", "block", 1, "10.1.1.2", "10.1.1.0/29", "10.1.1.1"}
	whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times == ovn.PortTimes{} })

	begun := time.Now().Add(-time.Millisecond)
	m := withGateways(podModel(p))
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(nil, m)))
	times := whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Translated != 0 })
	require.Zero(t, times.Bound)
	require.Zero(t, times.Installed)

	plugged := ovnhost.Pod{
		Host: "host1", Name: p.iface(), UID: p.uid(0), PortName: p.port(0), MAC: p.mac(0),
		Address: netip.MustParsePrefix("10.1.1.2/29"), Gateway: netip.MustParseAddr("10.1.1.1"),
	}
	require.NoError(t, lab.Plug(t.Context(), plugged))
	times = whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Installed != 0 })
	ordered := []time.Time{begun, times.Written.Time(), times.Translated.Time(), times.Bound.Time(), times.Installed.Time(), time.Now()}
	require.True(t, slices.IsSortedFunc(ordered, time.Time.Compare), "%v", ordered)
	times = northOnly.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Installed != 0 })
	require.Zero(t, times.Translated)
	require.Zero(t, times.Bound)
	require.Positive(t, times.Written)
	for _, w := range []*followed{whole, northOnly} {
		require.Eventually(t, func() bool { return slices.Equal([]string{p.iface()}, w.reported()) }, time.Minute, 10*time.Millisecond)
	}
	translated, bound, installed, known := whole.Count(func(port string) bool { return port == p.iface() })
	require.True(t, known)
	require.Equal(t, []int{1, 1, 1}, []int{translated, bound, installed})

	t.Run("a later one does not know the times", func(t *testing.T) {
		later, _ := follow(t, cfg) // it reads one database before the other
		times := later.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Written != 0 && times.Bound != 0 && times.Installed != 0 })
		require.Equal(t, ovn.PortTimes{Written: ovn.Past, Translated: ovn.Past, Bound: ovn.Past, Installed: ovn.Past}, times)
		require.True(t, times.Bound.Time().IsZero())
	})
	t.Run("times stay while a database is away", func(t *testing.T) {
		before := whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Installed != 0 })
		require.NoError(t, lab.SB.Kill())
		var err error
		require.Eventually(t, func() bool {
			_, _, err = whole.Port(p.iface())
			return err != nil
		}, patience.Patience, 10*time.Millisecond)
		require.ErrorContains(t, err, "OVN_Southbound does not answer")
		after, known, _ := whole.Port(p.iface())
		require.True(t, known)
		require.Equal(t, before, after)
		require.NoError(t, lab.SB.Start(t.Context()))
		require.Equal(t, before, whole.await(t, p.iface(), func(ovn.PortTimes) bool { return true }))
	})
	t.Run("a pod that is unplugged and plugged again", func(t *testing.T) {
		require.NoError(t, lab.Unplug(t.Context(), plugged))
		unplugged := whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Bound == 0 && times.Installed == 0 })
		require.NoError(t, lab.Plug(t.Context(), plugged))
		again := whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times.Installed != 0 })
		require.Equal(t, unplugged.Translated, again.Translated)
		require.Positive(t, again.Bound)
		require.Equal(t, []string{p.iface()}, whole.reported(), "the pod is not new")
	})
	t.Run("a deleted pod", func(t *testing.T) {
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(m, nil)))
		whole.await(t, p.iface(), func(times ovn.PortTimes) bool { return times == ovn.PortTimes{} })
	})
}

// podModel returns the model of one pod.
func podModel(p livePod) netvirt.Model {
	elan := netvirt.ELANName(netip.AddrFrom4([4]byte{192, 168, 0, byte(p.host)}), p.ns)
	prefix, gateway, address := netip.MustParsePrefix(p.prefix), netip.MustParseAddr(p.gateway), netip.MustParseAddr(p.address)
	m := netvirt.Model{}
	m.Add(
		netvirt.VPNInstance{Name: p.ns, Namespace: p.ns, RouteDistinguisher: "100:2"},
		netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		netvirt.Subnet{ELAN: elan, VPN: p.ns, Prefix: prefix, Gateway: gateway},
		netvirt.Interface{Name: p.iface(), Namespace: p.ns, Pod: p.name, PodUID: p.uid(0), UID: p.uid(0), ParentInterface: p.port(0)},
		netvirt.ELANInterface{Name: p.iface(), Namespace: p.ns, ELAN: elan, Chassis: fmt.Sprintf("host%d", p.host)},
		netvirt.MACEntry{Interface: p.iface(), Namespace: p.ns, MAC: p.mac(0).String(), Address: address},
		netvirt.VPNInterface{Name: p.iface(), Namespace: p.ns, VPN: p.ns},
		netvirt.Adjacency{
			Interface: p.iface(), Namespace: p.ns, Address: address, MAC: p.mac(0).String(), ELAN: elan, Network: prefix, Gateway: gateway,
		},
	)
	return m
}

// TestChassisOfOVN: the chassis of a real OVN are reported with the names of their hosts, when they change, and after the database was away.
func TestChassisOfOVN(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1")
	w, _ := follow(t, ovn.Config{Endpoints: lab.NB.Remote, Southbound: lab.SB.Remote, Probe: 50 * time.Millisecond})
	w.awaitChassis(t, map[string]string{"host1": "host1"})
	_, err := lab.SBCtl(t.Context(), "chassis-add", "other", "geneve", "172.31.99.200")
	require.NoError(t, err)
	w.awaitChassis(t, map[string]string{"host1": "host1", "other": ""})
	require.NoError(t, lab.SB.Kill())
	require.NoError(t, lab.SB.Start(t.Context()))
	_, err = lab.SBCtl(t.Context(), "chassis-del", "other")
	require.NoError(t, err)
	w.awaitChassis(t, map[string]string{"host1": "host1"})
}

// TestServers: each member of a cluster says which part it has.
func TestServers(t *testing.T) {
	t.Parallel()
	cluster := ovsdb.StartCluster(t)
	cfg := ovn.Config{Endpoints: cluster.Endpoints(), TLS: cluster.TLS()}
	await := func(wantConnected int, wantFailed ...string) {
		t.Helper()
		var all []ovn.Server
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var err error
			if all, err = ovn.Servers(ctx, cfg); err != nil || len(all) != 3 {
				return false
			}
			leaders, connected, indexed := 0, 0, 0
			var failed []string
			for _, s := range all {
				if s.Err != nil {
					failed = append(failed, s.Endpoint)
				}
				if s.Leader {
					leaders++
				}
				if s.Connected {
					connected++
				}
				if s.Index > 0 && s.Database == "OVN_Northbound" {
					indexed++
				}
			}
			return leaders == 1 && connected == wantConnected && indexed == wantConnected && slices.Equal(failed, wantFailed)
		}, time.Minute, 50*time.Millisecond, "%+v", &all)
	}
	await(3)
	leader := cluster.Leader(t)
	leader.Stop(t)
	await(2, leader.Endpoint())
	leader.Continue(t)
	await(3)

	single := ovsdb.Start(t)
	all, err := ovn.Servers(t.Context(), ovn.Config{Endpoints: single.Endpoint(), Southbound: single.Endpoint()})
	require.NoError(t, err)
	require.Equal(t, ovn.Server{Database: "OVN_Northbound", Endpoint: single.Endpoint(), Leader: true, Connected: true}, all[0])
	require.ErrorContains(t, all[1].Err, "the server does not have the database")
}

func TestBadEndpoints(t *testing.T) {
	for _, c := range []struct {
		cfg  ovn.Config
		want string
	}{
		{ovn.Config{Endpoints: "unix:/n", Southbound: "tcp"}, `southbound endpoint "tcp": want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT`},
		{ovn.Config{Endpoints: "unix:/n", Southbound: "ssl:192.0.2.1:6642"}, `southbound endpoint "ssl:192.0.2.1:6642": needs a certificate and its key`},
		{ovn.Config{Endpoints: "unix:", Southbound: "unix:/s"}, `northbound endpoint "unix:"`},
	} {
		_, err := ovn.NewPorts(c.cfg, nil, nil, slog.New(slog.DiscardHandler))
		_, asked := ovn.Servers(t.Context(), c.cfg)
		require.ErrorContains(t, errors.Join(err, asked), c.want)
		require.EqualError(t, asked, err.Error())
	}
}

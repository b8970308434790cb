package ovnhost

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// podA and podB are on two hosts and two switches, connected by one router.
var (
	podA = Pod{
		Host: "host1", Name: "web:a", UID: "1f0e1ac6-0000-4000-8000-00000000000a", PortName: "tapa",
		MAC:     net.HardwareAddr{0x0a, 0, 0, 0, 1, 0x0a},
		Address: netip.MustParsePrefix("10.1.0.10/24"), Gateway: netip.MustParseAddr("10.1.0.1"),
	}
	podB = Pod{
		Host: "host2", Name: "web:b", UID: "1f0e1ac6-0000-4000-8000-00000000000b", PortName: "tapb",
		MAC:     net.HardwareAddr{0x0a, 0, 0, 0, 2, 0x0a},
		Address: netip.MustParsePrefix("10.2.0.10/32"), Gateway: netip.MustParseAddr("10.2.0.1"),
	}
)

// serviceURL is the URL of the load balancer of writeRows.
const serviceURL = "http://10.96.0.10/"

// writeRows writes the rows for podA and podB into the northbound database.
func writeRows(t *testing.T, lab *Lab) {
	t.Helper()
	ctl(t, lab, "lr-add", "web")
	for _, s := range []struct {
		name, mac, gateway string
		pod                Pod
	}{
		{"sw1", "0a:00:00:00:01:01", "10.1.0.1/24", podA},
		{"sw2", "0a:00:00:00:02:01", "10.2.0.1/24", podB},
	} {
		ctl(t, lab, "ls-add", s.name, "--", "lrp-add", "web", "web-"+s.name, s.mac, s.gateway, "--",
			"lsp-add", s.name, s.name+"-web", "--", "lsp-set-type", s.name+"-web", "router", "--",
			"lsp-set-addresses", s.name+"-web", "router", "--", "lsp-set-options", s.name+"-web", "router-port=web-"+s.name)
		ctl(t, lab, "lsp-add", s.name, s.pod.Name, "--",
			"lsp-set-addresses", s.pod.Name, s.pod.MAC.String()+" "+s.pod.Address.Addr().String(), "--",
			"lsp-set-options", s.pod.Name, "requested-chassis="+s.pod.Host, "iface-id-ver="+s.pod.UID)
	}
	ctl(t, lab, "--", "lb-add", "lb", "10.96.0.10:80", "10.2.0.10:8080", "tcp", "--", "ls-lb-add", "sw1", "lb")
}

func ctl(t *testing.T, lab *Lab, args ...string) {
	t.Helper()
	_, err := lab.NBCtl(t.Context(), args...)
	require.NoError(t, err)
}

func TestPodsOnTwoHosts(t *testing.T) {
	lab, ctx := ForTest(t, "host1", "host2"), t.Context()
	writeRows(t, lab)
	require.NoError(t, lab.Plug(ctx, podA))
	require.NoError(t, lab.Plug(ctx, podB))

	require.NoError(t, lab.Ping(ctx, podA.Name, podB.Address.Addr()))
	require.NoError(t, lab.Ping(ctx, podB.Name, podA.Address.Addr()))

	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page of b") })
	require.NoError(t, lab.Serve(podB.Name, 8080, page))
	body, err := lab.HTTPGet(ctx, podA.Name, serviceURL)
	require.NoError(t, err)
	require.Equal(t, "page of b", body)

	require.NoError(t, lab.Unplug(ctx, podB))
	require.NoError(t, lab.Unplug(ctx, podB), "unplugging again is nothing")
	require.NoError(t, lab.Plug(ctx, podB), "a pod of the same names may come again")
	require.NoError(t, lab.Ping(ctx, podA.Name, podB.Address.Addr()))
}

func TestFaults(t *testing.T) {
	lab := ForTest(t, "host1")
	ctx := t.Context()
	tests := map[string]struct {
		process *Process
		answers func(context.Context) error
	}{
		"nb":         {lab.NB.Process, func(ctx context.Context) error { _, err := lab.NBCtl(ctx, "show"); return err }},
		"sb":         {lab.SB.Process, func(ctx context.Context) error { _, err := lab.SBCtl(ctx, "show"); return err }},
		"northd":     {lab.Northd, func(ctx context.Context) error { _, err := lab.NBCtl(ctx, "--wait=sb", "sync"); return err }},
		"vswitchd":   {lab.Hosts[0].VSwitchd, func(ctx context.Context) error { return probeSwitch(ctx, lab.Hosts[0]) }},
		"controller": {lab.Hosts[0].Controller, lab.Sync},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, test.process.Stop())
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			require.Error(t, test.answers(short), "a stopped process answers")
			require.NoError(t, test.process.Cont())
			require.NoError(t, test.answers(ctx))

			require.NoError(t, test.process.Kill())
			require.Error(t, test.process.Stop(), "a killed process can't be stopped")
			require.NoError(t, test.process.Start(ctx))
			require.NoError(t, test.answers(ctx))
			require.Error(t, test.process.Start(ctx), "it runs already")
			require.NoError(t, test.process.Restart(ctx))
		})
	}
}

// probeSwitch changes the configuration, and waits until the switch has applied it.
func probeSwitch(ctx context.Context, host *Host) error {
	_, err := host.VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids:probe="+rand.Text())
	return err
}

func TestWipe(t *testing.T) {
	lab := ForTest(t, "host1")
	ctl(t, lab, "ls-add", "gone")
	require.NoError(t, lab.NB.Wipe(t.Context()))
	out, err := lab.NBCtl(t.Context(), "ls-list")
	require.NoError(t, err)
	require.Empty(t, out)
	require.NoError(t, lab.Sync(t.Context()), "northd and controller have not followed")
}

func TestLaunch(t *testing.T) {
	lab := ForTest(t)
	sleep, err := lab.Launch(t.Context(), Command{
		Name: "sleep", Pod: "central", Argv: []string{"sleep", "1000"},
		Ready: func(context.Context) error { // the process exists before it is in the namespace
			list, err := members(lab.Namespace("central"))
			if err == nil && len(list) < 4 {
				err = fmt.Errorf("%d processes: want three central ones and the sleeping one", len(list))
			}
			return err
		},
	})
	require.NoError(t, err)
	list, err := members(lab.Namespace("central"))
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.NoError(t, sleep.Terminate())
	require.NoError(t, sleep.Terminate(), "ending what has ended is nothing")
	list, err = members(lab.Namespace("central"))
	require.NoError(t, err)
	require.Len(t, list, 3)
}

func TestErrorsTellTheCause(t *testing.T) {
	lab := ForTest(t, "host1")
	ctx := t.Context()

	_, err := Start(ctx, Config{Prefix: lab.prefix})
	require.ErrorContains(t, err, "a lab of this name exists")

	_, err = lab.Launch(ctx, Command{
		Name: "broken", Argv: []string{"ovsdb-server", "/nonexistent.db"},
		Ready: func(context.Context) error { return io.EOF },
	})
	require.ErrorContains(t, err, "it ended with exit status 1")
	require.ErrorContains(t, err, "/nonexistent.db", "what the process said")

	require.ErrorContains(t, lab.Plug(ctx, Pod{Host: "host9", Name: "web:a"}), "no such host")
	short, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	require.ErrorContains(t, lab.Plug(short, podA), "is there a logical switch port web:a?")
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"empty prefix":   {},
		"path as prefix": {Prefix: "../x"},
		"host of a pod":  {Prefix: "t", Hosts: []string{"ns:pod"}},
		"long host":      {Prefix: "t", Hosts: []string{"host-of-a-name-too-long"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), cfg)
			require.ErrorContains(t, err, "lower-case")
		})
	}
}

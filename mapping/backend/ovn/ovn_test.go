package ovn_test

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

var (
	_ reconcile.Backend = (*ovn.Backend)(nil)
	_ reconcile.Divided = (*ovn.Backend)(nil)
)

// tables lists the tables that the backend writes.
var tables = []string{
	"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route", "Logical_Router_Policy", "NAT", "ACL",
	"Gateway_Chassis", "Port_Group", "Address_Set", "Load_Balancer", "Load_Balancer_Group", "DHCP_Options", "Static_MAC_Binding", "Meter", "Meter_Band",
}

// open returns a backend on a server. It has the layout of most clusters, LayoutNode, unless a change names another one.
func open(t testing.TB, server *ovsdb.Server, change ...func(*ovn.Config)) *ovn.Backend {
	t.Helper()
	cfg := ovn.Config{Endpoints: server.Endpoint(), Layout: ovn.LayoutNode}
	for _, c := range change {
		c(&cfg)
	}
	b, err := ovn.New(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// byELAN changes the layout to LayoutELAN.
func byELAN(c *ovn.Config) { c.Layout = ovn.LayoutELAN }

// write writes a model, and checks that Read returns it.
func write(t testing.TB, b *ovn.Backend, want netvirt.Model) {
	t.Helper()
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
	have, err = b.Read(t.Context())
	require.NoError(t, err)
	backendtest.Agree(t, want, have)
}

// someModel returns a model with some pods, services and policies.
func someModel(b *ovn.Backend) netvirt.Model {
	w := backendtest.NewWorld(7)
	for range 30 {
		w.Step()
	}
	w.AddPods(10)
	w.Join()
	return w.ModelFor(b)
}

// TestHistory: the rows do not depend on what was there before: an empty database gets the
// same rows.
func TestHistory(t *testing.T) {
	server, fresh := ovsdb.Start(t), ovsdb.Start(t)
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := open(t, server, func(c *ovn.Config) { c.Batch = 1 + rng.IntN(20) })
		w := backendtest.NewWorld(seed)
		for range 15 {
			w.Step()
			m := w.ModelFor(b)
			write(t, b, m)
			if rng.IntN(5) > 0 {
				continue
			}
			fresh.Wipe(t)
			write(t, open(t, fresh), m)
			require.Equal(t, fresh.Dump(t, tables...), server.Dump(t, tables...))
		}
		write(t, b, netvirt.Model{})
		b.Close()
	}
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Backend { return open(t, ovsdb.Start(t)) })
}

func TestConformanceOfLayoutELAN(t *testing.T) {
	backendtest.RunWalks(t, 3, func(t *testing.T) backendtest.Backend { return open(t, ovsdb.Start(t), byELAN) })
}

// TestLayouts: a backend takes over the rows of the other layout, and makes the rows that an empty database gets.
func TestLayouts(t *testing.T) {
	server, fresh := ovsdb.Start(t), ovsdb.Start(t)
	w := backendtest.NewWorld(3)
	shared := withGateways(liveModel(false)) // pods of two namespaces share a block of their node
	for round := range 4 {
		for range 10 {
			w.Step()
		}
		w.AddPods(5)
		for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode, ovn.LayoutELAN} {
			configure := func(c *ovn.Config) { c.Layout = layout }
			b := open(t, server, configure)
			m := w.ModelFor(b)
			if round == 3 {
				if m = shared; layout == ovn.LayoutELAN {
					m = liveModel(false)
				}
			}
			write(t, b, m)
			fresh.Wipe(t)
			write(t, open(t, fresh, configure), m)
			require.Equal(t, fresh.Dump(t, tables...), server.Dump(t, tables...))
			b.Close()
		}
	}
}

func TestConformanceInSmallTransactions(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Backend {
		return open(t, ovsdb.Start(t), func(c *ovn.Config) { c.Batch, c.Epoch = 2, "17" })
	})
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		cfg  ovn.Config
		want string
	}{
		"no endpoint":    {ovn.Config{}, "want unix:PATH"},
		"unknown scheme": {ovn.Config{Endpoints: "http:localhost:80"}, "want unix:PATH"},
		"one of two":     {ovn.Config{Endpoints: "unix:/a,/b"}, `"/b"`},
		"ssl without TLS": {
			ovn.Config{Endpoints: "ssl:localhost:6641"}, "needs a certificate",
		},
		"no layout":      {ovn.Config{Endpoints: "unix:/a"}, `layout "": want elan or node`},
		"unknown layout": {ovn.Config{Endpoints: "unix:/a", Layout: "vpn"}, `layout "vpn"`},
		"epoch":          {ovn.Config{Endpoints: "unix:/a", Layout: ovn.LayoutNode, Epoch: "x"}, "want a decimal number"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ovn.New(c.cfg, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, c.want)
		})
	}
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
		_, _, err := c.cfg.Servers()
		require.ErrorContains(t, err, c.want)
	}
}

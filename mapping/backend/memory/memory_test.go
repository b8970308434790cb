package memory_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

var _ reconcile.Backend = (*memory.Backend)(nil)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Backend { return memory.New() })
}

// world returns a model with a transit, two vpn-instances with an elan-instance and a
// subnet each, and an interface with an address in the first vpn-instance.
func world() netvirt.Model {
	m := netvirt.Model{}
	m.Add(netvirt.Transit{RouteTarget: "100:1"})
	for _, ns := range []string{"a", "b"} {
		elan := netvirt.ELANName(netip.MustParseAddr("192.168.0.1"), ns)
		m.Add(
			netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
			netvirt.VPNInstance{Name: ns, Namespace: ns, RouteDistinguisher: "100:2", Transit: "100:1"},
			subnet(ns),
			netvirt.Interface{Name: ns + ":pod", Namespace: ns, Pod: "pod", PodUID: "u", ParentInterface: "tap-" + ns},
			netvirt.VPNInterface{Name: ns + ":pod", Namespace: ns, VPN: ns},
		)
	}
	m.Add(adjacency("a"))
	return m
}

func subnet(ns string) netvirt.Subnet {
	return netvirt.Subnet{
		ELAN: "192.168.0.1:" + ns, VPN: ns,
		Prefix: netip.MustParsePrefix("10.0.0.0/29"), Gateway: netip.MustParseAddr("10.0.0.1"),
	}
}

func adjacency(ns string) netvirt.Adjacency {
	s := subnet(ns)
	return netvirt.Adjacency{
		Interface: ns + ":pod", Namespace: ns, Address: netip.MustParseAddr("10.0.0.2"), MAC: "0a:58:0a:00:00:02",
		ELAN: s.ELAN, Network: s.Prefix, Gateway: s.Gateway,
	}
}

func TestRules(t *testing.T) {
	isolated := netvirt.VPNInstance{Name: "b", Namespace: "b", RouteDistinguisher: "100:2"}
	shared := isolated
	shared.Transit = "100:1"
	old := world()

	cases := map[string]struct {
		before   []netvirt.Change
		change   netvirt.Change
		rejected string // in the error; "" if the change is accepted
		stale    bool   // an error that is not a rejection
	}{
		"create": {
			change: netvirt.Change{New: netvirt.Transit{RouteTarget: "100:9"}},
		},
		"create an equal object again": {
			change: netvirt.Change{New: adjacency("a")},
		},
		"create an object that exists and differs": {
			change: netvirt.Change{New: netvirt.VPNInstance{Name: "a", Namespace: "a"}},
			stale:  true,
		},
		"update an object that differs": {
			change: netvirt.Change{Old: isolated, New: netvirt.VPNInstance{Name: "b", Namespace: "b"}},
			stale:  true,
		},
		"delete an object that differs": {
			change: netvirt.Change{Old: isolated},
			stale:  true,
		},
		"delete an object that does not exist": {
			change: netvirt.Change{Old: adjacency("b")},
		},
		"dangling reference": {
			change:   netvirt.Change{New: netvirt.VPNInterface{Name: "a:pod2", Namespace: "a", VPN: "a"}},
			rejected: "refers to interface a:pod2, which does not exist",
		},
		"delete an object that others refer to": {
			change:   netvirt.Change{Old: netvirt.Transit{RouteTarget: "100:1"}},
			rejected: "refer to it",
		},
		"same address in one domain": {
			change:   netvirt.Change{New: adjacency("b")},
			rejected: "has address 10.0.0.2 in the same routing domain",
		},
		"same address in two domains": {
			before: []netvirt.Change{{Old: shared, New: isolated}},
			change: netvirt.Change{New: adjacency("b")},
		},
		"join domains with the same address": {
			before:   []netvirt.Change{{Old: shared, New: isolated}, {New: adjacency("b")}},
			change:   netvirt.Change{Old: isolated, New: shared},
			rejected: "in the same routing domain",
		},
		"interface moves to a domain with its address": {
			before: []netvirt.Change{{Old: shared, New: isolated}, {New: adjacency("b")}},
			change: netvirt.Change{
				Old: netvirt.VPNInterface{Name: "b:pod", Namespace: "b", VPN: "b"},
				New: netvirt.VPNInterface{Name: "b:pod", Namespace: "b", VPN: "a"},
			},
			rejected: "in the same routing domain",
		},
		"same port": {
			change:   netvirt.Change{New: netvirt.Interface{Name: "a:pod2", Namespace: "a", ParentInterface: "tap-a"}},
			rejected: "port tap-a belongs to interface a:pod",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := memory.New()
			require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, old)))
			require.NoError(t, b.Write(t.Context(), c.before))
			before, err := b.Read(t.Context())
			require.NoError(t, err)

			err = b.Write(t.Context(), []netvirt.Change{c.change})
			after, readErr := b.Read(t.Context())
			require.NoError(t, readErr)
			switch {
			case c.rejected != "":
				require.ErrorIs(t, err, netvirt.ErrRejected)
				require.ErrorContains(t, err, c.rejected)
				var rejected *netvirt.RejectedError
				require.ErrorAs(t, err, &rejected)
				require.Equal(t, []netvirt.Key{c.change.Key()}, rejected.Keys)
				require.Equal(t, before, after)
			case c.stale:
				require.Error(t, err)
				require.NotErrorIs(t, err, netvirt.ErrRejected)
				require.Equal(t, before, after)
			default:
				require.NoError(t, err)
				before.Apply([]netvirt.Change{c.change})
				require.Equal(t, before, after)
			}
		})
	}
}

// TestRejectedAlone: a change that breaks a rule does not stop the others.
func TestRejectedAlone(t *testing.T) {
	b := memory.New()
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, world())))
	good := netvirt.Service{UID: "s", Namespace: "a", Name: "web"}
	err := b.Write(t.Context(), []netvirt.Change{{New: adjacency("b")}, {New: good}})
	require.ErrorIs(t, err, netvirt.ErrRejected)
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.Contains(t, have, good.Key())
}

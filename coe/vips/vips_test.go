package vips_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/coe/vips"
)

func vip(address string, port uint16) coe.VIP {
	v := coe.VIP{Address: netip.MustParseAddr(address), Port: port}
	if port != 0 {
		v.Protocol = "tcp"
	}
	return v
}

// TestHolder: which claim keeps another one from a VIP.
func TestHolder(t *testing.T) {
	claims := vips.New(records{})
	claims.BeginRound()
	for _, f := range []coe.VIPFact{
		{VIP: vip("10.96.0.1", 0), Namespace: "a"},
		{VIP: vip("192.0.2.1", 80), Namespace: "a", External: true},
		{VIP: vip("192.0.2.2", 80), Namespace: "a", External: true, Balanced: true},
		{VIP: coe.PortOnNodes("tcp", 30080), Namespace: "a", External: true},
	} {
		require.Nil(t, claims.Holder(f))
		claim(t, claims, f)
		require.Equal(t, f, claims.Claimed("a", f.VIP).VIPFact)
	}
	require.Equal(t, 1, claims.OnNodes("a"))
	for name, c := range map[string]struct {
		coe.VIPFact
		kept bool
	}{
		"a cluster address":                        {coe.VIPFact{VIP: vip("10.96.0.1", 0)}, true},
		"a port of a cluster address":              {coe.VIPFact{VIP: vip("10.96.0.1", 80), External: true}, true},
		"an external address as a cluster address": {coe.VIPFact{VIP: vip("192.0.2.1", 0)}, false},
		"a port":                              {coe.VIPFact{VIP: vip("192.0.2.1", 80), External: true}, true},
		"another port":                        {coe.VIPFact{VIP: vip("192.0.2.1", 81), External: true}, false},
		"all ports":                           {coe.VIPFact{VIP: vip("192.0.2.1", 0), External: true}, true},
		"a port that a load balancer reports": {coe.VIPFact{VIP: vip("192.0.2.1", 80), External: true, Balanced: true}, false},
		"another port of a load balancer's address":     {coe.VIPFact{VIP: vip("192.0.2.2", 81), External: true}, true},
		"the same port of two load balancers":           {coe.VIPFact{VIP: vip("192.0.2.2", 80), External: true, Balanced: true}, true},
		"two ports of one load balancer":                {coe.VIPFact{VIP: vip("192.0.2.2", 81), External: true, Balanced: true}, false},
		"a node port":                                   {coe.VIPFact{VIP: coe.PortOnNodes("tcp", 30080), External: true}, true},
		"the node port of the other protocol":           {coe.VIPFact{VIP: coe.PortOnNodes("udp", 30080), External: true}, false},
		"an address that nobody has claimed until then": {coe.VIPFact{VIP: vip("192.0.2.3", 80), External: true}, false},
	} {
		c.Namespace = "a"
		require.Nil(t, claims.Holder(c.VIPFact), "%s: its own", name)
		c.Namespace = "b"
		require.Equal(t, c.kept, claims.Holder(c.VIPFact) != nil, name)
	}
	claims.BeginRound()
	require.False(t, claims.Freed())
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.96.0.1")}, claims.ReleaseUnused("a"))
	require.True(t, claims.Freed())
	require.Empty(t, slices.Collect(claims.AllCluster()))
	require.Empty(t, slices.Collect(claims.ExternalAddresses()))
	require.Zero(t, claims.OnNodes("a"))
}

// claim makes a claim that no other one keeps from its namespace, and returns the namespaces that lose its address.
func claim(t *testing.T, claims *vips.Claims, f coe.VIPFact) []string {
	if !f.External {
		return claims.ClaimCluster(f)
	}
	holder, lost := claims.ClaimExternal(f)
	require.Nil(t, holder)
	return lost
}

// TestLost: a load balancer takes an address from namespaces that just name it, and a cluster address takes it from both. The journal
// and the store have the same claims.
func TestLost(t *testing.T) {
	j, store := records{}, state.NewStore(func(state.Changed) {}, coe.RESTCONF)
	claims := vips.New(j)
	flush := func(namespaces ...string) {
		require.NoError(t, claims.Flush(t.Context(), store))
		var has []string
		for _, ns := range []string{"a", "b", "c"} {
			for range store.View(ns).VIPs {
				has = append(has, ns)
			}
		}
		require.Equal(t, namespaces, has)
		require.Len(t, j, len(namespaces))

		again := vips.New(j)
		damaged, err := again.Load(t.Context())
		require.NoError(t, err)
		require.Empty(t, damaged)
		loaded := state.NewStore(func(state.Changed) {}, coe.RESTCONF)
		loaded.Update(again.Tell)
		for _, ns := range []string{"a", "b", "c"} {
			require.Equal(t, store.View(ns).VIPs, loaded.View(ns).VIPs)
		}
	}
	claims.BeginRound()
	a := coe.VIPFact{VIP: vip("192.0.2.1", 80), Namespace: "a", External: true}
	require.Empty(t, claim(t, claims, a))
	flush("a")
	require.Equal(t, []string{"a"}, claim(t, claims, coe.VIPFact{VIP: vip("192.0.2.1", 80), Namespace: "b", External: true, Balanced: true}))
	flush("b")
	holder, lost := claims.ClaimExternal(a)
	require.Equal(t, "b", holder.Namespace)
	require.Empty(t, lost)
	require.Equal(t, []string{"b"}, claim(t, claims, coe.VIPFact{VIP: vip("192.0.2.1", 0), Namespace: "c"}))
	flush("c")

	claims.BeginRound()
	claims.Renew(claims.Cluster(netip.MustParseAddr("192.0.2.1")))
	require.Empty(t, claims.ReleaseUnused("c"))
	claims.BeginRound()
	require.Len(t, claims.ReleaseUnused("c"), 1)
	flush()
}

// TestRecords: a record has the key of its VIP. Load removes a record that has another key or that contradicts another one, and the
// caller drops a claim whose address has another use.
func TestRecords(t *testing.T) {
	j := records{
		"10.96.0.1":        []byte(`{"address":"10.96.0.1","namespace":"a"}`),
		"192.0.2.1/tcp/80": []byte(`{"address":"192.0.2.1","protocol":"tcp","port":80,"namespace":"a","external":true}`),
		"192.0.2.1/tcp/81": []byte(`{"address":"192.0.2.1","protocol":"tcp","port":80,"namespace":"a","external":true}`),
		"192.0.2.2/tcp/80": []byte(`{"address":"192.0.2.2","protocol":"tcp","port":80,"namespace":"a"}`),
		"10.96.0.1/tcp/80": []byte(`{"address":"10.96.0.1","protocol":"tcp","port":80,"namespace":"b","external":true}`),
	}
	claims := vips.New(j)
	damaged, err := claims.Load(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, errors.Join(damaged...), "it is not a record of 192.0.2.1/tcp/81")
	require.ErrorContains(t, errors.Join(damaged...), "do not fit")
	require.ErrorContains(t, errors.Join(damaged...), "another record has its address")
	require.Len(t, damaged, 3)
	store := state.NewStore(func(state.Changed) {}, coe.RESTCONF)
	require.NoError(t, claims.Flush(t.Context(), store))
	require.Equal(t, []string{"10.96.0.1", "192.0.2.1/tcp/80"}, slices.Sorted(maps.Keys(j)))
	for key := range j {
		require.Contains(t, []string{vips.Record(vip("10.96.0.1", 0)), vips.Record(vip("192.0.2.1", 80))}, key)
	}
	claims.Drop(claims.Cluster(netip.MustParseAddr("10.96.0.1")))
	require.NoError(t, claims.Flush(t.Context(), store))
	require.Equal(t, []string{"192.0.2.1/tcp/80"}, slices.Sorted(maps.Keys(j)))
}

// records is a Journal in memory.
type records map[string][]byte

func (r records) Load(context.Context) (map[string][]byte, error) { return maps.Clone(r), nil }
func (r records) MaxOps() int                                     { return 100 }

func (r records) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	maps.Copy(r, puts)
	for _, key := range deletes {
		delete(r, key)
	}
	return nil
}

package vips_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
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
	claims := vips.New()
	for _, f := range []coe.VIPFact{
		{VIP: vip("10.96.0.1", 0), Namespace: "a"},
		{VIP: vip("192.0.2.1", 80), Namespace: "a", External: true},
		{VIP: vip("192.0.2.2", 80), Namespace: "a", External: true, Balanced: true},
		{VIP: coe.PortOnNodes("tcp", 30080), Namespace: "a", External: true},
	} {
		require.Nil(t, claims.Holder(f))
		claims.Add(f, 1)
		require.Equal(t, f, claims.Claimed("a", f.VIP).VIPFact)
	}
	require.Equal(t, 1, claims.OnNodes("a"))
	require.True(t, claims.Balanced(netip.MustParseAddr("192.0.2.2"), "a"))
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
	for _, c := range slices.Collect(claims.AllOf("a")) {
		claims.Drop(c)
	}
	require.Empty(t, slices.Collect(claims.All()))
	require.Zero(t, claims.OnNodes("a"))
}

// TestRecords: a record has the key of its VIP.
func TestRecords(t *testing.T) {
	for key, f := range map[string]coe.VIPFact{
		"10.96.0.1":        {VIP: vip("10.96.0.1", 0), Namespace: "a"},
		"192.0.2.1/tcp/80": {VIP: vip("192.0.2.1", 80), Namespace: "a", External: true},
	} {
		require.Equal(t, key, vips.Record(f.VIP))
		value, err := json.Marshal(f)
		require.NoError(t, err)
		decoded, err := vips.Decode(key, value)
		require.NoError(t, err)
		require.Equal(t, f, decoded)
		_, err = vips.Decode(key+"1", value)
		require.Error(t, err)
	}
	_, err := vips.Decode("192.0.2.1/tcp/80", []byte(`{"address":"192.0.2.1","protocol":"tcp","port":80,"namespace":"a"}`))
	require.ErrorContains(t, err, "do not fit")
}

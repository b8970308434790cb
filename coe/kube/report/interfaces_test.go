package report

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestAnnotationOfLeases(t *testing.T) {
	four := coe.LeasedAddress{
		Address: netip.MustParseAddr("10.11.0.3"), Network: netip.MustParsePrefix("10.11.0.0/29"), Gateway: netip.MustParseAddr("10.11.0.1"),
	}
	six := coe.LeasedAddress{
		Address: netip.MustParseAddr("fd00::3"), Network: netip.MustParsePrefix("fd00::/120"), Gateway: netip.MustParseAddr("fd00::1"),
	}
	lease := func(name string, primary bool, released int64, addresses ...coe.LeasedAddress) *coe.Lease {
		return &coe.Lease{
			Namespace: "shop", Name: name, Primary: primary, Released: released, Addresses: addresses,
			Node: netip.MustParseAddr("192.168.33.12"), MAC: "0a:58:0a:0b:00:03",
		}
	}
	cases := map[string]struct {
		leases []*coe.Lease
		mtu    int
		want   string
	}{
		"none":     {},
		"released": {leases: []*coe.Lease{lease("shop:web", true, 1, four)}},
		"one": {
			leases: []*coe.Lease{lease("shop:web", true, 0, four)},
			want: `[{"name":"shop:web","network":"192.168.33.12:shop","ips":["10.11.0.3/29"],"mac":"0a:58:0a:0b:00:03",` +
				`"gateways":["10.11.0.1"],"default":true}]`,
		},
		"two families, two interfaces, MTU": {
			leases: []*coe.Lease{lease("shop:web", true, 0, four, six), lease("shop:web:u2", false, 0, four)},
			mtu:    1400,
			want: `[{"name":"shop:web","network":"192.168.33.12:shop","ips":["10.11.0.3/29","fd00::3/120"],"mac":"0a:58:0a:0b:00:03",` +
				`"gateways":["10.11.0.1","fd00::1"],"mtu":1400,"default":true},` +
				`{"name":"shop:web:u2","network":"192.168.33.12:shop","ips":["10.11.0.3/29"],"mac":"0a:58:0a:0b:00:03",` +
				`"gateways":["10.11.0.1"],"mtu":1400}]`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, Encode(interfaces(c.leases, c.mtu)))
		})
	}
}

// Decoding an annotation returns the encoded interfaces.
func FuzzEncode(f *testing.F) {
	f.Add("shop:web", "192.168.33.12:shop", "0a:58:0a:0b:00:03", []byte{10, 11, 0, 3}, uint8(29), 1400, true)
	f.Add("", "", "", []byte{}, uint8(0), 0, false)
	f.Fuzz(func(t *testing.T, name, network, mac string, ip []byte, bits uint8, mtu int, gateway bool) {
		i := Interface{Name: clean(name), Network: clean(network), MAC: clean(mac), MTU: mtu, Default: gateway, IPs: []netip.Prefix{}}
		if a, ok := netip.AddrFromSlice(ip); ok {
			i.IPs = append(i.IPs, netip.PrefixFrom(a, int(bits)%(a.BitLen()+1)))
			i.Gateways = append(i.Gateways, a)
		}
		want := []Interface{i}
		var got []Interface
		require.NoError(t, json.Unmarshal([]byte(Encode(want)), &got))
		require.Equal(t, want, got)
		require.Equal(t, Encode(want), Encode(got))
	})
}

// clean makes text valid UTF-8, as all names are.
func clean(s string) string { return string([]rune(s)) }

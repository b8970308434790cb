package physical_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/physical"
)

func TestParse(t *testing.T) {
	p, err := physical.Parse("machines=plant.a,vlan=100,subnet=fd50::1/64,subnet=10.50.0.9/24")
	require.NoError(t, err)
	require.Equal(t, physical.Network{
		Namespace: "machines", Name: "plant.a", VLAN: 100,
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.50.0.0/24"), netip.MustParsePrefix("fd50::/64")},
	}, p)
	require.Equal(t, "10.50.0.0/24", p.Subnet(netip.MustParseAddr("10.50.0.7")).String())
	require.False(t, p.Subnet(netip.MustParseAddr("10.51.0.7")).IsValid())
	kind, id := p.Segment()
	require.Equal(t, "VLAN", kind)
	require.EqualValues(t, 100, id)

	p, err = physical.Parse("machines=plant,subnet=fd50::/64")
	require.NoError(t, err)
	kind, id = p.Segment()
	require.Equal(t, "FLAT", kind)
	require.Zero(t, id)
	require.False(t, p.Subnet(netip.MustParseAddr("10.50.0.7")).IsValid())
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"plant,subnet=10.50.0.0/24":                            "want NAMESPACE=NETWORK",
		"=plant,subnet=10.50.0.0/24":                           "want NAMESPACE=NETWORK",
		"a:b=plant,subnet=10.50.0.0/24":                        `namespace: "a:b" contains a colon`,
		strings.Repeat("a", 64) + "=plant,subnet=10.50.0.0/24": "has 64 characters; want at most 63",
		"a=,subnet=10.50.0.0/24":                               "want a name",
		"a=pl:ant,subnet=10.50.0.0/24":                         "want a name",
		"a=plant":                                              "name the subnet",
		"a=plant,vlan=0,subnet=10.50.0.0/24":                   "want a number from 1 to 4094",
		"a=plant,vlan=4095,subnet=10.50.0.0/24":                "want a number from 1 to 4094",
		"a=plant,vlan=1,vlan=2,subnet=10.50.0.0/24":            "want vlan=ID once",
		"a=plant,subnet=10.50.0.0":                             "want a prefix",
		"a=plant,subnet=10.50.0.1/32":                          "want a prefix",
		"a=plant,subnet=10.50.0.0/24,subnet=10.51.0.0/24":      "one of each family",
		"a=plant,subnet=10.50.0.0/24,vlam=7":                   "want vlan=ID once",
		"a=plant,vlan=7,subnet=10.60.0.0/24,subnet=fd60::/64,": "",
	} {
		_, err := physical.Parse(text)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
	for _, c := range []struct{ second, want string }{
		{"a=other,subnet=10.60.0.0/24", "namespace a has two physical networks, plant, VLAN 7 and other"},
		{"b=plant,vlan=7,subnet=10.60.0.0/24", "the namespaces a and b have one physical network, plant, VLAN 7"},
		{"b=plant,vlan=8,subnet=10.50.0.128/25", "overlap: 10.50.0.0/24 and 10.50.0.128/25"},
		{"b=plant,subnet=10.60.0.0/24", ""},
	} {
		var all physical.Networks
		for i, text := range []string{"a=plant,vlan=7,subnet=10.50.0.0/24", c.second} {
			p, err := physical.Parse(text)
			require.NoError(t, err)
			switch err := all.Add(p); {
			case i == 1 && c.want != "":
				require.ErrorContains(t, err, c.want)
			default:
				require.NoError(t, err)
			}
		}
		require.Equal(t, "plant", all.ForNamespace("a").Name)
		require.Nil(t, all.ForNamespace("c"))
	}
}

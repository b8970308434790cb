package dhcppool_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func TestParse(t *testing.T) {
	withDNS := pool("default", "10.11.0.0/16", "", "", "10.11.0.1")
	withDNS.DNS = []netip.Addr{addr("10.11.0.1"), addr("1.1.1.1")}
	withDHCP := pool("default", "10.11.0.0/16", "", "", "")
	withDHCP.DHCP = true
	for text, want := range map[string]dhcppool.Pool{
		"10.11.0.0/16,dhcp":            withDHCP,
		"10.11.0.0/16":                 pool("default", "10.11.0.0/16", "", "", ""),
		"10.11.3.4/16":                 pool("default", "10.11.0.0/16", "", "", ""),
		"services=10.96.0.0/24":        pool("services", "10.96.0.0/24", "", "", ""),
		"192.168.33.12=10.11.2.0/24":   pool("192.168.33.12", "10.11.2.0/24", "", "", ""),
		"192.168.33.12:a=10.11.2.0/24": pool("192.168.33.12:a", "10.11.2.0/24", "", "", ""),
		"fd00::12=fd01::/64":           pool("fd00::12", "fd01::/64", "", "", ""),
		"10.0.0.0/24,from=10.0.0.9":    pool("default", "10.0.0.0/24", "10.0.0.9", "", ""),
		"a=10.0.0.0/24,to=10.0.0.9":    pool("a", "10.0.0.0/24", "", "10.0.0.9", ""),
		"default=fd00::/64,gateway=fd00::fe,from=fd00::10,to=fd00::20":     pool("default", "fd00::/64", "fd00::10", "fd00::20", "fd00::fe"),
		"default=10.11.0.0/16,dns=10.11.0.1,gateway=10.11.0.1,dns=1.1.1.1": withDNS,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := dhcppool.Parse(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
			again, err := dhcppool.Parse(got.String())
			require.NoError(t, err)
			require.Equal(t, got, again, got.String())
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            `parse pool "": "" is not a subnet; write [NETWORK=]SUBNET`,
		"default":                     `"default" is not a subnet`,
		"10.0.0.0":                    `"10.0.0.0" is not a subnet`,
		"10.0.0.0/33":                 `"10.0.0.0/33" is not a subnet`,
		"a=b=10.0.0.0/24":             `"b=10.0.0.0/24" is not a subnet`,
		"=10.0.0.0/24":                "network-id is empty",
		"224.0.0.0/24":                "unicast",
		"10.0.0.0/24,":                `"" is not an option`,
		"10.0.0.0/24,10.0.1.0/24":     `"10.0.1.0/24" is not an option; write gateway=ADDR`,
		"10.0.0.0/24,gw=10.0.0.1":     `"gw=10.0.0.1" is not an option`,
		"10.0.0.0/24,gateway=":        `gateway: "" is not an address`,
		"10.0.0.0/24,gateway=x":       `gateway: "x" is not an address`,
		"10.0.0.0/24,dns=1.1.1.1;2":   `dns: "1.1.1.1;2" is not an address`,
		"fd00::/64,dns=fe80::1%eth0":  `dns: "fe80::1%eth0" is not an address`,
		"10.0.0.0/24,to=10.0.0.9,to=": `to: "" is not an address`,
		"10.0.0.0/24,from=10.0.0.9,from=10.0.0.8": "from is set twice",
		"10.0.0.0/24,gateway=10.0.1.1":            `gateway 10.0.1.1 lies outside the subnet`,
		"10.0.0.0/24,from=10.0.0.9,to=10.0.0.8":   "above allocate-to",
		"10.0.0.0/32":                             "leaves no address",
		"10.0.0.0/24,dns=fd00::1":                 "another address family",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := dhcppool.Parse(text)
			require.ErrorContains(t, err, want)
		})
	}
}

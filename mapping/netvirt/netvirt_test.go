package netvirt_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

func TestELANName(t *testing.T) {
	for _, node := range []string{"192.168.33.12", "fd00::12"} {
		addr := netip.MustParseAddr(node)
		name := netvirt.ELANName(addr, "default")
		require.Equal(t, node+":default", name)
		gotNode, gotNamespace, err := netvirt.ParseELANName(name)
		require.NoError(t, err)
		require.Equal(t, addr, gotNode)
		require.Equal(t, "default", gotNamespace)
	}
	for _, bad := range []string{"", "default", "node:default"} {
		_, _, err := netvirt.ParseELANName(bad)
		require.ErrorContains(t, err, "elan-instance name", bad)
	}
}

func TestVPNName(t *testing.T) {
	require.Equal(t, "default", netvirt.VPNName("default"))
	forty := strings.Repeat("a", 40)
	require.Equal(t, forty, netvirt.VPNName(forty))
	long := strings.Repeat("a", 63)
	require.Len(t, netvirt.VPNName(long), 40)
	require.Equal(t, "aaaaaaaaaaaaa:", netvirt.VPNName(long)[:14])
	require.NotEqual(t, netvirt.VPNName(long), netvirt.VPNName(long[:62]+"b"), "the hash covers the whole name")
	for _, name := range netvirt.VPNNames(long) {
		require.NotEqual(t, netvirt.VPNName(long), netvirt.VPNName(name[:31]+"-"+name[32:]), "no namespace has the name of another")
		require.True(t, netvirt.MayName(name, long))
		require.False(t, netvirt.MayName(name, long+"a"))
	}
	require.Equal(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-7d3e74a0", netvirt.VPNNames(long)[1], "the name that older releases gave")
	require.True(t, utf8.ValidString(netvirt.VPNName("a"+strings.Repeat("ü", 30))))
	require.False(t, netvirt.MayName(long, long))
	require.True(t, netvirt.MayName("default", "default"))
}

func TestInterfaceName(t *testing.T) {
	require.Equal(t, "default:busybox1", netvirt.InterfaceName("default", "busybox1", "u", true))
	require.Equal(t, "default:busybox1:u", netvirt.InterfaceName("default", "busybox1", "u", false))
	for _, uid := range []string{"", "u"} {
		ns, pod, gotUID, err := netvirt.ParseInterfaceName(netvirt.InterfaceName("default", "busybox1", uid, uid == ""))
		require.NoError(t, err)
		require.Equal(t, []string{"default", "busybox1", uid}, []string{ns, pod, gotUID})
	}
	_, _, _, err := netvirt.ParseInterfaceName("busybox1")
	require.Error(t, err)
}

func TestPortName(t *testing.T) {
	name := netvirt.PortName("default:busybox1", "8f2a6d5e-0000-4000-8000-000000000001")
	require.Regexp(t, regexp.MustCompile(`^tap[0-9a-f]{8}-[0-9a-f]{2}$`), name)
	require.Less(t, len(name), 16, "a Linux device name")
	require.NotEqual(t, name, netvirt.PortName("default:busybox1", "8f2a6d5e-0000-4000-8000-000000000002"))
}

func TestLists(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}
	require.Equal(t, addrs, netvirt.NewAddrList(addrs...).All(), "in the given order")
	endpoints := netvirt.NewEndpointList(
		netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.1:80"),
		netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("[fd00::1]:80"))
	require.Equal(t, netvirt.EndpointList("10.0.0.1:80,10.0.0.2:80,[fd00::1]:80"), endpoints, "sorted, each once")
	_, err := netvirt.ParseAddrList("10.0.0.2,x")
	require.Error(t, err)
	require.Empty(t, netvirt.AddrList("").All())
	for text, valid := range map[string]bool{"": true, "10.0.0.0/8,fd00::/64": true, "10.0.0.0/8,": false, "fd00::/64,10.0.0.0/8": false, "10.0.0.1/8": false, "x": false} {
		_, ok := netvirt.ParsePrefixList(text)
		require.Equal(t, valid, ok, text)
	}
}

// Both simpler orders would be wrong: the old elan-instance must stay until the pod has
// moved, and the old interface must release the address first.
func TestDiffOrder(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.2")
	prefix := netip.MustParsePrefix("10.0.0.0/29")
	pod := func(m netvirt.Model, name, elan string) {
		m.Add(
			netvirt.ELANInstance{Name: elan},
			netvirt.VPNInstance{Name: "default", Namespace: "default"},
			netvirt.Subnet{ELAN: elan, VPN: "default", Prefix: prefix},
			netvirt.Interface{Name: name, Namespace: "default"},
			netvirt.ELANInterface{Name: name, Namespace: "default", ELAN: elan},
			netvirt.VPNInterface{Name: name, Namespace: "default", VPN: "default"},
			netvirt.Adjacency{Interface: name, Namespace: "default", Address: addr, ELAN: elan, Network: prefix},
		)
	}
	have, want := netvirt.Model{}, netvirt.Model{}
	pod(have, "default:old", "192.168.0.1:default")
	pod(want, "default:new", "192.168.0.2:default")
	var got []string
	for _, c := range netvirt.Diff(have, want) {
		got = append(got, c.Verb()+" "+c.Key().String())
	}
	require.Equal(t, []string{
		"delete adjacency default:old 10.0.0.2",
		"delete vpn-interface default:old",
		"delete elan-interface default:old",
		"delete interface default:old",
		"create elan-instance 192.168.0.2:default",
		"create subnet 192.168.0.2:default 10.0.0.0/29",
		"create interface default:new",
		"create elan-interface default:new",
		"create vpn-interface default:new",
		"create adjacency default:new 10.0.0.2",
		"delete subnet 192.168.0.1:default 10.0.0.0/29",
		"delete elan-instance 192.168.0.1:default",
	}, got)
}

func TestKinds(t *testing.T) {
	all := netvirt.Kinds()
	require.Len(t, all, 23)
	set := netvirt.NewKindSet(all...)
	for _, k := range all {
		require.NotContains(t, k.String(), "kind-")
		require.True(t, set.Has(k))
	}
	require.False(t, netvirt.NewKindSet(netvirt.KindNode).Has(netvirt.KindService))
}

package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

func isolatedPlace() *uplink.Place {
	return &uplink.Place{
		Node: netip.MustParseAddr("192.168.33.11"), Isolated: true, Name: "node:192.168.33.11:port", MAC: "0a:58:c0:a8:21:0b",
		Address: netip.MustParseAddr("192.168.33.11"), Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00::/64")},
	}
}

// records returns the records of pods, each "namespace/pod" with its addresses.
func records(pods map[string][]string) map[string]*uplink.Record {
	all := map[string]*uplink.Record{}
	for key, addresses := range pods {
		namespace, pod, _ := strings.Cut(key, "/")
		r := &uplink.Record{Namespace: namespace, Pod: pod, Name: namespace + ":" + pod, PodUID: key}
		for _, a := range addresses {
			r.Addresses = append(r.Addresses, uplink.Address{IP: netip.MustParseAddr(a)})
		}
		all[key] = r
	}
	return all
}

// show lists the pairs with their routes.
func (w wanted) show() (all []string) {
	for _, p := range w.pairs {
		line := p.iface
		for _, r := range p.routes {
			line += " " + r.to.String()
		}
		all = append(all, line)
	}
	return all
}

// Each namespace has a pair of links if a pod has an address of a family of the node. The first of several pods with one address keeps it.
func TestNamespaces(t *testing.T) {
	pods := map[string][]string{
		"a/one": {"10.42.0.2", "fd00::2"}, "a/two": {"10.42.0.3"}, "b/same": {"10.42.0.2"}, "b/other": {"10.42.0.9"},
		"c/outside": {"192.0.2.7"}, "d/six": {"fd00::9"},
	}
	unreached := func(same string) []string {
		return []string{
			same,
			"c/outside: its address 192.0.2.7 is in no pool; if pods may have it, name its range with --pod-network",
			"d/six: it has no address of the family of the node's address 192.168.33.11",
		}
	}
	w, err := newWanted(isolatedPlace(), records(pods), nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"node:192.168.33.11:port:a 10.42.0.2/32 10.42.0.3/32", "node:192.168.33.11:port:b 10.42.0.9/32",
		"node:192.168.33.11:port:c",
	}, w.show())
	require.Equal(t, unreached("b/same: pod a/one of this node has the same address 10.42.0.2"), w.unreached)
	for _, p := range w.pairs {
		require.Less(t, len(p.link), 16)
		require.Less(t, len(p.port), 16)
		require.True(t, strings.HasPrefix(p.link, "coe-") && !strings.HasPrefix(p.port, "coe-"), "rules match only the node's end")
	}

	w, err = newWanted(isolatedPlace(), records(pods), map[netip.Addr]string{netip.MustParseAddr("10.42.0.2"): linkOf("b")})
	require.NoError(t, err)
	require.Contains(t, w.show(), "node:192.168.33.11:port:b 10.42.0.9/32 10.42.0.2/32")
	require.Equal(t, unreached("a/one: pod b/same of this node has the same address 10.42.0.2"), w.unreached)

	both := isolatedPlace()
	both.IPv6.Address = netip.MustParseAddr("fd63:6f65:6272::c0a8:210b")
	w, err = newWanted(both, records(pods), nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"node:192.168.33.11:port:a 10.42.0.2/32 fd00::2/128 10.42.0.3/32", "node:192.168.33.11:port:b 10.42.0.9/32",
		"node:192.168.33.11:port:c", "node:192.168.33.11:port:d fd00::9/128",
	}, w.show())
	require.Len(t, w.unreached, 2)
	for _, p := range w.pairs {
		has := p.link == linkOf("a") || p.link == linkOf("d")
		require.Equal(t, has, p.ipv6, "only links to pods with IPv6 addresses have IPv6")
		require.Equal(t, has, slices.Equal([]netip.Addr{both.IPv6.Address}, p.addresses))
	}

	six := isolatedPlace()
	six.Address = netip.MustParseAddr("fd00:33::11")
	w, err = newWanted(six, records(map[string][]string{"a/four": {"10.42.0.4"}, "a/one": {"10.42.0.2", "fd00::2"}, "b/four": {"10.42.0.5"}}), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"node:192.168.33.11:port:a fd00::2/128"}, w.show(), "the bridge has no port for namespace b")
	require.Equal(t, []string{
		"a/four: it has no address of the family of the node's address fd00:33::11",
		"b/four: it has no address of the family of the node's address fd00:33::11",
	}, w.unreached)
}

// An address moves between namespaces, and pods that have gone lose their route. A pair that a
// killed agent has left unfinished is finished.
func TestIsolatedLinksAndRoutes(t *testing.T) {
	for address, pod := range map[string]string{"192.168.33.11/24": "10.42.0.", "fd00:33::11/64": "fd00::"} {
		ns, run := namespace.WithShell(t)
		run("ip link set lo up; ip addr add " + address + " dev lo nodad") // a route cannot have a tentative address as source
		is := isolatedPlace()
		is.Address = netip.MustParsePrefix(address).Addr()
		n := &Node{cfg: Config{Netns: ns}}
		put := func(pods map[string][]string) wanted {
			routed, err := routedHosts(ns)
			require.NoError(t, err)
			w, err := newWanted(is, records(pods), routed)
			require.NoError(t, err)
			w.mtu = 1442
			for _, p := range w.pairs {
				if there, err := p.exists(ns); err == nil && !there {
					require.NoError(t, links.Make(n.pair(w, p)))
				}
				_, err := n.putSettings(p)
				require.NoError(t, err)
				_, err = n.putLink(t.Context(), w, p)
				require.NoError(t, err)
				_, err = putAddress(ns, p)
				require.NoError(t, err)
				changed, err := putAddress(ns, p)
				require.NoError(t, err)
				require.False(t, changed)
			}
			_, err = putRoutes(ns, w)
			require.NoError(t, err)
			changed, err := putRoutes(ns, w)
			require.NoError(t, err)
			require.False(t, changed)
			return w
		}
		routes := func() []string {
			return routesOf(run("ip -4 route show proto 206; ip -6 route show proto 206 | sed 's/ metric.*//'"))
		}
		to := func(last int, namespace string) string {
			scope := ""
			if is.Address.Is4() {
				scope = " scope link"
			}
			return fmt.Sprintf("%s%d dev %s%s src %s", pod, last, linkOf(namespace), scope, is.Address)
		}
		put(map[string][]string{"a/one": {pod + "2"}, "b/two": {pod + "3"}})
		seen := routes()
		if is.Address.Is6() {
			require.Len(t, seen, 2)
			require.Contains(t, seen[0], pod+"2 dev "+linkOf("a"))
		} else {
			require.ElementsMatch(t, []string{to(2, "a"), to(3, "b")}, seen)
		}
		require.Equal(t, is.Address.Is6(), strings.Contains(run("ip -6 addr show dev "+linkOf("a")), "fe80::"))
		require.Equal(t, "0\n", run("cat /proc/sys/net/ipv6/conf/"+linkOf("a")+"/accept_ra"))

		w := put(map[string][]string{"a/one": {pod + "3"}, "b/two": {pod + "2"}})
		require.Contains(t, strings.Join(routes(), "\n"), pod+"3 dev "+linkOf("a"))
		require.Contains(t, strings.Join(routes(), "\n"), pod+"2 dev "+linkOf("b"))
		ends, err := ownPorts(ns)
		require.NoError(t, err)
		require.Equal(t, map[string]string{portOf("a"): linkOf("a"), portOf("b"): linkOf("b")}, ends)
		for _, p := range w.pairs {
			require.NoError(t, removeLink(ns, p.port))
		}
		require.Empty(t, routes())
	}
}

package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The same as outside, routed and router for IPv6.
const (
	outside6 = "2001:db8:203::5"
	routed6  = "2001:db8:203::6"
	router6  = "fd00:31:99::1"
)

// dualWorld is two hosts and pods with addresses of both families.
func dualWorld(t *testing.T, flags ...string) *world {
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := newWorldOver(t, lab, append(flags, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--service-network", "fd00:10::/112")...)
	w.dualPools()
	w.startAgents(patient)
	w.withOutside()
	w.withOutside6()
	for host := range w.agents {
		w.who(host, host)
	}
	w.who("central", "outside")
	return w
}

// dualPools gives pods addresses of both families.
func (w *world) dualPools() {
	w.t.Helper()
	w.put("dhcp_allocation_pool:dhcp_allocation_pool/network/default", `{"network":[{"network-id":"default","allocation-pool":[
		{"subnet":"10.42.0.0/16"},{"subnet":"fd42::/64"}]}]}`)
}

// withOutside6 gives the hosts, and what is outside, IPv6 addresses.
func (w *world) withOutside6() {
	w.t.Helper()
	w.ip("central", "addr", "replace", router6+"/64", "dev", "underlay", "nodad")
	for _, to := range []string{outside6, routed6} {
		w.ip("central", "addr", "replace", to+"/128", "dev", "lo")
	}
	for host := range w.agents {
		w.ip(host, "addr", "replace", w.address6(host)+"/64", "dev", "br-phy", "nodad")
		w.ip(host, "route", "replace", "default", "via", router6)
	}
}

// address6 is the IPv6 address of a host.
func (w *world) address6(host string) string {
	text := w.address(host)
	return "fd00:31:99::" + text[strings.LastIndexByte(text, '.')+1:]
}

// addresses6 are the IPv6 addresses of pods.
type addresses6 map[*sandbox]string

// run adds a pod that runs who, and notes its IPv6 address.
func (a addresses6) run(w *world, host string, n int, namespace, name string) *sandbox {
	w.t.Helper()
	p := w.pod(host, n, namespace, name)
	a.add(w, p)
	return p
}

// add adds a pod that is known to the bridge.
func (a addresses6) add(w *world, p *sandbox) {
	w.t.Helper()
	for _, ip := range p.mustAdd().IPs {
		if address, _ := netip.AddrFromSlice(ip.Address.IP); address.Is6() && !address.Is4In6() {
			a[p] = address.String()
		}
	}
	require.NotEmpty(w.t, a[p])
	w.who(p.inLab(), p.name)
}

// TestNodeIPv6: by IPv6 nodes and pods reach each other without NAT, pods reach the outside with the address of their
// node, and nodes and pods reach every service. The agent restores what is removed.
func TestNodeIPv6(t *testing.T) {
	t.Parallel()
	w := dualWorld(t, "--node-network", "100.96.0.0/16,fd00:96::/64", "--no-masquerade", routed6+"/128")
	six, pods := addresses6{}, map[string]*sandbox{}
	for i, host := range []string{"host1", "host2"} {
		pods[host] = six.run(w, host, i, "default", "pod-"+host)
	}
	for _, host := range []string{"host1", "host2"} {
		four, _ := w.management(host)
		management := netip.MustParseAddr("fd00:96::" + four.String()[len("100.96.0."):])
		for _, to := range pods {
			w.seen(host, six[to], 8080, to.name+" "+management.String())
			w.seen(to.inLab(), management.String(), 8080, host+" "+six[to])
		}
		p := pods[host]
		w.seen(p.inLab(), w.address6(host), 8080, host+" "+six[p])
		w.seen(p.inLab(), outside6, 8080, "outside "+w.address6(host))
		for to := range pods {
			if to != host {
				w.seen(p.inLab(), w.address6(to), 8080, to+" "+w.address6(host))
			}
		}
		w.ip("central", "route", "add", six[p], "via", w.address6(host)) // as coe-bridge routes says
		w.seen("central", six[p], 8080, p.name+" "+router6)
		w.seen(p.inLab(), routed6, 8080, "outside "+six[p])
	}
	w.service(1, "fd00:10::10", six[pods["host1"]], six[pods["host2"]])
	w.service(2, "fd00:10::11", w.address6("host1"))
	w.service(3, "fd00:10::12", outside6)
	for _, host := range []string{"host1", "host2"} {
		four, _ := w.management(host)
		as := netip.MustParseAddr("fd00:96::" + four.String()[len("100.96.0."):]).Next().String()
		w.seen(host, "fd00:10::10", 80, "pod-host1 "+as, "pod-host2 "+as)
		w.seen(host, "fd00:10::12", 80, "outside "+w.address6(host))
		w.seen(pods[host].inLab(), "fd00:10::12", 80, "outside "+w.address6(host))
	}
	w.seen("host1", "fd00:10::11", 80, "host1 fd00:96::3")
	w.seen("host2", "fd00:10::11", 80, "host1 "+w.address6("host2"))
	w.seen(pods["host1"].inLab(), "fd00:10::11", 80, "host1 "+six[pods["host1"]])
	for _, nobody := range []string{"fd00:10::99", "fd42::ffff"} {
		_, err := w.ask(pods["host1"].inLab(), nobody, 80)
		require.ErrorContains(t, err, "no route to host", nobody)
	}
	out, err := w.lab.Exec(t.Context(), "host1", "sysctl", "-n", "net.ipv6.conf.br-phy.accept_ra")
	require.NoError(t, err)
	require.Equal(t, "2", strings.TrimSpace(out), "the NIC of a node that forwards still accepts router advertisements")
	w.heals6(six, pods)
	w.step("forged sources", func() { w.forged6(six, pods) })
}

// forged6: from elsewhere nothing comes to a pod or a service with the address of the node or that of a pod that reaches itself, which
// policies allow, or of another pod.
func (w *world) forged6(six addresses6, pods map[string]*sandbox) {
	const second = "fd00:31:99::1011" // of host1
	w.ip("host1", "addr", "add", second+"/64", "dev", "br-phy", "nodad")
	w.ip("central", "neigh", "replace", second, "lladdr", w.mac("host1", "br-phy"), "dev", "underlay") // its answers go to the forged address
	for _, to := range []string{six[pods["host1"]], "fd00:10::10"} {
		w.ip("central", "route", "replace", to, "via", second)
		for _, from := range []string{w.address6("host1"), "fd00:96::2", "fd69::5", six[pods["host2"]]} {
			w.ip("central", "addr", "add", from+"/128", "dev", "lo")
			w.dropsForged("host1", "ip6", from, func() {
				_, err := w.lab.Exec(w.t.Context(), "central", "ping", "-6", "-n", "-c", "2", "-i", "0.2", "-W", "1", "-I", from, to)
				require.Error(w.t, err)
			})
			w.ip("central", "addr", "del", from+"/128", "dev", "lo")
		}
	}
}

// dropsForged sends packets of a forged source until a host has dropped some meanwhile.
func (w *world) dropsForged(host, family, from string, send func()) {
	w.t.Helper()
	await(w.t, host+" drops packets from "+from, func() error {
		before := w.notReturned(host, family)
		if send(); w.notReturned(host, family) == before {
			return errors.New("none is dropped")
		}
		return nil
	})
}

// notReturned returns how many packets the chain no-return of a family (ip or ip6) has dropped.
func (w *world) notReturned(host, family string) (packets int) {
	out, err := w.lab.Exec(w.t.Context(), host, "nft", "list", "chain", family, "coe-bridge", "no-return")
	require.NoError(w.t, err)
	for line := range strings.Lines(out) {
		n := 0
		if _, counter, found := strings.Cut(line, "counter packets "); found && strings.Contains(line, " drop ") {
			_, err := fmt.Sscan(counter, &n)
			require.NoError(w.t, err)
		}
		packets += n
	}
	return packets
}

func (w *world) heals6(six addresses6, pods map[string]*sandbox) {
	far := pods["host2"]
	for _, harm := range []string{
		"nft delete table ip6 coe-bridge",
		"ip -6 route flush proto 206",
		"ip -6 addr flush dev coe0",
		"ip link set coe0 down",
		"ip link del coe0",
		"sysctl -q -w net.ipv6.conf.all.forwarding=0",
	} {
		w.step(harm, func() {
			changes := w.metric("host1", "coe_agent_node_changes_total")
			_, err := w.lab.Exec(w.t.Context(), "host1", strings.Fields(harm)...)
			require.NoError(w.t, err)
			require.Eventually(w.t, func() bool { return w.metric("host1", "coe_agent_node_changes_total") != changes }, converge, interval)
			w.seen("host1", six[far], 8080, far.name+" fd00:96::2")
			w.seen(pods["host1"].inLab(), outside6, 8080, "outside "+w.address6("host1"))
		})
	}
	w.step("the agent comes back and touches nothing", func() {
		require.NoError(w.t, w.agents["host1"].Restart(w.t.Context()))
		w.seen("host1", six[far], 8080, far.name+" fd00:96::2")
		require.Zero(w.t, w.metric("host1", "coe_agent_node_changes_total"))
	})
}

// TestIsolatedNodeIPv6: with isolated namespaces a node and its own pods reach each other by IPv6, and no others. The
// node has the same address in each namespace.
func TestIsolatedNodeIPv6(t *testing.T) {
	t.Parallel()
	w := dualWorld(t, "--isolation", "namespace")
	six := addresses6{}
	a1, b1 := six.run(w, "host1", 1, "a", "a1"), six.run(w, "host1", 2, "b", "b1")
	a2 := six.run(w, "host2", 3, "a", "a2")
	for _, p := range []*sandbox{a1, b1, a2} {
		node := "fd63:6f65:6272::" + w.address(p.host)
		w.seen(p.host, six[p], 8080, p.name+" "+netip.MustParseAddr(node).String())
		w.seen(p.inLab(), node, 8080, p.host+" "+six[p])
		w.meets(p.host, p)
	}
	w.seen(a1.inLab(), six[a2], 8080, "a2 "+six[a1])
	for _, to := range []string{six[b1], outside6, w.address6("host1"), "fd63:6f65:6272::" + w.address("host2")} {
		w.unreachable(a1.inLab(), "["+to+"]")
	}
	w.unreachable("host1", "["+six[a2]+"]")
}

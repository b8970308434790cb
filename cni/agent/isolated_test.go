package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// isolatedWorld is two hosts with isolated namespaces. The nodes forward packets, and do not
// filter by reverse path: only the agent's rules keep namespaces apart.
func isolatedWorld(t *testing.T) *world {
	lab := ovnhost.ForTest(t, "host1", "host2")
	w := newWorldOver(t, lab, "--backend", "ovn", "--ovn-nb", lab.NB.Remote, "--isolation", "namespace", "--host-ports", "8000")
	w.startAgents(patient)
	w.withOutside()
	for _, host := range []string{"host1", "host2"} {
		for _, setting := range []string{"all.rp_filter=0", "default.rp_filter=0", "all.forwarding=1"} {
			_, err := lab.Exec(t.Context(), host, "sysctl", "-q", "-w", "net.ipv4.conf."+setting)
			require.NoError(t, err)
		}
		w.who(host, host)
	}
	w.who("central", "outside")
	return w
}

// run plugs a pod in, and runs who in it.
func (w *world) run(host string, n int, namespace, name string) *sandbox {
	w.t.Helper()
	p := w.pod(host, n, namespace, name)
	p.mustAdd()
	w.who(p.inLab(), name)
	return p
}

// meets waits until a pod and a node reach each other by their own addresses.
func (w *world) meets(host string, p *sandbox) {
	w.t.Helper()
	w.seen(host, p.address.String(), 8080, p.name+" "+w.address(host))
	w.seen(p.inLab(), w.address(host), 8080, host+" "+p.address.String())
}

// unreachable fails if there is an answer within a second.
func (w *world) unreachable(from, to string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	got, err := w.lab.HTTPGet(ctx, from, "http://"+to+":8080")
	require.Error(w.t, err, "%s got %q from %s", from, got, to)
}

// dropped returns how many packets a chain of a host has dropped.
func (w *world) dropped(host, chain string) (packets int) {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), host, "nft", "list", "chain", "inet", "coe-bridge", chain)
	require.NoError(w.t, err)
	for part := range strings.SplitSeq(out, "counter packets ") {
		n := 0
		if _, err := fmt.Sscan(part, &n); err == nil {
			packets += n
		}
	}
	return packets
}

// drops does something until a chain of a host drops packets meanwhile.
func (w *world) drops(host, chain string, do func()) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("packets come to %s of %s", chain, host), func() error {
		before := w.dropped(host, chain)
		if do(); w.dropped(host, chain) == before {
			return errors.New("none is dropped there")
		}
		return nil
	})
}

// TestIsolatedNode: a node and its own pods reach each other without NAT, in each isolated
// namespace. Nobody else reaches anybody, not even through the node.
func TestIsolatedNode(t *testing.T) {
	t.Parallel()
	w := isolatedWorld(t)
	a1, b1 := w.run("host1", 1, "a", "a1"), w.run("host1", 2, "b", "b1")
	a2, b2 := w.run("host2", 3, "a", "a2"), w.run("host2", 4, "b", "b2")
	for _, p := range []*sandbox{a1, b1, a2, b2} {
		w.meets(p.host, p)
	}
	w.seen(a1.inLab(), a2.address.String(), 8080, "a2 "+a1.address.String())

	w.step("between namespaces, and between a node and pods of the other node", func() {
		w.unreachable(a1.inLab(), b1.address.String())
		w.unreachable(a1.inLab(), b2.address.String())
		w.unreachable("host1", a2.address.String())
		w.unreachable(a1.inLab(), outside)
		w.drops("host2", "own-pods", func() { w.unreachable(a1.inLab(), w.address("host2")) })
	})
	w.step("host ports", func() { w.testNoHostPorts(w.pod("host1", 9, "a", "a9")) })
	w.step("through the node", func() {
		// OVN's port security drops what is not for the node. With the userspace datapath the kernel sees
		// the link of the pod, too.
		for _, by := range []string{w.linkTo(a1), w.podLink(a1)} {
			w.ip(a1.inLab(), "neigh", "replace", w.address("host1"), "lladdr", w.mac("host1", by), "dev", "eth0")
			for _, to := range []string{b1.address.String(), outside, w.address("host2")} {
				w.ip(a1.inLab(), "route", "replace", to, "via", w.address("host1"), "dev", "eth0", "onlink")
				if by == w.podLink(a1) {
					w.drops("host1", "no-forward", func() { w.unreachable(a1.inLab(), to) })
				} else {
					before := w.dropped("host1", "no-forward")
					w.unreachable(a1.inLab(), to)
					require.Equal(w.t, before, w.dropped("host1", "no-forward"), "%s by %s", to, by)
				}
				w.ip(a1.inLab(), "route", "del", to)
			}
			w.ip(a1.inLab(), "neigh", "del", w.address("host1"), "dev", "eth0")
		}
		w.ip("host2", "route", "add", a1.address.String(), "via", w.address("host1"))
		w.drops("host1", "no-forward", func() { w.unreachable("host2", a1.address.String()) })
		w.ip("host2", "route", "del", a1.address.String())
	})
	w.step("databases of the node", func() {
		require.NoError(w.t, w.lab.Serve("host1", 6642, http.NotFoundHandler()))
		w.drops("host1", "databases-here", func() {
			_, err := w.lab.HTTPGet(within(t, time.Second), a1.inLab(), "http://"+w.address("host1")+":6642")
			require.Error(w.t, err)
		})
	})
	w.step("a router advertisement of a pod changes nothing", func() {
		for link := range strings.Lines(w.ip("host1", "-br", "link", "show", "type", "veth")) {
			if name, _, _ := strings.Cut(link, "@"); strings.HasPrefix(name, "coe-") {
				out, err := w.lab.Exec(t.Context(), "host1", "sysctl", "-n", "net.ipv6.conf."+name+".accept_ra")
				require.NoError(w.t, err)
				require.Equal(w.t, "0", strings.TrimSpace(out))
			}
		}
	})
}

// TestIsolatedNodeHeals: the agent restores every part at once, also if it was killed, and removes
// what a namespace needs when its last pod leaves.
func TestIsolatedNodeHeals(t *testing.T) {
	t.Parallel()
	w := isolatedWorld(t)
	a1, b1 := w.run("host1", 1, "a", "a1"), w.run("host1", 2, "b", "b1")
	whole := func() {
		w.meets("host1", a1)
		w.meets("host1", b1)
	}
	whole()
	link := w.linkTo(a1)
	port := strings.Replace(link, "coe-", "coep", 1)
	for _, harm := range []string{
		"nft flush ruleset",
		"nft flush chain inet coe-bridge no-forward",
		"ip route flush proto 206",
		"ip route del " + a1.address.String(),
		"ip route replace " + a1.address.String() + " dev " + link + " proto 206",
		"ip route add 192.0.2.0/24 dev " + link + " proto 206",
		"ip addr add 192.0.2.1/24 dev " + link,
		"ip link set " + link + " mtu 1000",
		"ip link set " + link + " address 0a:58:00:00:00:01",
		"ip link set " + link + " down",
		"ip link set " + port + " down",
		"ip link del " + link,
		"ip link set " + link + " name mine",
	} {
		w.mends(harm, whole)
	}
	w.step("the port is deleted", func() {
		_, err := w.lab.Host("host1").VSCtl(t.Context(), "del-port", port)
		require.NoError(w.t, err)
		whole()
	})
	w.step("the agent comes back and touches nothing", func() {
		before := w.snapshot("host1")
		require.NoError(w.t, w.agents["host1"].Restart(t.Context()))
		whole()
		require.Zero(w.t, w.metric("host1", "coe_agent_node_changes_total"))
		require.Equal(w.t, before, w.snapshot("host1"))
	})
	w.step("the agent is killed at any moment", func() { w.killedWhileJoining(a1, b1) })
	w.step("the last pod of a namespace leaves", func() {
		require.NoError(w.t, b1.del())
		w.delete(2)
		await(w.t, "its links are gone", func() error { return w.nodePorts("host1", 1) })
		w.meets("host1", a1)
	})
	w.step("cleaned up", func() {
		require.NoError(w.t, a1.del())
		require.NoError(w.t, w.agents["host1"].Terminate())
		_, err := w.lab.Exec(t.Context(), "host1", append(slices.Clone(w.agents["host1"].argv), "--cleanup")...)
		require.NoError(w.t, err)
		require.NoError(w.t, w.nodePorts("host1", 0))
		require.NoError(w.t, w.hasLeft())
	})
}

// killedWhileJoining removes everything, and kills the agent after each of the first changes.
func (w *world) killedWhileJoining(pods ...*sandbox) {
	w.t.Helper()
	agent := w.agents["host1"]
	for wait := time.Duration(0); wait < 300*time.Millisecond; wait += 30 * time.Millisecond {
		require.NoError(w.t, agent.Kill())
		_, err := w.lab.Exec(w.t.Context(), "host1", "sh", "-c", "nft flush ruleset; for l in $(ip -br link | grep -o '^coe-[^@]*'); do ip link del $l; done")
		require.NoError(w.t, err)
		require.NoError(w.t, agent.Start(w.t.Context()))
		timer := time.NewTimer(wait)
		<-timer.C
	}
	for _, p := range pods {
		w.meets("host1", p)
	}
	require.NoError(w.t, w.nodePorts("host1", len(pods)))
}

// podLink returns the end of a pod's links that is in the switch.
func (w *world) podLink(p *sandbox) string {
	w.t.Helper()
	out, err := w.lab.Host(p.host).VSCtl(w.t.Context(), "--bare", "--columns=name", "find", "Interface", "external_ids:coe-container="+p.container)
	require.NoError(w.t, err)
	return strings.TrimSpace(out)
}

// mac returns the MAC address of a link.
func (w *world) mac(host, link string) string {
	w.t.Helper()
	fields := strings.Fields(w.ip(host, "-br", "link", "show", "dev", link))
	return fields[2]
}

// linkTo returns the host's link to a pod.
func (w *world) linkTo(p *sandbox) string {
	w.t.Helper()
	fields := strings.Fields(w.ip(p.host, "route", "get", p.address.String()))
	return fields[slices.Index(fields, "dev")+1]
}

// nodePorts fails unless a host has that many pairs of links to isolated namespaces, and as many
// ports in its switch.
func (w *world) nodePorts(host string, want int) error {
	out, err := w.lab.Exec(w.t.Context(), host, "ip", "-br", "link")
	if err != nil {
		return err
	}
	ports, err := w.lab.Host(host).VSCtl(w.t.Context(), "list-ports", "br-int")
	if err != nil {
		return err
	}
	links, ends, inSwitch := strings.Count(out, "coe-"), strings.Count(out, "\ncoep"), strings.Count("\n"+ports, "\ncoep")
	if ends != want || inSwitch != want || (links > 0) != (want > 0) {
		return fmt.Errorf("want %d pairs of links, and there are %d ends in the switch, %d ports; links:\n%s", want, ends, inSwitch, out)
	}
	return nil
}

// TestOneAddressInTwoNamespaces: of two pods of a node with one address the first keeps the
// connection with the node, until it leaves. Then the node reaches the other one.
func TestOneAddressInTwoNamespaces(t *testing.T) {
	w := isolatedWorld(t)
	for _, ns := range []string{"c", "d"} {
		w.put("dhcp_allocation_pool:dhcp_allocation_pool/network/"+ns, fmt.Sprintf(
			`{"network":[{"network-id":%q,"allocation-pool":[{"subnet":"10.50.0.0/24"}]}]}`, ns))
	}
	first := w.run("host1", 1, "d", "first")
	w.meets("host1", first)
	second := w.run("host1", 2, "c", "second")
	require.Equal(t, first.address, second.address)
	await(t, "the metric counts the second", func() error {
		if n := w.metric("host1", "coe_agent_node_unreached_pods"); n != 1 {
			return fmt.Errorf("it is %v", n)
		}
		return nil
	})
	w.drops("host1", "own-pods", func() { w.unreachable(second.inLab(), w.address("host1")) })

	require.NoError(t, w.agents["host1"].Restart(t.Context()))
	w.meets("host1", first)

	require.NoError(t, first.del())
	w.delete(1)
	w.meets("host1", second)
	require.Zero(t, w.metric("host1", "coe_agent_node_unreached_pods"))
}

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEgressIPFaults: pods of an EgressIP leave with its address or not at all, whatever happens to the nodes, the agents
// and the rules.
func TestEgressIPFaults(t *testing.T) {
	w := newEgressWorld(t)
	w.watchLeaks()
	w.label("host1", true)
	w.step("a flow that began before", func() {
		flow := w.ping(w.near, impatientPing)
		w.apply("shop", egressIP, "chosen")
		w.heldBy("shop", egressIP, "host1")
		flow.awaits(t, egressIP)
		w.apply("shop", otherEgressIP, "chosen")
		w.heldBy("shop", otherEgressIP, "host1")
		flow.awaits(t, otherEgressIP)
		flow.end()
		w.apply("shop", egressIP, "chosen")
		w.heldBy("shop", egressIP, "host1")
		w.leaves(w.near, egressIP)
	})
	w.step("link-local addresses", func() {
		for _, p := range []*sandbox{w.near, w.far} {
			w.ip(p.host, "addr", "replace", "169.254.20.10/32", "dev", "lo")
			w.whoUDPAt(p.host, "169.254.20.10", p.host)
			await(t, p.name+" reaches its own node", func() error {
				conn, err := w.lab.Dial(t.Context(), p.inLab(), "udp", "169.254.20.10:8080")
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close() }()
				got, err := exchange(conn, patientPing)
				if err == nil && !strings.HasPrefix(got, p.host+" ") {
					err = errors.New(got)
				}
				return err
			})
		}
	})
	w.step("node ports", func() {
		port := w.nodePort("web", w.unchosen)
		await(t, "the pod answers at the address of the node", func() error {
			got, err := w.ask("central", w.address("host1"), port)
			if err == nil && !strings.HasPrefix(got, w.unchosen.name+" ") {
				err = errors.New(got)
			}
			return err
		})
		for _, from := range []string{"central", "host1"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := w.lab.Dial(ctx, from, "tcp", net.JoinHostPort(egressIP, strconv.Itoa(port)))
			cancel()
			require.Error(t, err, "from %s", from)
		}
	})
	w.step("the rules are gone while the agent runs, and while it does not", func() {
		flush := func() {
			_, err := w.lab.Exec(t.Context(), "host1", "nft", "flush", "ruleset")
			require.NoError(t, err)
		}
		flush()
		w.leaves(w.near, egressIP)
		w.ip("host1", "rule", "del", "priority", "206")
		await(t, "the routing rule is back", func() error {
			if out := w.ip("host1", "rule"); !strings.Contains(out, "206:") {
				return errors.New(out)
			}
			return nil
		})
		require.NoError(t, w.agents["host1"].Kill())
		w.leaves(w.near, egressIP)
		flow := w.ping(w.far, impatientPing)
		flush()
		for _, p := range []*sandbox{w.near, w.far} {
			_, err := w.askUDPOnce(p)
			require.Error(t, err)
		}
		require.NoError(t, w.agents["host1"].Start(t.Context()))
		w.leaves(w.near, egressIP)
		flow.onlyWith(t, egressIP)
		require.Equal(t, "packets 0", w.leaked())
	})
	w.label("host2", true)
	w.answersBridge("host2")
	w.step("the agent hangs, and the next node is not led into", func() {
		require.NoError(t, w.agents["host1"].Stop())
		w.cordon("host1", true)
		flow := w.ping(w.near, patientPing)
		for range 3 {
			w.leaves(w.far, egressIP)
		}
		flow.onlyWith(t, egressIP)
		require.NoError(t, w.agents["host1"].Cont())
		w.heldBy("shop", egressIP, "host2")
		w.cordon("host1", false)
	})
	w.step("the holder is cut off from the bridge", func() {
		w.cutOff("host2", true)
		w.awaitHolder("shop", "host1")
		w.leaves(w.near, egressIP)
		w.cutOff("host2", false)
		w.heldBy("shop", egressIP, "host1")
		w.leaves(w.far, egressIP)
	})
	w.step("the holder reboots", func() {
		require.NoError(t, w.agents["host1"].Kill())
		require.NoError(t, w.lab.Down(t.Context(), "host1"))
		w.awaitHolder("shop", "host2")
		w.leaves(w.far, egressIP)
		require.NoError(t, w.lab.Up(t.Context(), "host1"))
		w.ip("host1", "route", "replace", "default", "via", router)
		step := w.t
		w.t = t // its relay must outlive the step
		w.startAgent("host1")
		w.t = step
		w.heldBy("shop", egressIP, "host2")
		w.neighbourIsNot(egressIP, "host1") // the agent has a state that says that its node holds the address
		w.label("host2", false)
		w.heldBy("shop", egressIP, "host1")
		w.leaves(w.far, egressIP)
	})
	w.step("two EgressIPs select the same pods", func() {
		w.apply("second", otherEgressIP, "chosen")
		w.awaitProblem("second", "NotEnforced")
		w.leaves(w.far, egressIP)
		_, err := w.plane.Kubectl(t.Context(), "delete", "egressip", "shop")
		require.NoError(t, err)
		w.leaves(w.far, otherEgressIP)
	})
	w.step("clean up", func() {
		agent := w.agents["host1"]
		require.NoError(t, agent.Terminate())
		_, err := w.lab.Exec(t.Context(), "host1", append(slices.Clone(agent.argv), "--cleanup")...)
		require.NoError(t, err)
		out, err := w.lab.Exec(t.Context(), "host1", "sh", "-c", "ip -o link; ip -4 -o addr; ip rule; ip route; nft list ruleset")
		require.NoError(t, err)
		for _, trace := range []string{"coe-", "coe0", otherEgressIP, "206:"} {
			require.NotContains(t, out, trace)
		}
	})
	require.Equal(t, "packets 0", w.leaked())
}

// impatientPing is a timeout for flows that lose packets.
const impatientPing = patientPing / 15

// awaits waits until the outside sees a source.
func (g *pinger) awaits(t *testing.T, source string) {
	t.Helper()
	await(t, "the flow leaves with "+source, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.sources[source] == 0 {
			return fmt.Errorf("%v, lost %d", g.sources, g.lost)
		}
		return nil
	})
}

func (g *pinger) end() {
	g.stop()
	<-g.done
}

// watchLeaks counts packets outside that have the address of a pod.
func (w *egressWorld) watchLeaks() {
	w.t.Helper()
	_, err := w.lab.Exec(w.t.Context(), "central", "nft",
		"add table ip leaks; add chain ip leaks in { type filter hook prerouting priority -300; }; add rule ip leaks in ip saddr 10.42.0.0/16 counter")
	require.NoError(w.t, err)
}

var counted = regexp.MustCompile(`packets (\d+)`)

// leaked returns how many packets watchLeaks has counted.
func (w *egressWorld) leaked() string {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), "central", "nft", "list", "chain", "ip", "leaks", "in")
	require.NoError(w.t, err)
	return counted.FindString(out)
}

// nodePort creates a service of type NodePort with a pod that answers with its name, and returns the port.
func (w *egressWorld) nodePort(name string, p *sandbox) int {
	w.t.Helper()
	w.who(p.inLab(), p.name)
	s, err := w.api.CoreV1().Services(p.namespace).Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = w.api.DiscoveryV1().EndpointSlices(p.namespace).Create(w.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{p.address.String()}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return int(s.Spec.Ports[0].NodePort)
}

// neighbourIsNot requires that the outside does not take a host for the one with an address.
func (w *egressWorld) neighbourIsNot(address, host string) {
	w.t.Helper()
	mac, err := w.lab.Exec(w.t.Context(), host, "cat", "/sys/class/net/br-phy/address")
	require.NoError(w.t, err)
	out, err := w.lab.Exec(w.t.Context(), "central", "ip", "neigh", "show", address)
	require.NoError(w.t, err)
	require.NotContains(w.t, out, strings.TrimSpace(mac))
}

// awaitHolder waits until a host holds an EgressIP, whatever others do.
func (w *egressWorld) awaitHolder(name, host string) {
	w.t.Helper()
	await(w.t, host+" holds "+name, func() error {
		is, err := w.holder(name)
		if err == nil && is != host {
			err = fmt.Errorf("it is held by %q", is)
		}
		return err
	})
}

// cutOff cuts a host off from the bridge, and not from the outside, or connects it again.
func (w *egressWorld) cutOff(host string, is bool) {
	w.t.Helper()
	args := []string{"route", "replace", w.address(host) + "/32", "via", "172.31.98.2", "dev", "egress-test"}
	if is {
		args = []string{"route", "replace", "blackhole", w.address(host) + "/32"}
	}
	out, err := exec.CommandContext(w.t.Context(), "ip", args...).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	w.agents[host].relay.cut(is)
}

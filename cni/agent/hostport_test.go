package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

// mapping requests host ports.
func mapping(mappings ...object) invoke {
	return invoke{conf: object{"runtimeConfig": object{"portMappings": mappings}}}
}

// manyMappings are more host ports than a pod can have.
func manyMappings() (all []object) {
	for i := range 65 {
		all = append(all, object{"hostPort": 1000 + i, "containerPort": 80})
	}
	return all
}

// hosted are the host ports of the pod of TestHostPorts.
var hosted = nodePorts{8000, 8000}

// TestHostPorts: clients outside the cluster, nodes and pods reach a pod by its host ports as soon as its ADD has
// succeeded. Its ports are not given to others, survive the agent, and end with the pod.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	w := newDualExposeWorld(t, "--host-ports", "8000-8100")
	management, _ := w.management("host1")
	near, far, edge := w.address("host1"), w.address("host2"), w.edge("host1")
	front := w.pod("host1", 5, "default", "front")
	w.who(front.inLab(), "front")
	w.whoUDP(front.inLab(), "front")
	request := mapping(object{"hostPort": 8000, "containerPort": 8080, "protocol": "tcp"}, object{"hostPort": 8000, "containerPort": 8080, "protocol": "UDP"},
		object{"hostPort": 8001, "containerPort": 8080, "hostIP": "127.0.0.1"})
	added, err := front.add(t.Context(), request)
	require.NoError(t, err)
	got, err := w.ask("central", near, hosted.tcp)
	require.NoError(t, err, "at once")
	require.Equal(t, "front "+outsider, got)

	six := w.sides()[1]
	near6, number := six.address("host1"), nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}.Number(management)
	management6 := nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}.Address(number).String()
	everywhere := func() {
		w.t.Helper()
		w.answered("central", near6, hosted, "front "+router6)
		for _, from := range []string{"host2", w.pods["host2"].inLab()} {
			w.answered(from, near6, hosted, "front "+six.address("host2"))
		}
		for _, from := range []string{w.pods["host1"].inLab(), front.inLab()} {
			w.answered(from, near6, hosted, "front "+six.edges["host1"])
		}
		w.answered("host1", near6, hosted, "front "+management6)
		w.answered("central", near, hosted, "front "+outsider)
		for _, from := range []string{"host2", w.pods["host1"].inLab(), w.pods["host2"].inLab(), front.inLab()} {
			w.answered(from, near, hosted, "front "+edge)
		}
		for _, at := range []string{near, management.String()} {
			w.answered("host1", at, hosted, "front "+management.String())
		}
		w.seen("host1", "127.0.0.1", 8001, "front "+management.String())
	}
	everywhere()
	for _, asked := range []struct {
		node string
		port int
	}{{far, 8000}, {near, 8001}, {near6, 8001}} {
		_, err := w.ask("central", asked.node, asked.port)
		require.ErrorContains(t, err, "refused", asked)
	}
	require.NoError(t, front.check(added))

	w.step("what is refused", func() { w.testRefusedHostPorts(near, near6) })
	w.step("network policies", func() { w.testHostPortsAndPolicies(near, edge) })
	w.step("the agent is away", func() {
		require.NoError(w.t, w.agents["host1"].Kill())
		w.answered("central", near, hosted, "front "+outsider)
		_, err := w.lab.Exec(w.t.Context(), "host1", "nft", "delete", "table", "ip", "coe-bridge-node-ports")
		require.NoError(w.t, err)
		w.agents["host1"].relay.cut(true)
		require.NoError(w.t, w.agents["host1"].Start(w.t.Context()))
		everywhere()
		w.agents["host1"].relay.cut(false)
	})
	w.step("others harm the rules", func() {
		_, err := w.lab.Exec(w.t.Context(), "host1", "nft", "flush", "map", "ip", "coe-bridge-node-ports", "hosts")
		require.NoError(w.t, err)
		everywhere()
	})
	w.step("the call is repeated, and asks for another port", func() {
		again, err := front.add(w.t.Context(), request)
		require.NoError(w.t, err)
		require.Equal(w.t, added, again)
		_, err = front.add(w.t.Context(), mapping(object{"hostPort": 8002, "containerPort": 8080}))
		require.NoError(w.t, err)
		w.seen("central", near, 8002, "front "+outsider)
		_, err = w.ask("central", near, 8000)
		require.ErrorContains(w.t, err, "refused")
	})
	w.step("the pod ends", func() {
		_, err := front.add(w.t.Context(), request)
		require.NoError(w.t, err)
		conn, err := w.lab.Dial(w.t.Context(), "central", "udp", net.JoinHostPort(near, "8000"))
		require.NoError(w.t, err)
		defer func() { _ = conn.Close() }()
		await(w.t, "an answer", func() error { // a new port can cost a packet in the userspace datapath
			got, err := exchange(conn, time.Second)
			if err == nil && got != "front "+outsider {
				err = fmt.Errorf("%q answers", got)
			}
			return err
		})
		require.NoError(w.t, front.del())
		await(w.t, "the table is gone", func() error { return w.lacks("host1", "coe-bridge-node-ports") })
		_, err = w.ask("central", near, 8000)
		require.ErrorContains(w.t, err, "refused")
		local, err := w.lab.Exec(w.t.Context(), "host1", "sysctl", "-n", "net.ipv4.conf.coe0.route_localnet")
		require.NoError(w.t, err)
		require.Equal(w.t, "0", strings.TrimSpace(local))
		back := w.pod("host1", 6, "default", "back")
		_, err = back.add(w.t.Context(), request)
		require.NoError(w.t, err)
		w.who(back.inLab(), "back")
		w.whoUDP(back.inLab(), "back")
		w.answered("central", near, hosted, "back "+outsider)
		await(w.t, "a client that keeps sending reaches the other pod", func() error {
			got, err := exchange(conn, time.Second)
			if err == nil && got != "back "+outsider {
				err = errors.New(got)
			}
			return err
		})
	})
}

// testRefusedHostPorts asks for ports that belong to others. An ADD that is refused leaves nothing.
func (w *exposeWorld) testRefusedHostPorts(near, near6 string) {
	other := w.pod("host1", 6, "default", "other")
	require.NoError(w.t, w.lab.In("host1", func() error {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:8050")
		if err == nil {
			w.t.Cleanup(func() { _ = l.Close() })
		}
		return err
	}))
	for says, m := range map[string]object{
		"host port tcp 0.0.0.0:8000 belongs to pod default/front":                                      {"hostPort": 8000, "containerPort": 80},
		"host port tcp " + near + ":8000 belongs to pod default/front":                                 {"hostPort": 8000, "containerPort": 80, "hostIP": near},
		"host port tcp 0.0.0.0:8001 belongs to pod default/front":                                      {"hostPort": 8001, "containerPort": 80},
		"host port tcp [" + near6 + "]:8000 belongs to pod default/front":                              {"hostPort": 8000, "containerPort": 80, "hostIP": near6},
		"host port tcp [fd00:31:99::99]:8060: the node has no address fd00:31:99::99":                  {"hostPort": 8060, "containerPort": 80, "hostIP": "fd00:31:99::99"},
		"host port tcp 0.0.0.0:22: the port is not allowed; allowed are 8000-8100":                     {"hostPort": 22, "containerPort": 80},
		"host port tcp 0.0.0.0:8050: a program of the node listens on 127.0.0.1:8050":                  {"hostPort": 8050, "containerPort": 80},
		"host port tcp 198.51.100.77:8060: the node has no address 198.51.100.77":                      {"hostPort": 8060, "containerPort": 80, "hostIP": "198.51.100.77"},
		"host port tcp " + w.address("host2") + ":8060: the node has no address " + w.address("host2"): {"hostPort": 8060, "containerPort": 80, "hostIP": w.address("host2")},
	} {
		_, err := other.add(w.t.Context(), mapping(m))
		require.ErrorContains(w.t, err, says)
		require.ErrorContains(w.t, err, "pod default/other cannot have its host ports")
		require.Equal(w.t, types.ErrTryAgainLater, code(err))
		other.nothingIn()
	}
	_, err := other.add(w.t.Context(), mapping(object{"hostPort": 8001, "containerPort": 8080, "hostIP": near}))
	require.NoError(w.t, err, "another address")
	w.who(other.inLab(), "other")
	w.seen("central", near, 8001, "other "+outsider)
	_, err = w.ask("central", near6, 8001)
	require.ErrorContains(w.t, err, "refused", "of the other family")
	require.NoError(w.t, other.del())
	require.Error(w.t, w.lacks("host1", ". 8000 :"))
	for _, refused := range []string{". 22 :", ". 8050 :", ". 8060 :"} {
		require.NoError(w.t, w.lacks("host1", refused))
	}
	w.delete(6)
}

// testHostPortsAndPolicies: policies judge clients of a host port by the source that the pod sees. A pod whose
// egress is isolated does not leave by a host port of its own node.
func (w *exposeWorld) testHostPortsAndPolicies(near, edge string) {
	inside, elsewhere := w.pods["host1"].inLab(), w.pods["host2"].inLab()
	management, _ := w.management("host1")
	w.isolate(networkingv1.PolicyTypeIngress)
	w.allSilent(question{"central", near, hosted}, question{inside, near, hosted})
	w.answered("host1", near, hosted, "front "+management.String())
	w.isolate(networkingv1.PolicyTypeIngress, outsider+"/32")
	w.answered("central", near, hosted, "front "+outsider)
	w.silent("host2", near, hosted)
	w.isolate(networkingv1.PolicyTypeIngress, edge+"/32")
	w.answered("host2", near, hosted, "front "+edge)
	w.silent("central", near, hosted)
	w.isolate(networkingv1.PolicyTypeIngress, "0.0.0.0/0")
	w.answered(inside, near, hosted, "front "+edge)

	w.isolate(networkingv1.PolicyTypeEgress)
	w.allSilent(question{inside, near, hosted}, question{elsewhere, near, hosted})
	w.answered("central", near, hosted, "front "+outsider)
	w.isolate(networkingv1.PolicyTypeEgress, near+"/32")
	w.answered(inside, near, hosted, "front "+edge)
	w.isolate(networkingv1.PolicyTypeEgress, "0.0.0.0/0", "::/0")
	w.answered(elsewhere, near, hosted, "front "+edge)
}

// testNoHostPorts: a pod that asks for a host port has its network, and the node forwards
// nothing to it.
func (w *world) testNoHostPorts(p *sandbox) {
	_, err := p.add(w.t.Context(), mapping(object{"hostPort": 8000, "containerPort": 8080}))
	require.NoError(w.t, err)
	w.who(p.inLab(), p.name)
	w.meets(p.host, p)
	for _, from := range []string{"central", p.host} {
		_, err := w.ask(from, w.address(p.host), 8000)
		require.ErrorContains(w.t, err, "refused")
	}
	tables, err := w.lab.Exec(w.t.Context(), p.host, "nft", "list", "tables")
	require.NoError(w.t, err)
	require.NotContains(w.t, tables, "coe-bridge-node-ports")
}

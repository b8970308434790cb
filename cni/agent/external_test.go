package agent_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// TestWithoutKubernetes attaches containers for a caller without Kubernetes. The agent creates
// and deletes their pods on the bridge.
func TestWithoutKubernetes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, impatient, "host1")
	dir := w.agents["host1"].dir
	a, b := w.sandbox("host1", "", "", "", "a0"), w.sandbox("host1", "", "", "", "b0")
	w.step("ADD makes the pod", func() {
		a.mustAdd()
		b.mustAdd()
		w.reach(a, b)
		_, pods := w.get("pod:coe")
		require.Contains(w.t, pods, `"name":"a0"`)
		require.Contains(w.t, pods, `"network-NS":"default"`)
		require.Equal(w.t, a.mustAdd(), a.mustAdd())
	})
	w.step("a second link", func() {
		i := invoke{ifName: "net1", conf: object{"isDefaultGateway": false}}
		second, err := a.add(w.t.Context(), i)
		require.NoError(w.t, err)
		require.Equal(w.t, "net1", second.Interfaces[1].Name)
		require.Len(w.t, second.Routes, 1)
		require.Equal(w.t, "10.42.0.1/32", second.Routes[0].Dst.String(), "its gateway, which the first link has too")
		i.command = "DEL"
		_, err = a.invoke(w.t.Context(), i)
		require.NoError(w.t, err)
		a.mustAdd()
		w.reach(a, b)
	})
	w.step("DEL takes the pod away", func() {
		require.NoError(w.t, a.del())
		require.NoError(w.t, a.del())
		_, pods := w.get("pod:coe")
		require.NotContains(w.t, pods, `"name":"a0"`)
		require.Contains(w.t, pods, `"name":"b0"`)
	})
	w.step("what is asked for", func() { w.testAskedFor(a, b) })
	w.step("the bridge is away at DEL", func() {
		w.agents["host1"].relay.cut(true)
		require.NoError(w.t, b.del())
		require.Len(w.t, w.left("host1", dir).notes, 1)
		w.agents["host1"].relay.cut(false)
		w.awaitPods("host1", 0)
		_, pods := w.get("pod:coe")
		require.NotContains(w.t, pods, "uid", "no pod is left")
	})
}

// TestCleanup removes everything that agents create.
func TestCleanup(t *testing.T) {
	w := newWorld(t, patient, "host1")
	host := w.agents["host1"]
	front, bare := w.pod("host1", 1, "web", "front"), w.sandbox("host1", "", "", "", "bare")
	front.mustAdd()
	bare.mustAdd()
	nicLeft := w.testNICToBridge(host)
	cleanup := append(slices.Clone(host.argv), "--cleanup")
	_, err := w.lab.Exec(t.Context(), "host1", cleanup...)
	require.ErrorContains(t, err, "another agent is listening")
	require.NoError(t, host.Terminate())
	_, err = w.lab.Host("host1").VSCtl(t.Context(), "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=outside:brnic0")
	require.NoError(t, err)
	_, err = w.lab.Exec(t.Context(), "host1", cleanup...)
	require.ErrorContains(t, err, "nothing was removed: let NIC nic0 leave bridge brnic0: OVN's network outside uses bridge brnic0 (ovn-bridge-mappings): run coe-bridge gateway remove")
	_, err = w.lab.Host("host1").VSCtl(t.Context(), "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	require.NoError(t, err)
	w.reach(front, bare)
	_, err = w.lab.Exec(t.Context(), "host1", cleanup...)
	require.NoError(t, err)
	require.NoError(t, w.left("host1", host.dir).is(0))
	require.NoDirExists(t, host.dir)
	require.NoFileExists(t, host.socket)
	nicLeft()
	_, pods := w.get("pod:coe")
	require.NotContains(t, pods, "bare")
	_, err = w.lab.Exec(t.Context(), "host1", cleanup...)
	require.NoError(t, err, "again")
}

// testNICToBridge lets a NIC join its bridge by the command, and the agent repair that. left checks that the NIC
// has left.
func (w *world) testNICToBridge(host *agentProcess) (left func()) {
	t := w.t
	on := func(args ...string) string {
		t.Helper()
		out, err := w.lab.Exec(t.Context(), "host1", args...)
		require.NoError(t, err)
		return out
	}
	on("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "nic0-peer")
	on("ip", "link", "set", "nic0-peer", "up")
	on("ip", "link", "set", "nic0", "up")
	on("ip", "address", "add", "10.9.0.1/24", "dev", "nic0")
	gateway := []string{bridgetest.Program(t), "gateway", "nics-to-bridge", "nic0", "--ovs-db", w.lab.Host("host1").OVSDB.Remote, "--state-dir", host.dir}
	planned := on(append(gateway, "--dry-run")...)
	require.Contains(t, planned, "nic0: would be moved\n  record nic0 joins bridge brnic0\n  add bridge brnic0 with MAC address ")
	require.Contains(t, planned, "\n  add address 10.9.0.1/24 to brnic0\n")
	moved := on(gateway...)
	require.Equal(t, strings.Replace(planned, "would be moved", "moved", 1), moved)
	require.Equal(t, "nic0: nothing to do\n", on(gateway...))
	_, err := w.lab.Exec(t.Context(), "host1", append(gateway, "eth9")...)
	require.ErrorContains(t, err, "let NIC eth9 join bridge breth9: the node has no such link")

	on("ip", "address", "add", "10.9.1.1/24", "dev", "nic0") // as a network manager would
	await(t, "the agent moves the address", func() error {
		if !strings.Contains(on("ip", "address", "show", "dev", "brnic0"), "10.9.1.1/24") {
			return errors.New("it is not on the bridge")
		}
		return nil
	})
	return func() {
		t.Helper()
		addresses := on("ip", "address", "show", "dev", "nic0")
		require.Contains(t, addresses, "10.9.0.1/24")
		require.Contains(t, addresses, "10.9.1.1/24")
		require.NotContains(t, on("ip", "link"), "brnic0")
		require.NotContains(t, on("nft", "list", "tables"), "coe-bridge-nics")
	}
}

func (w *world) testAskedFor(a, taken *sandbox) {
	t := w.t
	for _, i := range []invoke{
		{conf: object{"runtimeConfig": object{"ips": []string{"10.42.7.7/16"}, "mac": "0a:58:0a:2a:07:07"}}},
		{conf: object{"args": object{"cni": object{"ips": []string{"10.42.7.7"}}}}},
		{args: "IgnoreUnknown=1;IP=10.42.7.7;COE_NAMESPACE=shop;COE_NAME=till"},
	} {
		result, err := a.add(t.Context(), i)
		require.NoError(t, err)
		require.Equal(t, netip.MustParseAddr("10.42.7.7"), a.address)
		if i.args != "" {
			_, pods := w.get("pod:coe")
			require.Contains(t, pods, `"name":"till"`)
			require.Contains(t, pods, `"network-NS":"shop"`)
		} else if i.conf["runtimeConfig"] != nil {
			require.Equal(t, "0a:58:0a:2a:07:07", result.Interfaces[1].Mac)
		}
		require.NoError(t, a.del())
	}
	_, err := a.add(t.Context(), invoke{args: "IP=" + taken.address.String()})
	require.EqualValues(t, types.ErrTryAgainLater, code(err))
	require.ErrorContains(t, err, "default/a0")
	require.ErrorContains(t, err, "the bridge reports: ")
	require.ErrorContains(t, err, taken.address.String())
	a.nothingIn()
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, impatient, "host1")
	p := w.pod("host1", 1, "web", "front")
	allowSocket(t, "/run/none.sock")
	for _, c := range []struct {
		name string
		invoke
		code uint
		says string
	}{
		{"unknown key", invoke{conf: object{"mtuu": 1}}, types.ErrInvalidNetworkConfig, `unknown key "mtuu"`},
		{"ipam", invoke{conf: object{"ipam": object{"type": "host-local"}}}, types.ErrInvalidNetworkConfig, "the bridge chooses addresses"},
		{"wrong type", invoke{conf: object{"isDefaultGateway": "no"}}, types.ErrInvalidNetworkConfig, "isDefaultGateway"},
		{"bandwidth", invoke{conf: object{"runtimeConfig": object{"bandwidth": object{"ingressRate": 1}}}}, types.ErrInvalidNetworkConfig, "runtimeConfig.bandwidth"},
		{"host ports as arguments", invoke{conf: object{"args": object{"cni": object{"portMappings": []object{{"hostPort": 1, "containerPort": 1}}}}}}, types.ErrInvalidNetworkConfig, "args.cni.portMappings"},
		{"no container port", mapping(object{"hostPort": 1}), types.ErrInvalidNetworkConfig, "runtimeConfig.portMappings: host port 1 of container port 0"},
		{"a host port that is too large", mapping(object{"hostPort": 65536, "containerPort": 1}), types.ErrInvalidNetworkConfig, "host port 65536"},
		{"a negative host port", mapping(object{"hostPort": -1, "containerPort": 1}), types.ErrInvalidNetworkConfig, "host port -1"},
		{"the protocol of a host port", mapping(object{"hostPort": 1, "containerPort": 1, "protocol": "icmp"}), types.ErrInvalidNetworkConfig, `protocol "icmp"`},
		{"the loopback address of IPv6", mapping(object{"hostPort": 1, "containerPort": 1, "hostIP": "::1"}), types.ErrInvalidNetworkConfig, `hostIP "::1" of host port 1`},
		{"a link-local address", mapping(object{"hostPort": 1, "containerPort": 1, "hostIP": "fe80::1"}), types.ErrInvalidNetworkConfig, `hostIP "fe80::1" of host port 1`},
		{"an IPv4 address in IPv6", mapping(object{"hostPort": 1, "containerPort": 1, "hostIP": "::ffff:1.2.3.4"}), types.ErrInvalidNetworkConfig, `hostIP "::ffff:1.2.3.4"`},
		{"a host port twice", mapping(object{"hostPort": 1, "containerPort": 1}, object{"hostPort": 1, "containerPort": 2, "hostIP": "192.0.2.1"}), types.ErrInvalidNetworkConfig, "host port tcp 192.0.2.1:1 is requested twice"},
		{"too many host ports", mapping(manyMappings()...), types.ErrInvalidNetworkConfig, "65 host ports are requested: a pod can have 64"},
		{"device info", invoke{conf: object{"runtimeConfig": object{"CNIDeviceInfoFile": "/x"}}}, types.ErrInvalidNetworkConfig, "CNIDeviceInfoFile"},
		{"bad address", invoke{conf: object{"runtimeConfig": object{"ips": []string{"x"}}}}, types.ErrInvalidNetworkConfig, "runtimeConfig.ips"},
		{"bad MAC address", invoke{conf: object{"args": object{"cni": object{"mac": "x"}}}}, types.ErrInvalidNetworkConfig, "args.cni.mac"},
		{"an address that it has not", invoke{conf: object{"runtimeConfig": object{"ips": []string{"10.42.9.9"}}}}, types.ErrInvalidNetworkConfig, "requested address 10.42.9.9 differs from the addresses of pod web/front"},
		{"a MAC address that it has not", invoke{conf: object{"runtimeConfig": object{"mac": "0a:58:00:00:00:01"}}}, types.ErrInvalidNetworkConfig, "differs from the MAC address of pod web/front"},
		{"addresses as Multus writes them", invoke{args: "K8S_POD_NAMESPACE=web;K8S_POD_NAME=front;IP=10.42.9.9/16,fd00::9/64"}, types.ErrInvalidNetworkConfig, "requested address 10.42.9.9 differs from the addresses of pod web/front"},
		{"bad arguments", invoke{args: "K8S_POD_NAME"}, types.ErrInvalidEnvironmentVariables, "invalid pair"},
		{"unknown arguments", invoke{args: "COLOUR=red"}, types.ErrInvalidEnvironmentVariables, "COLOUR"},
		{"no namespace", invoke{netns: "/run/netns/none"}, types.ErrInvalidNetNS, "/run/netns/none"},
		{"no network namespace", invoke{netns: "/etc/passwd"}, types.ErrInvalidNetNS, "/etc/passwd"},
		{"the node's namespace", invoke{netns: "/run/netns/" + w.lab.Namespace("host1")}, types.ErrInvalidNetNS, "the node's own"},
		{"no agent", invoke{conf: object{"socket": "/run/none.sock"}}, types.ErrTryAgainLater, "does coe-bridge agent run on this node?"},
		{"a socket of its own", invoke{conf: object{"socket": "/run/containerd/containerd.sock"}}, types.ErrInvalidNetworkConfig, "is not the agent's"},
		{"unknown pod", invoke{args: "K8S_POD_NAMESPACE=web;K8S_POD_NAME=who"}, types.ErrTryAgainLater, "pod web/who has no address yet"},
		{"another pod of that name", invoke{args: "K8S_POD_NAMESPACE=web;K8S_POD_NAME=front;K8S_POD_UID=" + uid("p", 2)}, types.ErrTryAgainLater, "pod web/front has no address yet"},
	} {
		w.step(c.name, func() {
			_, err := p.add(w.t.Context(), c.invoke)
			require.ErrorContains(w.t, err, c.says)
			require.Equal(w.t, c.code, code(err), "%s", err)
		})
	}
	w.step("a host port where nodes serve none", func() {
		_, err := w.sandbox("host1", "", "", "", "bare").add(w.t.Context(), mapping(object{"hostPort": 1, "containerPort": 1}))
		require.ErrorContains(w.t, err, "runtimeConfig.portMappings: the node serves no host ports")
		_, err = p.add(w.t.Context(), mapping(object{"hostPort": 1, "containerPort": 1}))
		require.NoError(w.t, err, "the bridge reports it for a pod of Kubernetes")
	})
	w.step("what asks for nothing, and CNI's own keys", func() {
		_, err := p.add(w.t.Context(), invoke{conf: object{
			"cni.dev/x": 1, "capabilities": object{"mac": true}, "runtimeConfig": object{"portMappings": []object{{"containerPort": 80}}, "bandwidth": object{}, "mac": ""},
		}})
		require.NoError(w.t, err)
	})
	w.step("a static pod's uid is a hash", func() {
		_, err := p.add(w.t.Context(), invoke{args: "K8S_POD_NAMESPACE=web;K8S_POD_NAME=front;K8S_POD_UID=8a1c9d7e5f3b2a10c4e6d8f0a1b2c3d4"})
		require.NoError(w.t, err)
	})
	w.step("DEL needs no good configuration", func() {
		_, err := p.invoke(w.t.Context(), invoke{command: "DEL", conf: object{"mtuu": 1}})
		require.NoError(w.t, err)
		w.awaitPods("host1", 0)
	})
}

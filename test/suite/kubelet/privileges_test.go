package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

const (
	agentSet = "coe-bridge-agent"
	// dual is a namespace whose pods have IPv4 and IPv6 addresses.
	dual     = "dual"
	dualPool = `{"dhcp_allocation_pool:network":[{"network-id":"` + dual + `","allocation-pool":[{"subnet":"10.245.0.0/24"},{"subnet":"fd00:245::/64"}]}]}`
)

// testPrivileges checks the process that the container runtime has created from the agent's manifest.
// The agent then makes all its changes in network namespaces: the settings of a pod and of the node,
// and the node's management port.
func (c *cluster) testPrivileges(t *testing.T) {
	for _, n := range c.Nodes {
		agents, err := n.Processes("coe-bridge", "agent")
		require.NoError(t, err)
		require.Len(t, agents, 1)
		first, err := n.PID()
		require.NoError(t, err)
		lacksPrivileges(t, fmt.Sprintf("/proc/%d", agents[0]), fmt.Sprintf("/proc/%d", first))
	}
	c.makeDual(t)
	pods := []*corev1.Pod{newDual("a", "n1"), newDual("b", "n2")}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	far, err := c.Client().CoreV1().Pods(dual).Get(t.Context(), "b", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, far.Status.PodIPs, 2)
	v6 := netip.MustParseAddr(far.Status.PodIPs[1].IP)
	require.True(t, v6.Is6())
	eventually(t, func(ctx context.Context) error { return places[0].Ping(ctx, v6) })
	settings, err := places[0].Exec(t.Context(), "sysctl", "--values", "net.ipv6.conf.eth0.accept_ra", "net.ipv6.conf.eth0.disable_ipv6")
	require.NoError(t, err)
	require.Equal(t, []string{"0", "0"}, strings.Fields(settings))

	node := c.Node("n1").Place()
	_, err = node.Exec(t.Context(), "sysctl", "--write", "net.ipv4.ip_forward=0")
	require.NoError(t, err)
	_, err = node.Exec(t.Context(), "ip", "link", "delete", "coe0")
	require.NoError(t, err)
	reach(t, node, places...)
	eventually(t, func(ctx context.Context) error {
		is, err := node.Exec(ctx, "sysctl", "--values", "net.ipv4.ip_forward")
		if err == nil && strings.TrimSpace(is) != "1" {
			err = fmt.Errorf("the node does not forward: %s", is)
		}
		return err
	})
	c.delete(t, pods...)
}

// lacksPrivileges compares the process of an agent with the first process of its node, by their folders
// in /proc.
func lacksPrivileges(t *testing.T, process, first string) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(process, name))
		require.NoError(t, err)
		return string(text)
	}
	status := read("status")
	// The bits are DAC_OVERRIDE 1, NET_ADMIN 12, NET_RAW 13, SYS_ADMIN 21.
	const four = "0000000000203002"
	for field, want := range map[string]string{
		"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "CapPrm": four, "CapEff": four, "CapBnd": four,
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		require.Contains(t, status, "\n"+field+":\t"+want+"\n")
	}
	readOnly := map[string]bool{}
	for line := range strings.Lines(read("mountinfo")) {
		fields := strings.Fields(line)
		readOnly[fields[4]] = slices.Contains(strings.Split(fields[5], ","), "ro")
	}
	for path, want := range map[string]bool{"/": true, "/proc/sys": true, "/host/net-settings": false} {
		is, mounted := readOnly[path]
		require.True(t, mounted, path)
		require.Equal(t, want, is, path)
	}
	devices, err := os.ReadDir(filepath.Join(process, "root/dev"))
	require.NoError(t, err)
	for _, d := range devices {
		is := d.Type()
		require.False(t, is&os.ModeDevice != 0 && is&os.ModeCharDevice == 0, "block device %s", d.Name())
	}
	node, err := os.Readlink(filepath.Join(first, "ns/pid"))
	require.NoError(t, err)
	own, err := os.Readlink(filepath.Join(process, "ns/pid"))
	require.NoError(t, err)
	require.NotEqual(t, node, own)
}

// makeDual creates the namespace of pods with both families.
func (c *cluster) makeDual(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pool.json")
	require.NoError(t, os.WriteFile(file, []byte(dualPool), 0o600))
	_, err := c.Ask(t.Context(), "apply", "-f", file)
	require.NoError(t, err)
	_, err = c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: dual}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func(ctx context.Context) error {
		_, err := c.Client().CoreV1().ServiceAccounts(dual).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func newDual(name, node string) *corev1.Pod {
	p := newPod(name, node)
	p.Namespace = dual
	return p
}

// testCapabilities removes each capability from the agents, one at a time. A pod then gets no network,
// for the reason that docs/security.md gives. At the end the agents have all capabilities again.
func (c *cluster) testCapabilities(t *testing.T) {
	set, err := c.Client().AppsV1().DaemonSets(kubelab.Namespace).Get(t.Context(), agentSet, metav1.GetOptions{})
	require.NoError(t, err)
	all := set.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add
	reasons := map[corev1.Capability]string{
		"DAC_OVERRIDE": "/run/openvswitch/db.sock: connect: permission denied",
		"NET_ADMIN":    "in the pod: operation not permitted",
		"NET_RAW":      "open a packet socket: operation not permitted",
		"SYS_ADMIN":    "failed to set into network namespace",
	}
	require.Len(t, all, len(reasons))
	// As on hosts where Open vSwitch runs as its own user.
	socket := strings.TrimPrefix(c.OVN.Host("n1").OVSDB.Remote, "unix:")
	require.NoError(t, os.Chown(socket, 65534, 65534))
	for _, lost := range all {
		agent := c.allowAgents(t, slices.DeleteFunc(slices.Clone(all), func(has corev1.Capability) bool { return has == lost }))
		pod := newPod("without-"+strings.ToLower(strings.ReplaceAll(string(lost), "_", "-")), "n1")
		c.create(t, pod)
		eventually(t, func(ctx context.Context) error {
			log, err := c.Run(ctx, "", "--namespace="+kubelab.Namespace, "logs", agent)
			if err == nil && !strings.Contains(log, reasons[lost]) {
				err = fmt.Errorf("the agent without %s does not say %q:\n%s", lost, reasons[lost], log)
			}
			return err
		})
		require.Error(t, c.isReady(t.Context(), pod.Namespace, pod.Name), lost)
		c.delete(t, pod)
	}
	c.allowAgents(t, all)
	pod := newPod("with-all", "n1")
	c.create(t, pod)
	reach(t, c.ready(t, pod)[0], c.Node("n2").Place())
	c.delete(t, pod)
	require.NoError(t, os.Chown(socket, 0, 0))
}

// allowAgents gives all agents these capabilities at the same time, and waits for the agent of n1. It
// returns the name of that agent's pod.
func (c *cluster) allowAgents(t *testing.T, capabilities []corev1.Capability) (agent string) {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add", "value": capabilities},
		{"op": "replace", "path": "/spec/updateStrategy/rollingUpdate/maxUnavailable", "value": "100%"},
	})
	require.NoError(t, err)
	_, err = c.Client().AppsV1().DaemonSets(kubelab.Namespace).Patch(t.Context(), agentSet, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, func(ctx context.Context) error {
		pods, err := c.Client().CoreV1().Pods(kubelab.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=n1"})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			has := p.Spec.Containers[0].SecurityContext.Capabilities.Add
			if len(pods.Items) == 1 && slices.Equal(has, capabilities) && p.Status.Phase == corev1.PodRunning {
				agent = p.Name
				return nil
			}
		}
		return fmt.Errorf("no agent on n1 has the capabilities %v", capabilities)
	})
	return agent
}

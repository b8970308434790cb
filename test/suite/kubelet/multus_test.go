package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/multus"
)

// attachmentDefinition is the resource of Multus, with the fields that it reads.
const attachmentDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {config: {type: string}}}}}}
`

// otherNetworks has two networks with plugins of the CNI project. The first one has the default route.
// The plugin of the second one fails, but only at ADD.
const otherNetworks = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: other, namespace: kube-system}
spec:
  config: '{"cniVersion": "1.0.0", "name": "other", "type": "bridge", "bridge": "other0", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: broken, namespace: work}
spec:
  config: '{"cniVersion": "1.0.0", "name": "broken", "type": "bridge", "bridge": "other0", "ipam": {"type": "static", "addresses": [{"address": "no prefix"}]}}'
`

// The annotations of pods that Multus reads, and the annotation that it writes.
const (
	networks       = "k8s.v1.cni.cncf.io/networks"
	defaultNetwork = "v1.multus-cni.io/default-network"
	networkStatus  = "k8s.v1.cni.cncf.io/network-status"
)

// networkOf is an entry of networkStatus.
type networkOf struct {
	Name, Interface, MAC string
	IPs, Gateway         []string
	Default              bool
}

// testMultus has Multus call the plugin on the nodes, installed as docs/kubernetes.md says, and removes it afterwards.
func (c *cluster) testMultus(t *testing.T) {
	c.installMultus(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the default network", c.testMultusDefault},
		{"a further network", c.testMultusFurther},
		{"a second interface is refused", func(t *testing.T) {
			c.testMultusFails(t, map[string]string{networks: "coe"}, "coe-bridge gives a pod one interface")
		}},
		{"another network fails", func(t *testing.T) {
			c.testMultusFails(t, map[string]string{networks: "broken"}, `"broken"`)
		}},
		{"Multus is killed in mid-ADD", func(t *testing.T) { c.testKilledInAdd(t, "multus") }},
	} {
		if !t.Run(test.name, func(t *testing.T) {
			test.run(t)
			c.settled(t)
		}) {
			return
		}
	}
	for _, n := range c.Nodes {
		_, confDir := n.CNI()
		require.NoError(t, os.Remove(filepath.Join(confDir, multusConfiguration)))
	}
}

// multusConfiguration is the network configuration by which container runtimes call Multus.
const multusConfiguration = "00-multus.conf"

// installMultus installs Multus and the plugins of the CNI project on all nodes, and applies the
// manifests of the guide.
func (c *cluster) installMultus(t *testing.T) {
	t.Helper()
	program, err := multus.Build(t.Context(), t.Output())
	require.NoError(t, err)
	conf, definition := fromGuide(t, "json"), fromGuide(t, "yaml")
	for _, n := range c.Nodes {
		bin, confDir := n.CNI()
		copyFile(t, program, filepath.Join(bin, "multus"), 0o755)
		for _, name := range []string{"bridge", "host-local", "static"} {
			copyFile(t, filepath.Join("/usr/lib/cni", name), filepath.Join(bin, name), 0o755)
		}
		require.NoError(t, os.Mkdir(filepath.Join(confDir, "multus.d"), 0o755))
		copyFile(t, c.Kubeconfig(), filepath.Join(confDir, "multus.d/multus.kubeconfig"), 0o600)
		require.NoError(t, os.WriteFile(filepath.Join(confDir, multusConfiguration), []byte(conf), 0o644))
	}
	require.NoError(t, c.ApplyManifest(t.Context(), attachmentDefinition))
	_, err = c.Run(t.Context(), "", "wait", "--for=condition=Established", "crd/network-attachment-definitions.k8s.cni.cncf.io", "--timeout=60s")
	require.NoError(t, err)
	for _, manifest := range []string{definition, otherNetworks} {
		require.NoError(t, c.ApplyManifest(t.Context(), manifest))
	}
}

// fromGuide returns the texts about Multus in docs/kubernetes.md that are in a language.
func fromGuide(t *testing.T, language string) string {
	t.Helper()
	path, err := kube.FindSource("docs/kubernetes.md")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	found := regexp.MustCompile("(?ms)^```" + language + " multus\n(.*?)^```$").FindSubmatch(text)
	require.Len(t, found, 2)
	return string(found[1])
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, mode))
}

// annotated returns newPod with annotations.
func annotated(name, node string, annotations map[string]string) *corev1.Pod {
	p := newPod(name, node)
	p.Annotations = annotations
	return p
}

// networkStatusOf returns the networks of a pod from the annotation of Multus.
func (c *cluster) networkStatusOf(t *testing.T, name string) (all []networkOf) {
	t.Helper()
	pod, err := c.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(pod.Annotations[networkStatus]), &all))
	return all
}

// link returns the MAC address and the IP address of a link.
func link(t *testing.T, at kubelab.Place, name string) (mac string, address netip.Addr) {
	t.Helper()
	out, err := at.Exec(t.Context(), "ip", "-brief", "link", "show", "dev", name)
	require.NoError(t, err)
	mac = strings.Fields(out)[2]
	out, err = at.Exec(t.Context(), "ip", "-brief", "-4", "address", "show", "dev", name)
	require.NoError(t, err)
	prefix, err := netip.ParsePrefix(strings.Fields(out)[2])
	require.NoError(t, err)
	return mac, prefix.Addr()
}

func (c *cluster) testMultusDefault(t *testing.T) {
	pods := []*corev1.Pod{newPod("a", "n1"), newPod("b", "n2")}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	for i, p := range places {
		mac, address := link(t, p, "eth0")
		require.Equal(t, address, p.Address)
		told := c.networkStatusOf(t, pods[i].Name)
		require.Len(t, told, 1)
		require.Len(t, told[0].Gateway, 1)
		require.Equal(t, networkOf{
			Name: "coe-bridge", Interface: "eth0", MAC: mac, IPs: []string{address.String()}, Gateway: told[0].Gateway, Default: true,
		}, told[0])
		reach(t, p, places...)
		reach(t, p, c.Outside())
	}
	c.delete(t, pods...)
}

// The default network of a pod is another one, and the pod has a further interface of coe-bridge.
// Kubelet reports the address of the other network. This does not change the interface of coe-bridge.
func (c *cluster) testMultusFurther(t *testing.T) {
	both := map[string]string{defaultNetwork: "kube-system/other", networks: "coe"}
	pods := []*corev1.Pod{annotated("c", "n1", both), annotated("d", "n2", both)}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	later := newPod("later", "n1") // when the bridge has this pod, it has the status of the earlier ones
	c.create(t, later)
	alone := c.ready(t, later)[0]

	interfaces, err := c.Ask(t.Context(), "get", "interfaces")
	require.NoError(t, err)
	for i, p := range places {
		mac, address := link(t, p, "net1")
		require.Regexp(t, `(?m)^work:`+pods[i].Name+` .* `+address.String()+` .* yes$`, interfaces)
		told := c.networkStatusOf(t, pods[i].Name)
		require.Len(t, told, 2)
		require.Equal(t, "kube-system/other", told[0].Name)
		require.Equal(t, []string{p.Address.String()}, told[0].IPs)
		require.True(t, told[0].Default)
		require.Equal(t, networkOf{Name: "work/coe", Interface: "net1", MAC: mac, IPs: []string{address.String()}}, told[1])
		routes, err := p.Exec(t.Context(), "ip", "route", "show", "default")
		require.NoError(t, err)
		require.Regexp(t, `^default via 10\.88\.0\.1 dev eth0 *\n$`, routes)
		places[i].Address = address
	}
	for _, p := range append(places, alone) {
		reach(t, p, append(places, alone)...)
	}
	c.delete(t, append(pods, later)...)
}

// testMultusFails creates a pod with several networks, one of which fails. An Event has the reason, and
// the networks that were created before are removed.
func (c *cluster) testMultusFails(t *testing.T, annotations map[string]string, says string) {
	pod := annotated("fails", "n1", annotations)
	c.create(t, pod)
	eventually(t, func(ctx context.Context) error { return c.isSaid(ctx, pod.Name, says) })
	eventually(t, func(ctx context.Context) error { return c.isUnplugged(ctx, "n1", "work:"+pod.Name) })
	c.delete(t, pod)
	eventually(t, func(ctx context.Context) error { return c.isGone(ctx, pod.Name) })
}

// isSaid fails unless an Event of a pod has a text.
func (c *cluster) isSaid(ctx context.Context, pod, says string) error {
	events, err := c.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return err
	}
	var all []string
	for _, e := range events.Items {
		if strings.Contains(e.Message, says) {
			return nil
		}
		all = append(all, e.Message)
	}
	return fmt.Errorf("no event of pod %s says %q: there are %q", pod, says, all)
}

// isUnplugged fails if a node has a port of a pod.
func (c *cluster) isUnplugged(ctx context.Context, node, pod string) error {
	ports, err := c.Node(node).Ports(ctx)
	for _, p := range ports {
		if p.Pod == pod {
			return fmt.Errorf("node %s has the port %s of pod %s", node, p.Name, pod)
		}
	}
	return err
}

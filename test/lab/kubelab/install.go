package kubelab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// installTimeout bounds the time until all nodes are ready. Beside OpenDaylight it is longer.
const (
	installTimeout    = 2 * time.Minute
	installTimeoutODL = 6 * time.Minute
)

// User and Password are the credentials for RESTCONF.
const (
	User     = "admin"
	Password = "an example's password"
)

// Namespace is the namespace of coe-bridge.
const Namespace = "coe-bridge"

// Install installs coe-bridge as docs/kubernetes.md says, and the name server, and waits until all nodes are ready.
func (l *Lab) Install(ctx context.Context) error {
	limit := installTimeout
	if l.OpenDaylight != nil {
		limit = installTimeoutODL
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := l.install(ctx); err != nil {
		return fmt.Errorf("install coe-bridge: %w", err)
	}
	return nil
}

func (l *Lab) install(ctx context.Context) error {
	for _, n := range l.controlPlane() {
		patch := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
		if _, err := l.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	bin, err := filepath.Abs(l.cfg.Bin)
	if err != nil {
		return err
	}
	if l.checkout, err = newCheckout(l.dir.path("checkout"), bin, l.Kubectl()); err != nil {
		return err
	}
	if err := l.checkout.run(ctx, l.variables(), Password+"\n", "functions", ""); err != nil {
		return err
	}
	if err := l.prepareBackend(ctx); err != nil {
		return err
	}
	if err := l.writeOverlay(); err != nil {
		return err
	}
	if err := l.writeBridgeWrapper(); err != nil {
		return err
	}
	if err := l.Apply(ctx); err != nil {
		return err
	}
	if err := l.ApplyManifest(ctx, fmt.Sprintf(dnsManifest, l.dns())); err != nil {
		return err
	}
	return l.AwaitReady(ctx)
}

// prepareBackend runs the commands of the guide that are for one backend.
func (l *Lab) prepareBackend(ctx context.Context) error {
	if l.OpenDaylight != nil {
		return l.checkout.run(ctx, "", odl.Password+"\n", "functions", "odl")
	}
	if err := l.checkout.run(ctx, l.variables(), "", "functions", "ovn"); err != nil {
		return err
	}
	return guide.EncryptOVN(ctx, l.OVN, l.checkout.path("certificates/ovn"))
}

// controlPlane returns the nodes with a bridge.
func (l *Lab) controlPlane() []*Node {
	if l.cfg.Bridges == 0 {
		return l.Nodes
	}
	return l.Nodes[:l.cfg.Bridges]
}

// variables replace the variables of the guide.
func (l *Lab) variables() string {
	var bridges, names []string
	for _, n := range l.controlPlane() {
		bridges = append(bridges, l.first(n.Address.String(), n.address6()))
	}
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	return fmt.Sprintf("BRIDGES=%q ETCD=%s ETCD_NODES=%s NODES=%q\n",
		strings.Join(bridges, " "), bridges[0], l.Nodes[0].Name, strings.Join(names, " "))
}

// overlay is the kustomization that the guide tells an operator to write.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: coe-bridge
resources: [../bridge, ../agent, ../etcd]
images:
  - {name: coe-bridge, newName: localhost/coe-bridge, newTag: lab}
  - {name: registry.k8s.io/etcd, newName: localhost/etcd, newTag: lab}
replicas: [{name: coe-bridge, count: %d}]
configMapGenerator:
  - {name: coe-bridge, behavior: merge, files: [config.yaml], envs: [apiserver.env]}
  - {name: coe-bridge-agent, behavior: merge, envs: [agent.env]}
  - {name: coe-bridge-etcd, behavior: merge, envs: [etcd.env]}
`

// ranges returns the ranges, or the addresses, of the families of the cluster, in their order.
func (l *Lab) ranges(four, six string) string {
	switch {
	case !l.cfg.DualStack:
		return four
	case l.cfg.IPv6First:
		return six + "," + four
	default:
		return four + "," + six
	}
}

// first returns the text for the first family of the cluster.
func (l *Lab) first(four, six string) string {
	if l.cfg.IPv6First {
		return six
	}
	return four
}

// dns is the cluster IP of the name server.
func (l *Lab) dns() string { return l.first("10.96.0.10", "fd00:10:96::a") }

// nodeNetwork returns the line of the bridge's configuration file by which nodes have IPv6 addresses.
func (l *Lab) nodeNetwork() string {
	if l.cfg.DualStack {
		return "node-network: 100.96.0.0/16,fd00:96::/64\n"
	}
	return ""
}

// backend returns the lines about the backend in the bridge's configuration file and in agent.env.
func (l *Lab) backend() (bridge, agent string) {
	if l.OpenDaylight == nil {
		return fmt.Sprintf("backend: ovn\novn-nb: ssl:%s:6641\n", ovnhost.Central), ""
	}
	return fmt.Sprintf("backend: odl\nodl-url: %s\nodl-auth-file: /etc/coe-bridge/odl/auth\n", l.OpenDaylight.Inside),
		fmt.Sprintf("BACKEND=odl\nOVS_MANAGER=%s\nCALL_DEADLINE=90s\n", l.OpenDaylight.Managers())
}

// writeOverlay edits the example like an operator.
func (l *Lab) writeOverlay() error {
	var bridges []string
	for _, n := range l.Nodes {
		bridges = append(bridges, fmt.Sprintf("https://%s:8181", n.inURL()))
	}
	first := l.Nodes[0]
	bridge, agent := l.backend()
	for name, text := range map[string]string{
		"kustomization.yaml": fmt.Sprintf(overlay, min(2, len(l.Nodes))),
		"apiserver.env":      fmt.Sprintf("KUBERNETES_SERVICE_HOST=%s\nKUBERNETES_SERVICE_PORT=6443\n", ovnhost.Central),
		"agent.env":          "BRIDGES=" + strings.Join(bridges, ",") + "\n" + agent,
		"etcd.env":           fmt.Sprintf("ETCD_INITIAL_CLUSTER=%s=https://%s:12380\n", first.Name, first.inURL()),
		"config.yaml": bridge + fmt.Sprintf("etcd-endpoints: [\"https://%s:12379\"]\netcd-max-txn-ops: 20000\npool: [%s]\nservice-network: [%s]\nexternal-addresses: [203.0.113.0/24]\nhost-ports: [\"54323\"]\nlog-format: json\n%s",
			first.inURL(), l.ranges(PodCIDR, PodCIDR6), l.ranges(ServiceCIDR, ServiceCIDR6), l.nodeNetwork()) + strings.Join(l.cfg.Settings, "\n"),
	} {
		if err := os.WriteFile(l.checkout.path("deploy/kubernetes/mine", name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write overlay: %w", err)
		}
	}
	if !l.cfg.IPv6First {
		return nil
	}
	etcd := l.checkout.path("deploy/kubernetes/etcd/daemonset.yaml") // as the guide says for such clusters
	text, err := os.ReadFile(etcd)
	if err == nil {
		err = os.WriteFile(etcd, bytes.ReplaceAll(text, []byte("https://$(HOST_IP)"), []byte("https://[$(HOST_IP)]")), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write brackets around the addresses of etcd: %w", err)
	}
	return nil
}

// Apply applies coe-bridge's manifests. It can be repeated.
func (l *Lab) Apply(ctx context.Context) error {
	return l.checkout.run(ctx, "", "", "apply")
}

// AwaitReady waits until all nodes are ready, and until OpenDaylight has joined them by tunnels.
func (l *Lab) AwaitReady(ctx context.Context) error {
	for _, n := range l.Nodes {
		if err := ovnhost.Poll(ctx, n.ready); err != nil {
			return err
		}
	}
	if l.OpenDaylight == nil {
		return nil
	}
	return l.OpenDaylight.AwaitTunnels(ctx)
}

// Uninstall removes coe-bridge as docs/kubernetes.md says.
func (l *Lab) Uninstall(ctx context.Context) error {
	return l.checkout.run(ctx, "", "", "remove")
}

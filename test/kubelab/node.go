package kubelab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/kubelab/cgroups"
	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// Node is a node of a lab: a host of OVN, with containerd and kubelet.
type Node struct {
	Name    string
	Address netip.Addr

	lab     *Lab
	dir     string
	process *ovnhost.Process
}

// folders of a node: see the command node.
var folders = []string{"upper", "work", "root", "containerd", "kubelet", "log", "etc/images", "etc/manifests", "cni/bin", "cni/net.d"}

// group is the name of a node's control groups.
func group(prefix, node string) string { return "kubelab-" + prefix + "-" + node }

// startNode starts a node the first time.
func (l *Lab) startNode(ctx context.Context, i int) (*Node, error) {
	host := l.OVN.Hosts[i]
	n := &Node{Name: host.Name, Address: host.Address, lab: l, dir: l.dir.path(nodesDir, host.Name)}
	if err := n.prepare(i); err != nil {
		return nil, fmt.Errorf("prepare node %s: %w", n.Name, err)
	}
	var err error
	n.process, err = l.OVN.Launch(ctx, ovnhost.Command{Name: n.Name + "/node", Argv: []string{
		l.dir.path("bin", "node"), "-name=" + n.Name, "-netns=" + l.OVN.Namespace(n.Name), "-group=" + group(l.cfg.Prefix, n.Name), "-dir=" + n.dir,
		"-ovs=" + host.Dir, "-hyperkube=" + l.tools.hyperkube, "--", "--node-ip=" + n.Address.String(),
	}})
	return n, err
}

// prepare makes the files of a node.
func (n *Node) prepare(i int) error {
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(n.dir, f), 0o755); err != nil {
			return err
		}
	}
	for _, name := range n.lab.imagesOf(i) {
		from := n.lab.imageFile(name)
		if err := os.Link(from, filepath.Join(n.dir, "etc/images", filepath.Base(from))); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig} {
		if err := os.WriteFile(filepath.Join(n.dir, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := copyProgram("/usr/lib/cni/loopback", filepath.Join(n.dir, "cni/bin/loopback")); err != nil {
		return err
	}
	return n.lab.access.writeKubeconfig(filepath.Join(n.dir, "etc/kubelet.kubeconfig"), n.Name)
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// awaitJoined waits until the node's kubelet has made the node known.
func (n *Node) awaitJoined(ctx context.Context) error {
	err := ovnhost.Poll(ctx, func(ctx context.Context) error {
		_, err := n.lab.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for node %s to join (logs: %s): %w", n.Name, n.Logs(), err)
	}
	return nil
}

// ready tells whether kubelet says that the node is.
func (n *Node) ready(ctx context.Context) error {
	is, err := n.lab.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range is.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %s", n.Name, c.Message)
		}
	}
	for _, t := range is.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("node %s has the taint %s", n.Name, t.Key)
		}
	}
	return nil
}

// Logs is the folder with the logs of containerd and kubelet, and those of pods.
func (n *Node) Logs() string { return filepath.Join(n.dir, "log") }

// CNI are the folders of the node with CNI's programs and configurations.
func (n *Node) CNI() (bin, conf string) {
	return filepath.Join(n.dir, "cni/bin"), filepath.Join(n.dir, "cni/net.d")
}

// StaticPods is the folder in which kubelet looks for pods that no API server knows.
func (n *Node) StaticPods() string { return filepath.Join(n.dir, "etc/manifests") }

// Down ends all that runs on the node, its switch too, and takes away its namespaces and
// links, as a loss of power does. What is on disk stays.
func (n *Node) Down(ctx context.Context) error {
	if err := n.process.Kill(); err != nil {
		return err
	}
	if err := n.lab.OVN.Down(ctx, n.Name); err != nil {
		return err
	}
	return cgroups.Remove(group(n.lab.cfg.Prefix, n.Name))
}

// Up starts a node that was taken down.
func (n *Node) Up(ctx context.Context) error {
	if err := n.lab.OVN.Up(ctx, n.Name); err != nil {
		return err
	}
	return n.process.Start(ctx)
}

// PID is the process that is the first in the node.
func (n *Node) PID() (int, error) {
	outer, err := n.process.PID()
	if err != nil {
		return 0, err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
	if err != nil {
		return 0, fmt.Errorf("find first process of node %s: %w", n.Name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		return 0, fmt.Errorf("find first process of node %s: %w", n.Name, err)
	}
	return pid, nil
}

package kubelab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab/cgroups"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Node is a node of a lab: an OVN host with containerd and kubelet.
type Node struct {
	Name    string
	Address netip.Addr

	lab     *Lab
	dir     string
	process *ovnhost.Process
}

// folders are the directories of a node: see the command node.
var folders = []string{"upper", "work", "root", "containerd", "kubelet", "log", "etc/images", "etc/manifests", "cni/bin", "cni/net.d"}

// group returns the name of a node's control groups.
func group(prefix, node string) string { return "kubelab-" + prefix + "-" + node }

// startNode starts a node for the first time.
func (l *Lab) startNode(ctx context.Context, i int) (*Node, error) {
	host := l.OVN.Hosts[i]
	n := &Node{Name: host.Name, Address: host.Address, lab: l, dir: l.dir.path(nodesDir, host.Name)}
	if err := n.prepare(i); err != nil {
		return nil, fmt.Errorf("prepare node %s: %w", n.Name, err)
	}
	addresses, err := l.addressesOf(ctx, n)
	if err != nil {
		return nil, err
	}
	n.process, err = l.OVN.Launch(ctx, ovnhost.Command{Name: n.Name + "/node", Argv: []string{
		l.dir.path("bin", "node"), "-name=" + n.Name, "-netns=" + l.OVN.Namespace(n.Name), "-group=" + group(l.cfg.Prefix, n.Name), "-dir=" + n.dir,
		"-ovs=" + host.Dir, "-hyperkube=" + l.tools.hyperkube, "--", "--node-ip=" + addresses,
	}})
	return n, err
}

// addressesOf returns the internal addresses of a node. In a dual-stack cluster it gives the node an IPv6 address.
func (l *Lab) addressesOf(ctx context.Context, n *Node) (string, error) {
	if !l.cfg.DualStack {
		return n.Address.String(), nil
	}
	if _, err := l.OVN.Exec(ctx, n.Name, "ip", "address", "replace", n.address6()+"/64", "dev", "br-phy", "nodad"); err != nil {
		return "", fmt.Errorf("give node %s an IPv6 address: %w", n.Name, err)
	}
	return l.ranges(n.Address.String(), n.address6()), nil
}

// address6 is the node's IPv6 address in a dual-stack cluster.
func (n *Node) address6() string { return fmt.Sprintf("fd00:31:99::%d", n.Address.As4()[3]) }

// inURL returns the node's first address, as in a URL.
func (n *Node) inURL() string { return n.lab.first(n.Address.String(), "["+n.address6()+"]") }

// prepare creates the files of a node.
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
	for name, text := range map[string]string{"containerd.toml": containerdConfig, "kubelet.yaml": fmt.Sprintf(kubeletConfig, n.lab.dns())} {
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

// awaitJoined waits until the node's kubelet has created its Node object.
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

// ready fails unless the kubelet reports the node as ready.
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

// Logs returns the directory with the logs of containerd, kubelet and pods.
func (n *Node) Logs() string { return filepath.Join(n.dir, "log") }

// CNI returns the node's directories of CNI programs and configurations.
func (n *Node) CNI() (bin, conf string) {
	return filepath.Join(n.dir, "cni/bin"), filepath.Join(n.dir, "cni/net.d")
}

// StaticPods returns the kubelet's directory of static pods.
func (n *Node) StaticPods() string { return filepath.Join(n.dir, "etc/manifests") }

// Down kills all processes of the node, including its switch, and removes its namespaces and links,
// like a power failure. Files on disk stay.
func (n *Node) Down(ctx context.Context) error {
	if err := n.process.Kill(); err != nil {
		return err
	}
	if err := n.lab.OVN.Down(ctx, n.Name); err != nil {
		return err
	}
	return cgroups.Remove(group(n.lab.cfg.Prefix, n.Name))
}

// Up starts a node after Down.
func (n *Node) Up(ctx context.Context) error {
	if err := n.lab.OVN.Up(ctx, n.Name); err != nil {
		return err
	}
	return n.process.Start(ctx)
}

// PID returns the ID of the node's first process.
func (n *Node) PID() (int, error) {
	outer, err := n.process.PID()
	if err != nil {
		return 0, err
	}
	pid, err := onlyChild(outer)
	if err != nil {
		return 0, fmt.Errorf("find first process of node %s: %w", n.Name, err)
	}
	return pid, nil
}

// onlyChild returns the process that any thread of a process has forked (proc_pid_task(5), "children"). The Go runtime chooses the thread.
func onlyChild(parent int) (int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return 0, err
	}
	var all []string
	for _, file := range threads {
		of, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
		all = append(all, strings.Fields(string(of))...)
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("process %d has the children %v, want one", parent, all)
	}
	return strconv.Atoi(all[0])
}

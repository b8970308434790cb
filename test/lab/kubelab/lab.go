// Package kubelab creates a real Kubernetes cluster on one machine: etcd, API server, controllers, scheduler, and nodes with
// containerd, runc and kubelet. Each node is on a host of test/lab/ovnhost with its own Open vSwitch and ovn-controller, or
// with a switch that an OpenDaylight of test/lab/odl programs. As on any cluster, pods have no network until coe-bridge is
// installed from deploy/; Install does that.
//
// The images contain locally built programs; nothing is pulled. A lab uses its own network namespaces, control groups and
// directory, and another process can remove it if its owner was killed. The package needs root and the Debian packages that
// Missing returns.
package kubelab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// startTimeout bounds the start of Kubernetes, without builds.
const startTimeout = 3 * time.Minute

// The cluster's address ranges, as kubeadm chooses them.
const (
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
	// The ranges of a dual-stack cluster beside these.
	ServiceCIDR6 = "fd00:10:96::/112"
	PodCIDR6     = "fd00:10:244::/64"
)

// central6 is the IPv6 address of the central namespace in a dual-stack cluster. The IPv6 address of a node ends like its IPv4 address.
const central6 = "fd00:31:99::1"

// Config configures a lab.
type Config struct {
	// Prefix is the name of the lab. Prefixes are unique.
	Prefix string
	// Nodes are the nodes' names.
	Nodes []string
	// Bridges is how many of the nodes, the first ones, are control-plane nodes and have a bridge; 0 for all.
	Bridges int
	// Bin is the directory with coe-bridge and coe-cni from make build.
	Bin string
	// OpenDaylight is the release of the OpenDaylight that programs the switches; empty for OVN.
	OpenDaylight odl.Release
	// DualStack gives nodes, pods and services IPv6 addresses beside the IPv4 addresses, which come first.
	DualStack bool
	// IPv6First lets the IPv6 addresses of a dual-stack cluster come first.
	IPv6First bool
	// Settings are lines that are added to the bridge's configuration file.
	Settings []string
	// Images are additional images for all nodes.
	Images []Image
	// Egress lets the API server connect to pods and services, for example for kubectl exec. This process opens the
	// connections from the first node, and must keep running.
	Egress bool
	// Survive keeps the lab running when its owner ends; Cleanup removes it.
	Survive bool
	// Logs is a directory that gets the logs of a lab that cannot be started, which are removed with it; empty for none.
	Logs string
	// Log receives every process.
	Log *slog.Logger
	// Progress receives progress reports of builds. Default standard error.
	Progress io.Writer
}

// Lab is a running cluster.
type Lab struct {
	// OVN has the hosts of the nodes. With OpenDaylight they have switches only.
	OVN *ovnhost.Lab
	// OpenDaylight is the controller of the switches; nil with OVN.
	OpenDaylight *odl.Controller
	// Nodes are in the order of Config.Nodes.
	Nodes []*Node
	// Etcd, APIServer, Controllers and Scheduler are the processes of the control plane.
	Etcd, APIServer, Controllers, Scheduler *ovnhost.Process

	cfg      Config
	dir      *stateDir
	tools    tools
	access   *access
	client   *kubernetes.Clientset
	checkout *checkout // nil before coe-bridge is installed
	egress   *egress   // nil without Config.Egress
}

// Start creates a lab, and returns when all nodes have joined. They are not ready, because there is no pod network. A lab that cannot
// be started is removed, except with Survive: then it stays for its logs, until Cleanup.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	if cfg.Progress == nil {
		cfg.Progress = os.Stderr
	}
	l := &Lab{cfg: cfg}
	if err := l.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start cluster %q: %w", cfg.Prefix, err)
	}
	if err := l.start(ctx); err != nil {
		if cfg.Logs != "" {
			err = errors.Join(err, l.KeepLogs(cfg.Logs))
		}
		if !cfg.Survive {
			err = errors.Join(err, l.Close())
		}
		return nil, fmt.Errorf("start cluster %q: %w", cfg.Prefix, err)
	}
	return l, nil
}

// prepare creates everything except processes.
func (l *Lab) prepare(ctx context.Context) (err error) {
	if missing := Missing(); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages: apt-get install %s", strings.Join(missing, " "))
	}
	if err := CleanupDead(); err != nil {
		return err
	}
	if l.cfg.OpenDaylight != "" {
		if _, err := odl.Install(ctx, l.cfg.OpenDaylight, l.cfg.Progress); err != nil {
			return err
		}
	}
	if l.tools, err = buildTools(ctx, l.cfg.Progress); err != nil {
		return err
	}
	if l.dir, err = createStateDir(l.cfg.Prefix, l.cfg.Survive); err != nil {
		return err
	}
	if l.access, err = newAccess(l.dir.path("plane"), l.cfg.Nodes); err != nil {
		return err
	}
	return l.makeImages(ctx)
}

func (l *Lab) start(ctx context.Context) (err error) {
	if err := l.startNetwork(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if l.client, err = kubernetes.NewForConfig(l.RESTConfig()); err != nil {
		return err
	}
	if err := l.writeWrapper(); err != nil {
		return err
	}
	if err := l.startControlPlane(ctx); err != nil {
		return err
	}
	for i := range l.cfg.Nodes {
		n, err := l.startNode(ctx, i)
		if err != nil {
			return err
		}
		l.Nodes = append(l.Nodes, n)
	}
	for _, n := range l.Nodes {
		if err := n.awaitJoined(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startNetwork starts the hosts with OVN or OpenDaylight.
func (l *Lab) startNetwork(ctx context.Context) (err error) {
	l.OVN, err = ovnhost.Start(ctx, ovnhost.Config{
		Prefix: l.cfg.Prefix, Hosts: l.cfg.Nodes, SwitchesOnly: l.cfg.OpenDaylight != "", Survive: l.cfg.Survive, Log: l.cfg.Log,
	})
	if err == nil && l.cfg.OpenDaylight != "" {
		l.OpenDaylight, err = odl.Start(ctx, odl.Config{Lab: l.OVN, Release: l.cfg.OpenDaylight, Progress: l.cfg.Progress})
	}
	return err
}

// Node returns the node with that name, or nil.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Close ends and removes the lab.
func (l *Lab) Close() error {
	var err error
	if l.OpenDaylight != nil {
		err = l.OpenDaylight.Close()
	}
	if l.OVN != nil {
		err = errors.Join(err, l.OVN.Close())
	}
	if l.egress != nil {
		err = errors.Join(err, l.egress.close())
	}
	return errors.Join(err, l.dir.unlock(), Cleanup(l.cfg.Prefix))
}

// Logs returns a directory with one log per process; Node.Logs returns those on a node.
func (l *Lab) Logs() string { return filepath.Join(l.OVN.Dir, "logs") }

// KeepLogs copies the logs of the cluster to a directory: the logs of processes, nodes, pods and OpenDaylight.
func (l *Lab) KeepLogs(to string) error {
	if l.OVN == nil {
		return nil
	}
	errs := []error{os.CopyFS(to, os.DirFS(l.Logs()))}
	for _, n := range l.Nodes {
		errs = append(errs, os.CopyFS(filepath.Join(to, n.Name), os.DirFS(n.Logs())))
	}
	if l.OpenDaylight != nil {
		errs = append(errs, os.CopyFS(filepath.Join(to, "karaf"), os.DirFS(filepath.Dir(l.OpenDaylight.Log()))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("keep the logs of the cluster: %w", err)
	}
	return nil
}

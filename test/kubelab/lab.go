// Package kubelab makes a real Kubernetes cluster on one machine: etcd, API server,
// controllers and scheduler, and nodes with containerd, runc and kubelet, each on a host
// of test/ovnhost with its own Open vSwitch and ovn-controller. Its pods have no network
// until coe-bridge is installed from deploy/, as on any cluster; Install does that.
//
// Images are made of programs that are built here; nothing is pulled. All of a lab is in
// network namespaces, control groups and a folder of its own, and a later process can
// remove it when the one that made it was killed. The package needs root and the Debian
// packages that Missing names.
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

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// startTimeout bounds the start of a lab, once what it runs is built.
const startTimeout = 3 * time.Minute

// The cluster's ranges, of the kinds that kubeadm has.
const (
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
	// DNS is the cluster IP of the name server.
	DNS = "10.96.0.10"
)

// Config says which lab to start.
type Config struct {
	// Prefix names the lab. There is one lab of a prefix at a time.
	Prefix string
	// Nodes are the nodes' names. The first is a control-plane node.
	Nodes []string
	// Bin is the folder with coe-bridge and coe-cni, as make build leaves it.
	Bin string
	// Images are further images, for all nodes.
	Images []Image
	// Egress has the API server reach pods and services, for those who ask it to: this
	// process takes its connections to the cluster from the first node, where a control
	// plane usually is. It ends with this process.
	Egress bool
	// Survive leaves the lab running when the process that started it ends; Cleanup
	// removes it.
	Survive bool
	// Log is told about every process.
	Log *slog.Logger
	// Progress is told how builds go, where they are needed. Default standard error.
	Progress io.Writer
}

// Lab is a running cluster.
type Lab struct {
	// OVN are the hosts that the nodes are on.
	OVN *ovnhost.Lab
	// Nodes are in the order of Config.Nodes.
	Nodes []*Node
	// Etcd, APIServer, Controllers and Scheduler are the control plane's processes.
	Etcd, APIServer, Controllers, Scheduler *ovnhost.Process

	cfg      Config
	dir      *stateDir
	tools    tools
	access   *access
	client   *kubernetes.Clientset
	checkout *checkout // once coe-bridge is installed
	egress   *egress   // nil without Config.Egress
}

// Start makes a lab and returns when all nodes have joined. They are not ready: there is
// no network yet. A lab that could not be started is removed, but for one that was to
// survive: it stays for its logs, until Cleanup.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	if cfg.Progress == nil {
		cfg.Progress = os.Stderr
	}
	l := &Lab{cfg: cfg}
	if err := l.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start cluster %q: %w", cfg.Prefix, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := l.start(ctx); err != nil {
		if !cfg.Survive {
			err = errors.Join(err, l.Close())
		}
		return nil, fmt.Errorf("start cluster %q: %w", cfg.Prefix, err)
	}
	return l, nil
}

// prepare makes all that has no process.
func (l *Lab) prepare(ctx context.Context) (err error) {
	if missing := Missing(); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages: apt-get install %s", strings.Join(missing, " "))
	}
	if err := CleanupDead(); err != nil {
		return err
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
	l.OVN, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: l.cfg.Prefix, Hosts: l.cfg.Nodes, Survive: l.cfg.Survive, Log: l.cfg.Log})
	if err != nil {
		return err
	}
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

// Node is the node of that name, or nil.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Close ends and removes all of the lab.
func (l *Lab) Close() error {
	var err error
	if l.OVN != nil {
		err = l.OVN.Close()
	}
	if l.egress != nil {
		err = errors.Join(err, l.egress.close())
	}
	return errors.Join(err, l.dir.unlock(), Cleanup(l.cfg.Prefix))
}

// Logs is a folder with one log a process; Node.Logs are those on a node.
func (l *Lab) Logs() string { return filepath.Join(l.OVN.Dir, "logs") }

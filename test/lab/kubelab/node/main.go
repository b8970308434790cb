// Command node is a node of the lab's clusters. It runs containerd and kubelet in their own mount, process,
// host name, IPC and control group namespaces, in an existing network namespace, with a copy-on-write view
// of this machine's files. A pod cannot affect the machine through the node's files, mounts or processes.
// When this process ends, all processes on the node end.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab/cgroups"
)

// stage is the environment variable with the role of a process of this program. It is unset outside of the
// node. Inside, the first process and the process that serves have different values.
const (
	stage   = "KUBELAB_STAGE"
	inside  = "inside"
	serving = "serving"
)

// node is the configuration of a node.
type node struct {
	name      string   // of its host
	network   string   // the name of the network namespace for "ip netns"
	group     string   // the name of its control groups
	dir       string   // the folder with the node's data and the configuration of its programs
	ovs       string   // folder of the sockets of the node's Open vSwitch
	hyperkube string   // the binary that holds kubelet
	kubelet   []string // further arguments of kubelet
}

func main() {
	var n node
	flag.StringVar(&n.name, "name", "", "the node's name")
	flag.StringVar(&n.network, "netns", "", "name of its network namespace")
	flag.StringVar(&n.group, "group", "", "name of its control groups")
	flag.StringVar(&n.dir, "dir", "", "folder of the node")
	flag.StringVar(&n.ovs, "ovs", "", "folder of Open vSwitch's sockets")
	flag.StringVar(&n.hyperkube, "hyperkube", "", "binary that holds kubelet")
	flag.Parse()
	n.kubelet = flag.Args()
	run := map[string]func() error{"": n.enclose, inside: n.run, serving: n.serve}[os.Getenv(stage)]
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "node %s: %s\n", n.name, err)
		os.Exit(1)
	}
}

// enclose runs this program again as the first process of the node's namespaces, and waits for it. The child
// ends with this process. The forking thread is kept, because the child would also end with that thread.
func (n *node) enclose() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := h.Enter(n.group, os.Getpid()); err != nil {
			return err
		}
	}
	if err := n.enterNetwork(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+inside)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd.Run()
}

// enterNetwork moves this thread into the node's network namespace.
func (n *node) enterNetwork() error {
	network, err := netns.GetFromName(n.network)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n.network, err)
	}
	defer func() { _ = network.Close() }()
	if err := netns.Set(network); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n.network, err)
	}
	return nil
}

// run sets up the node from inside its namespaces.
func (n *node) run() error {
	if err := syscall.Sethostname([]byte(n.name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := n.mountRoot(); err != nil {
		return fmt.Errorf("make the node's files: %w", err)
	}
	return n.reap()
}

// Command conformance runs the network tests of Kubernetes' own end-to-end suite, [sig-network], on
// a cluster of a control-plane node, which runs no pods of the tests, and six nodes in three zones. coe-bridge is installed
// there as docs/kubernetes.md says. passing.txt has the tests that must pass. excluded.txt has all others, with the reason. The command fails if the
// suite has a test that is in neither file. On OpenDaylight, passing-odl.txt has the tests that must pass, and excluded-odl.txt those that
// are excluded besides. With -ipv6-first the tests of passing.txt that need both families run on a cluster whose first family is IPv6.
//
// The suite is built from the module of the Kubernetes that runs. The images of its pods are made
// of programs that are built here and of files of this machine. Nothing is pulled.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// runTimeout bounds a whole run, including the builds of the first run.
const runTimeout = 3 * time.Hour

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// logFolder has the logs of the last run.
const logFolder = ".run/conformance"

// options has the options of the command line.
type options struct {
	bin      string
	nodes    int
	parallel int
	backend  string
	dual     bool           // a dual-stack cluster
	six      bool           // whose IPv6 addresses come first
	only     *regexp.Regexp // nil for the tests that must pass
}

func run(ctx context.Context) error {
	o, err := parseOptions()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces and mounts need root: run as root")
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	return conform(ctx, o, screen.New(os.Stdout))
}

func parseOptions() (o options, err error) {
	flag.StringVar(&o.bin, "bin", "bin", "folder with coe-bridge and coe-cni, as built by make build")
	flag.IntVar(&o.nodes, "nodes", 6, "number of nodes beside the control-plane node, in three zones; some tests need six")
	flag.StringVar(&o.backend, "backend", onOVN, "what programs the switches: ovn or odl (OpenDaylight)")
	flag.BoolVar(&o.dual, "dual-stack", true, "give nodes, pods and services IPv6 addresses after the IPv4 addresses, as the tests with IPv6DualStack require; no effect with OpenDaylight, whose cluster has IPv4 alone")
	flag.BoolVar(&o.six, "ipv6-first", false, "let the IPv6 addresses of the dual-stack cluster come first, and run the tests with IPv6DualStack; other tests need addresses of load balancers, which are IPv4 alone")
	flag.IntVar(&o.parallel, "parallel", 4, "number of tests that run at the same time")
	flag.Func("run", "run the suite's tests that match this regular expression, including excluded ones, instead of the tests that must pass", func(text string) error {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	if o.six && (!o.dual || o.backend == onODL) {
		return o, errors.New("-ipv6-first: needs a dual-stack cluster, on OVN")
	}
	if listFiles[o.backend] == nil {
		return o, fmt.Errorf("backend %q: want %s or %s", o.backend, onOVN, onODL)
	}
	return o, nil
}

// conform runs the tests, and fails unless all have passed.
func conform(ctx context.Context, o options, s *screen.Screen) error {
	s.Step("Look for what the suite needs, build what is missing")
	if missing := missing(); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages: make deps, as root, installs %v", missing)
	}
	suite, err := buildSuite(ctx, os.Stdout)
	if err != nil {
		return err
	}
	s.Step("Compare the suite's tests with the lists")
	tests, err := choose(ctx, suite, o.backend, o.six, o.only)
	if err != nil {
		return err
	}
	s.Say("%d tests will run", len(tests))
	logs, err := emptyFolder(logFolder)
	if err != nil {
		return err
	}
	s.Step("Start Kubernetes: control plane and nodes; install coe-bridge")
	cluster := filepath.Join(logs, "cluster")
	lab, err := startLab(ctx, suite, o, cluster)
	if err != nil {
		return err
	}
	s.Step("Run the tests; the log of each is in " + logs)
	start := time.Now()
	r := runner{suite: suite, lab: lab, logs: logs, said: func(result result) { s.Say("%s", result) }}
	results := r.runAll(ctx, tests, o.parallel)
	took := time.Since(start)
	err = judge(results)
	if err != nil {
		err = errors.Join(err, lab.KeepLogs(cluster))
	}
	if err := errors.Join(err, ctx.Err(), lab.Close()); err != nil {
		return err
	}
	s.Step(fmt.Sprintf("All %d tests have passed, in %s", len(results), took.Round(time.Second)))
	return nil
}

// loadBalancers has the addresses of services of type LoadBalancer. The bridge of a lab allows 203.0.113.0/24, of which
// tests use 203.0.113.250.
const loadBalancers = "203.0.113.0/26"

// client is the address from which the suite sends to services of type LoadBalancer. A test expects that it is not in the /16
// of the nodes.
const client = "198.51.100.1"

// startLab starts a cluster with coe-bridge that has the images of the suite, and a load balancer. If that fails, the logs of the cluster
// are copied to a folder.
func startLab(ctx context.Context, suite *suite, o options, logs string) (*kubelab.Lab, error) {
	images, err := suite.makeImages(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range 1 + o.nodes {
		names = append(names, "node"+strconv.Itoa(i+1))
	}
	cfg := kubelab.Config{
		Prefix: "e" + strconv.Itoa(os.Getpid()), Nodes: names, Bridges: 1, Bin: o.bin, DualStack: o.dual, IPv6First: o.six,
		Images: images, Egress: true, Logs: logs, Log: slog.New(slog.DiscardHandler), Progress: os.Stdout,
	}
	if o.backend == onODL {
		cfg.OpenDaylight, cfg.DualStack = odl.Oxygen, false
	}
	lab, err := kubelab.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, lab, suite); err != nil {
		return nil, errors.Join(err, lab.KeepLogs(logs), lab.Close())
	}
	return lab, nil
}

// prepare puts the nodes of a cluster into zones, keeps pods from the control-plane node, installs coe-bridge, and starts
// the load balancer.
func prepare(ctx context.Context, lab *kubelab.Lab, suite *suite) error {
	patch := func(n *kubelab.Node, patch string) error {
		_, err := lab.Client().CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	for i, n := range lab.Nodes {
		zone := fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"zone%d"}}}`, i%3+1)
		if err := patch(n, zone); err != nil {
			return fmt.Errorf("put node %s into a zone: %w", n.Name, err)
		}
	}
	taint := `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}`
	if err := patch(lab.Nodes[0], taint); err != nil {
		return fmt.Errorf("keep pods from node %s: %w", lab.Nodes[0].Name, err)
	}
	if err := lab.Install(ctx); err != nil {
		return err
	}
	if _, err := lab.OVN.Exec(ctx, ovnhost.CentralNamespace, "ip", "address", "add", client+"/32", "dev", "lo"); err != nil {
		return err
	}
	for _, n := range lab.Nodes {
		if _, err := lab.OVN.Exec(ctx, n.Name, "ip", "route", "add", client+"/32", "via", ovnhost.Central.String()); err != nil {
			return err
		}
	}
	_, err := lab.OVN.Launch(ctx, ovnhost.Command{Name: "balancer", Pod: ovnhost.CentralNamespace, Argv: []string{
		suite.balancer, "--kubeconfig=" + lab.Kubeconfig(), "--addresses=" + loadBalancers, "--source=" + client,
	}})
	return err
}

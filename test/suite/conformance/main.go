// Command conformance runs the network tests of Kubernetes' own end-to-end suite, [sig-network], on
// a cluster of two nodes. coe-bridge is installed there as docs/kubernetes.md says. passing.txt has
// the tests that must pass. excluded.txt has all others, with the reason. The command fails if the
// suite has a test that is in neither file.
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
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// runTimeout bounds a whole run, including the builds of the first run.
const runTimeout = 2 * time.Hour

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
	parallel int
	only     *regexp.Regexp // nil for the tests of passing.txt
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
	flag.IntVar(&o.parallel, "parallel", 4, "number of tests that run at the same time")
	flag.Func("run", "run the suite's tests that match this regular expression, including excluded ones, instead of the tests in passing.txt", func(text string) error {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flag.Arg(0))
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
	tests, err := choose(ctx, suite, o.only)
	if err != nil {
		return err
	}
	s.Say("%d tests will run", len(tests))
	logs, err := emptyFolder(logFolder)
	if err != nil {
		return err
	}
	s.Step("Start Kubernetes: control plane and two nodes; install coe-bridge")
	lab, err := startLab(ctx, suite, o.bin)
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
		err = errors.Join(err, keepLogs(lab, logs))
	}
	if err := errors.Join(err, ctx.Err(), lab.Close()); err != nil {
		return err
	}
	s.Step(fmt.Sprintf("All %d tests have passed, in %s", len(results), took.Round(time.Second)))
	return nil
}

// startLab starts a cluster with coe-bridge that has the images of the suite.
func startLab(ctx context.Context, suite *suite, bin string) (*kubelab.Lab, error) {
	images, err := suite.makeImages(ctx)
	if err != nil {
		return nil, err
	}
	lab, err := kubelab.Start(ctx, kubelab.Config{
		Prefix: "e" + strconv.Itoa(os.Getpid()), Nodes: []string{"node1", "node2"}, Bin: bin,
		Images: images, Egress: true, Log: slog.New(slog.DiscardHandler), Progress: os.Stdout,
	})
	if err != nil {
		return nil, err
	}
	if err := lab.Install(ctx); err != nil {
		return nil, errors.Join(err, lab.Close())
	}
	return lab, nil
}

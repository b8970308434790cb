// Package cluster runs a connectivity test in a Kubernetes cluster: it creates pods and services in a
// namespace of their own, runs the probes of package connectivity in the pods, and removes the namespace.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// Image is the default image of the pods. Kubernetes publishes it for its own tests, for all
// architectures, and every cluster that pulls Kubernetes' images can pull it.
const Image = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"

// Config configures a test.
type Config struct {
	API *rest.Config
	// Image has agnhost as its program /agnhost.
	Image string
	// Nodes is the largest number of nodes.
	Nodes int
	// Outside is HOST:PORT outside of the cluster; empty for none.
	Outside string
	// Skip are kinds of checks that are not run.
	Skip []connectivity.Kind
	// StartTimeout is how long the pods may take to start.
	StartTimeout time.Duration
	// Keep leaves the namespace in the cluster.
	Keep bool
	// Progress receives lines about what the test is doing.
	Progress func(line string)
	// Interrupted receives a line if ctx has ended, and the test still removes its namespace.
	Interrupted func(line string)
}

// Connect returns the configuration of a client. Without a kubeconfig it finds one as kubectl does. Without
// the name of a context it uses the current one.
func Connect(kubeconfig, contextName string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("connect to Kubernetes: there is no kubeconfig: name one with --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	config.QPS = -1 // the API server limits requests
	config.UserAgent = "coe-bridge/connectivity-test"
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// test is a running test.
type test struct {
	Config
	client kubernetes.Interface
	// exec runs a program in a pod, and returns its output and its error output.
	exec func(ctx context.Context, pod string, argv ...string) (stdout, stderr string, err error)
	// dial connects from this machine. With UDP it fails unless the other end answers.
	dial      func(ctx context.Context, protocol connectivity.Protocol, target string) error
	namespace string
	// uid is that of the namespace; empty until it is created.
	uid types.UID
	// life bounds how long a pod runs if a killed test leaves its namespace behind.
	life    time.Duration
	facts   connectivity.Facts
	checks  []connectivity.Check
	results []connectivity.Result
}

// Run runs a test. It removes the namespace also if it fails or if ctx ends. There is a report as soon as
// the checks are planned. With an error, checks that were not finished are skipped in the report.
func Run(ctx context.Context, cfg Config) (*connectivity.Report, error) {
	client, err := kubernetes.NewForConfig(cfg.API)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	t := newTest(cfg, client, lifeOf(ctx))
	t.exec, t.dial = t.run, dial
	return t.test(ctx)
}

func newTest(cfg Config, client kubernetes.Interface, life time.Duration) *test {
	return &test{Config: cfg, client: client, namespace: newName(), life: life, facts: connectivity.Facts{Outside: cfg.Outside}}
}

// test runs the test, and removes the namespace.
func (t *test) test(ctx context.Context) (report *connectivity.Report, err error) {
	if err = t.chooseNodes(ctx); err == nil {
		err = t.createAndRun(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if len(t.results) > 0 {
		report = connectivity.NewReport(t.namespace, t.facts, t.results)
	}
	return report, errors.Join(err, t.cleanup(ctx))
}

// createAndRun creates the objects, and runs the checks when the pods run.
func (t *test) createAndRun(ctx context.Context) error {
	if err := t.mayExec(ctx); err != nil {
		return err
	}
	t.Progress(fmt.Sprintf("creating namespace %s with pods on %s", t.namespace, nodeNames(t.facts.Nodes)))
	if err := t.create(ctx); err != nil {
		return err
	}
	if err := t.awaitPods(ctx); err != nil {
		return err
	}
	return t.runStages(ctx)
}

// runStages runs the checks of each stage, by the facts. It fails if ctx ends, or if no probe has run.
func (t *test) runStages(ctx context.Context) error {
	t.readMTUs(ctx)
	t.checks = connectivity.Plan(t.facts, t.Skip)
	for _, stage := range []struct {
		is    connectivity.Stage
		enter func(context.Context) error
	}{
		{connectivity.Open, func(context.Context) error { return nil }},
		{connectivity.Denied, t.denyAll},
		{connectivity.Allowed, t.allowFirst},
	} {
		t.runStage(ctx, stage.is, stage.enter)
	}
	if reason := connectivity.NoProbe(t.results); reason != "" {
		return errors.New(reason)
	}
	return context.Cause(ctx)
}

// concurrency is the number of probes at the same time.
const concurrency = 8

// runStage runs the checks of a stage, if there are any. Checks whose connection must not succeed wait for
// the others: these show that the cluster has taken the policy.
func (t *test) runStage(ctx context.Context, stage connectivity.Stage, enter func(context.Context) error) {
	checks := connectivity.Select(t.checks, stage, t.results)
	if len(checks) == 0 {
		return
	}
	if err := enter(ctx); err != nil && ctx.Err() == nil {
		for i := range checks {
			checks[i].Problem = err.Error()
		}
	}
	t.Progress(fmt.Sprintf("running %d checks %s", len(checks), stage))
	var open, blocked []connectivity.Check
	for _, c := range checks {
		if c.Blocked {
			blocked = append(blocked, c)
		} else {
			open = append(open, c)
		}
	}
	results := slices.Concat(t.runChecks(ctx, open), t.runChecks(ctx, blocked))
	passed, failed, skipped := connectivity.Count(results)
	t.Progress(fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped))
	t.results = append(t.results, results...)
}

// runChecks runs checks at the same time.
func (t *test) runChecks(ctx context.Context, checks []connectivity.Check) []connectivity.Result {
	results := make([]connectivity.Result, len(checks))
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i, c := range checks {
		group.Go(func() error {
			results[i] = t.check(ctx, c)
			return nil
		})
	}
	_ = group.Wait()
	return results
}

// Times of a check.
const (
	// patience is how long a check is repeated. A cluster needs some seconds to enforce a new policy
	// or to serve a new service.
	patience = 10 * time.Second
	pause    = 300 * time.Millisecond
)

// check repeats the probe of a check until its outcomes show the result, or ctx ends.
func (t *test) check(ctx context.Context, c connectivity.Check) connectivity.Result {
	if r, known := c.Known(); known {
		return r
	}
	trial, start := connectivity.Trial{Check: c}, time.Now()
	for ctx.Err() == nil {
		outcome := t.probe(ctx, c)
		if ctx.Err() != nil {
			break // the outcome may be that of ctx
		}
		if r, isOver := trial.Add(outcome, time.Since(start) > patience); isOver {
			if reason := t.beyond(ctx, r); reason != "" {
				return connectivity.Result{Check: c, Status: connectivity.Skipped, Reason: reason}
			}
			return r
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return c.NotRun(context.Cause(ctx))
}

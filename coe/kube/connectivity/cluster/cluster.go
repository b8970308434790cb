// Package cluster runs a connectivity test in a Kubernetes cluster: it creates pods and services in a
// namespace of their own, runs the probes of package connectivity in the pods, and removes the namespace.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
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
	client    kubernetes.Interface
	namespace string
	facts     connectivity.Facts
	checks    []connectivity.Check
	results   []connectivity.Result
}

// Run runs a test. It removes the namespace also if it fails or if ctx ends. There is a report if the
// checks have run, even if the namespace could not be removed.
func Run(ctx context.Context, cfg Config) (*connectivity.Report, error) {
	client, err := kubernetes.NewForConfig(cfg.API)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	t := &test{Config: cfg, client: client, namespace: newName(), facts: connectivity.Facts{Outside: cfg.Outside}}
	if err := t.chooseNodes(ctx); err != nil {
		return nil, err
	}
	var report *connectivity.Report
	if err = t.stages(ctx); err == nil {
		report = connectivity.NewReport(t.namespace, t.facts.Nodes, t.results)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return report, errors.Join(err, t.cleanup(ctx))
}

// stages creates the objects, and runs the checks of each stage.
func (t *test) stages(ctx context.Context) error {
	t.Progress(fmt.Sprintf("creating namespace %s with pods on %s", t.namespace, nodeNames(t.facts.Nodes)))
	if err := t.create(ctx); err != nil {
		return err
	}
	if err := t.awaitPods(ctx); err != nil {
		return err
	}
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
		if err := t.run(ctx, stage.is, stage.enter); err != nil {
			return err
		}
	}
	return nil
}

// concurrency is the number of probes at the same time.
const concurrency = 8

// run runs the checks of a stage, if there are any.
func (t *test) run(ctx context.Context, stage connectivity.Stage, enter func(context.Context) error) error {
	checks := connectivity.Select(t.checks, stage, t.results)
	if len(checks) == 0 {
		return nil
	}
	if err := enter(ctx); err != nil {
		for i := range checks {
			checks[i].Skip = err.Error()
		}
	}
	t.Progress(fmt.Sprintf("running %d checks %s", len(checks), stage))
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
	if err := ctx.Err(); err != nil {
		return err
	}
	passed, failed, skipped := connectivity.Count(results)
	t.Progress(fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped))
	t.results = append(t.results, results...)
	return nil
}

// Times of a check.
const (
	// patience is how long a check is repeated. A cluster needs some seconds to enforce a new policy
	// or to serve a new service.
	patience = 10 * time.Second
	pause    = 300 * time.Millisecond
)

// check repeats the probe of a check until its outcome is the wanted one.
func (t *test) check(ctx context.Context, c connectivity.Check) connectivity.Result {
	if r, known := c.Known(); known {
		return r
	}
	for start, tries := time.Now(), 1; ; tries++ {
		outcome := t.probe(ctx, c)
		if c.IsMet(outcome) || time.Since(start) > patience {
			return c.Judge(outcome, tries)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return c.Judge(outcome, tries)
		}
	}
}

package bridge

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
)

// KubernetesConfig says which cluster is watched, and what is written to it.
type KubernetesConfig struct {
	API *rest.Config // of kube.Connect
	// AnnotateQPS is the limit of pods that are annotated each second; 0 for none.
	AnnotateQPS float64
	// EgressLabel is the label of nodes that may hold egress addresses. If it is empty, EgressIPs are not watched.
	EgressLabel string
}

// cluster is the Kubernetes that is watched.
type cluster struct {
	source   *kube.Watcher
	reporter *report.Reporter
	egress   *report.EgressReporter
}

// watchCluster creates the source and the reporter, if Kubernetes is watched.
func (b *Bridge) watchCluster() error {
	api := b.cfg.Kubernetes.API
	if api == nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("make client of Kubernetes: %w", err)
	}
	var untyped dynamic.Interface
	if b.cfg.Kubernetes.EgressLabel != "" {
		if untyped, err = dynamic.NewForConfig(api); err != nil {
			return fmt.Errorf("make client of Kubernetes: %w", err)
		}
	}
	c := &cluster{}
	cfg := report.Config{AnnotateQPS: b.cfg.Kubernetes.AnnotateQPS, MTU: int(b.cfg.MTU)}
	if c.reporter, err = report.New(cfg, api, b.store, b.registry, b.log); err != nil {
		return err
	}
	c.source = kube.NewWatcher(kube.Config{
		Client: client, Dynamic: untyped, EgressLabel: b.cfg.Kubernetes.EgressLabel, Store: b.store, Log: b.log, Registerer: b.registry, Observe: b.seen,
	})
	if untyped != nil {
		c.egress = report.NewEgressReporter(untyped, b.store, b.log)
	}
	b.cluster = c
	return nil
}

// seen passes the state of a pod at the API server on. If the pod waits for its network to become
// ready, the confirmer checks it: the backend may have the pod since before it was seen. Until the
// backend is observed the check would delete records; then all pods are checked.
func (b *Bridge) seen(p kube.PodSeen) {
	b.cluster.reporter.Seen(p)
	if r := b.role.Load(); r != nil && r.leads() && p.NeedsReady && !p.IsReady && r.loop.Observed() {
		r.confirmer.Mark(p.UID)
	}
}

// report writes annotations and Events to Kubernetes, until ctx is done.
func (b *Bridge) report(ctx context.Context) error {
	b.cluster.reporter.Run(ctx)
	return nil
}

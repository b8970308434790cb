package bridge

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
)

// KubernetesConfig says which cluster is watched and what it is told.
type KubernetesConfig struct {
	API *rest.Config // of kube.Connect
	// AnnotateQPS is how many pods are annotated in a second; 0: none.
	AnnotateQPS float64
}

// cluster is the Kubernetes that is watched.
type cluster struct {
	source   *kube.Source
	reporter *report.Reporter
}

// watchCluster makes what watches Kubernetes, where it is to be watched.
func (b *Bridge) watchCluster() error {
	api := b.cfg.Kubernetes.API
	if api == nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("make client of Kubernetes: %w", err)
	}
	c := &cluster{}
	cfg := report.Config{AnnotateQPS: b.cfg.Kubernetes.AnnotateQPS, MTU: int(b.cfg.MTU)}
	if c.reporter, err = report.New(cfg, api, b.store, b.registry, b.log); err != nil {
		return err
	}
	c.source = kube.NewSource(kube.Config{
		Client: client, Store: b.store, Log: b.log, Registerer: b.registry, Observe: c.reporter.Seen,
	})
	b.cluster = c
	return nil
}

// report writes to Kubernetes what is to be told there, until ctx is done.
func (b *Bridge) report(ctx context.Context) error {
	b.cluster.reporter.Run(ctx)
	return nil
}

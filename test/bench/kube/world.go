package main

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// The cluster of every figure except the large one.
const (
	nodes      = 10
	namespaces = 20
	pods       = 5000
)

// load returns pods of the cluster. Their names begin with the prefix, so two loads have no pod in
// common.
func load(count int, prefix string) kube.PodLoad {
	return kube.PodLoad{Count: count, Namespaces: namespaces, Nodes: nodes, Prefix: prefix}
}

// world is the environment of a bridge: a Kubernetes control plane with nodes and namespaces, and a
// northbound database.
type world struct {
	*bench
	plane *kube.ControlPlane
	nb    *ovsdb.Process
	dir   string // of the bridge's data
}

func (b *bench) newWorld(ctx context.Context) (w *world, err error) {
	w = &world{bench: b}
	if w.plane, err = kube.Start(ctx, kube.Config{}); err != nil {
		return nil, err
	}
	if err := w.fill(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) fill(ctx context.Context) (err error) {
	if err := w.empty(); err != nil {
		return err
	}
	if _, err := w.plane.MakeNamespaces(ctx, namespaces); err != nil {
		return err
	}
	_, err = w.plane.MakeNodes(ctx, nodes)
	return err
}

// empty creates an empty database and an empty data folder for the next bridge.
func (w *world) empty() (err error) {
	if w.nb != nil {
		if err := w.nb.Close(); err != nil {
			return err
		}
	}
	if w.nb, err = ovsdb.Run(); err != nil {
		return err
	}
	w.dir, err = w.Folder("data")
	return err
}

func (w *world) close() error {
	err := w.plane.Close()
	if w.nb != nil {
		err = errors.Join(err, w.nb.Close())
	}
	return err
}

// start starts a bridge in this world, with a limit of annotations per second.
func (w *world) start(ctx context.Context, annotateQPS string) (*process.Bridge, error) {
	return process.Start(ctx, w.config(w.plane.Kubeconfig(), w.nb, process.OnFolder(w.dir), annotateQPS))
}

// config returns the configuration of a bridge.
func (b *bench) config(kubeconfig string, nb *ovsdb.Process, data []string, annotateQPS string) process.Config {
	return process.Config{
		Built: b.built, Kubeconfig: kubeconfig, Northbound: nb.Endpoint(), Data: data, AnnotateQPS: annotateQPS,
	}
}

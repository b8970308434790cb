package main

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// The cluster of every figure but the large one.
const (
	nodes      = 10
	namespaces = 20
	pods       = 5000
)

// load is pods of the cluster. Names begin with the prefix, so that two loads have
// no pod in common.
func load(count int, prefix string) kube.PodLoad {
	return kube.PodLoad{Count: count, Namespaces: namespaces, Nodes: nodes, Prefix: prefix}
}

// world is what a bridge works between: a Kubernetes control plane with nodes and
// namespaces, and a northbound database.
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

// empty gives the next bridge a database and a data folder with nothing in them.
func (w *world) empty() (err error) {
	if w.nb != nil {
		if err := w.nb.Close(); err != nil {
			return err
		}
	}
	if w.nb, err = ovsdb.Run(); err != nil {
		return err
	}
	w.dir, err = w.folder("data")
	return err
}

func (w *world) close() error {
	err := w.plane.Close()
	if w.nb != nil {
		err = errors.Join(err, w.nb.Close())
	}
	return err
}

// start starts a bridge in this world. It annotates so many pods a second.
func (w *world) start(ctx context.Context, annotateQPS string) (*bridge, error) {
	return startBridge(ctx, w.bench, w.plane.Kubeconfig(), w.nb.Endpoint(), onFolder(w.dir), annotateQPS)
}

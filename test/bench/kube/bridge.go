package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

const (
	// podPool is large enough for the blocks of all networks of nodes. It does not contain the
	// addresses of nodes and services.
	podPool        = "10.0.0.0/10"
	syncTimeout    = 5 * time.Minute
	syncPoll       = 10 * time.Millisecond
	requestTimeout = time.Minute // a bridge may have to read 50,000 pods
	// objectsPerPod is the least number of objects that each of these pods has in the model.
	objectsPerPod = 3
)

// bridge is a bridge with its figures and a client.
type bridge struct {
	*serve.Process
	client *serve.Client
}

// onFolder returns the flags for a datastore in a folder, and onEtcd the flags for etcd servers.
func onFolder(dir string) []string { return []string{"--data-dir", dir} }
func onEtcd(endpoints []string) []string {
	return []string{"--etcd-endpoints", strings.Join(endpoints, ",")}
}

func startBridge(ctx context.Context, b *bench, kubeconfig, nb string, data []string, annotateQPS string) (*bridge, error) {
	p, err := serve.Start(ctx, b.program, append(data, "--auth-file", b.usersFile,
		"--kubeconfig", kubeconfig, "--annotate-qps", annotateQPS, "--pool", podPool, "--backend", "ovn", "--ovn-nb", nb)...)
	if err != nil {
		return nil, err
	}
	return &bridge{p, serve.NewClient(p.URL, requestTimeout)}, nil
}

func (b *bridge) stop() error {
	b.client.Close()
	return b.Stop()
}

// awaitSync waits until the bridge leads, and the backend is in sync and has at least a number of
// pods. It returns the time at which it has seen this.
func (b *bridge) awaitSync(ctx context.Context, pods int) (time.Time, error) {
	return await(ctx, func(ctx context.Context) error {
		if _, leads := b.Elected(); !leads {
			return errors.New("the bridge does not lead")
		}
		objects, inSync, err := b.client.Written(ctx)
		if err == nil && (!inSync || objects < pods*objectsPerPod) {
			err = fmt.Errorf("the backend does not have all %d pods: it has %d objects", pods, objects)
		}
		return err
	})
}

// awaitTold waits until the bridge has confirmed the networks of all pods to the agents.
// That is the bridge's last step for a pod.
func (b *bridge) awaitTold(ctx context.Context, pods int) error {
	told := fmt.Sprintf("coe_bridge_pods{stage=%q} %d\n", "confirmed", pods)
	_, err := await(ctx, func(ctx context.Context) error {
		_, metrics, err := b.client.Do(ctx, http.MethodGet, "/metrics", nil)
		if err == nil && !strings.Contains(metrics, told) {
			err = fmt.Errorf("not all %d pods are confirmed to the agents", pods)
		}
		return err
	})
	return err
}

// awaitKnown waits until the bridge has read all its sources, whether it leads or not.
func (b *bridge) awaitKnown(ctx context.Context) error {
	_, err := await(ctx, func(ctx context.Context) error {
		var status struct {
			Complete bool `json:"complete"`
		}
		_, err := b.client.Read(ctx, "operational/coe-status:status", &status)
		if err == nil && !status.Complete {
			err = errors.New("the bridge has not read all its sources")
		}
		return err
	})
	return err
}

// await calls holds until it returns nil, and returns the time of that.
func await(ctx context.Context, holds func(context.Context) error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		err := holds(ctx)
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, errors.Join(err, ctx.Err())
		case <-time.After(syncPoll):
		}
	}
}

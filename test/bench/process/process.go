// Package process runs a bridge with OVN and Kubernetes as a process of its own, for benchmarks.
package process

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
	// PodPool is large enough for the blocks of all networks of nodes. It does not contain the
	// addresses of nodes and services.
	PodPool        = "10.0.0.0/10"
	syncTimeout    = 15 * time.Minute
	syncPoll       = 10 * time.Millisecond
	mostPause      = 100 * time.Millisecond
	requestTimeout = time.Minute // a bridge may have to read 50,000 pods
	// objectsPerPod is the least number of objects that each of these pods has in the model.
	objectsPerPod = 3
)

// Bridge is a bridge with its figures and a client.
type Bridge struct {
	*serve.Process
	Client *serve.Client
}

// Config has what all bridges of a benchmark need.
type Config struct {
	Built
	Kubeconfig string
	Northbound string   // the endpoint of the northbound database
	Data       []string // OnFolder or OnEtcd
	// AnnotateQPS limits the annotations per second.
	AnnotateQPS string
}

// OnFolder returns the flags for a datastore in a folder.
func OnFolder(dir string) []string { return []string{"--data-dir", dir} }

// OnEtcd returns the flags for etcd servers.
func OnEtcd(endpoints []string) []string {
	return []string{"--etcd-endpoints", strings.Join(endpoints, ",")}
}

// Unlimited is the AnnotateQPS without a limit.
const Unlimited = "inf"

// Start starts a bridge with further flags.
func Start(ctx context.Context, cfg Config, flags ...string) (*Bridge, error) {
	args := append([]string{"--auth-file", cfg.UsersFile, "--kubeconfig", cfg.Kubeconfig, "--annotate-qps", cfg.AnnotateQPS,
		"--pool", PodPool, "--backend", "ovn", "--ovn-nb", cfg.Northbound}, cfg.Data...)
	p, err := serve.Start(ctx, cfg.Program, append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	return &Bridge{p, serve.NewClient(p.URL, requestTimeout)}, nil
}

// Stop stops the bridge as an operator does.
func (b *Bridge) Stop() error {
	b.Client.Close()
	return b.Process.Stop()
}

// AwaitSync waits until the bridge leads, and the backend is in sync and has at least a number of
// pods. It returns the time at which it has seen this.
func (b *Bridge) AwaitSync(ctx context.Context, pods int) (time.Time, error) {
	return await(ctx, func(ctx context.Context) error {
		if _, leads := b.Elected(); !leads {
			return errors.New("the bridge does not lead")
		}
		objects, inSync, err := b.Client.Written(ctx)
		if err == nil && (!inSync || objects < pods*objectsPerPod) {
			err = fmt.Errorf("the backend does not have all %d pods: it has %d objects", pods, objects)
		}
		return err
	})
}

// AwaitTold waits until the bridge has confirmed the networks of all pods to the agents.
// That is the bridge's last step for a pod.
func (b *Bridge) AwaitTold(ctx context.Context, pods int) error {
	told := fmt.Sprintf("coe_bridge_pods{stage=%q} %d\n", "confirmed", pods)
	_, err := await(ctx, func(ctx context.Context) error {
		_, metrics, err := b.Client.Do(ctx, http.MethodGet, "/metrics", nil)
		if err == nil && !strings.Contains(metrics, told) {
			err = fmt.Errorf("not all %d pods are confirmed to the agents", pods)
		}
		return err
	})
	return err
}

// AwaitKnown waits until the bridge has read all its sources, whether it leads or not.
func (b *Bridge) AwaitKnown(ctx context.Context) error {
	_, err := await(ctx, func(ctx context.Context) error {
		var status struct {
			Complete bool `json:"complete"`
		}
		_, err := b.Client.Read(ctx, "operational/coe-status:status", &status)
		if err == nil && !status.Complete {
			err = errors.New("the bridge has not read all its sources")
		}
		return err
	})
	return err
}

// await calls holds until it returns nil, and returns the time of that. Each call costs the bridge work, so there is a pause between calls, and the
// time is late by up to mostPause.
func await(ctx context.Context, holds func(context.Context) error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		begun := time.Now()
		err := holds(ctx)
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, errors.Join(err, ctx.Err())
		case <-time.After(min(max(syncPoll, 9*time.Since(begun)), mostPause)):
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/bench/inprocess"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	requestTimeout = 2 * time.Minute // a body of many pods is one request
	syncTimeout    = 5 * time.Minute
	syncPoll       = 10 * time.Millisecond
	podsPerBody    = 1000
	// objectsPerPod is the number of objects that each of these pods has in the model.
	objectsPerPod = 5
)

// running is a bridge in this process, and a client of it.
type running struct {
	*serve.Client
	bridge *inprocess.Bridge
}

// backend returns the configuration of a bridge's backend: the controller at a URL, or memory.
func (b *bench) backend(url string) bridge.BackendConfig {
	if url == "" {
		return bridge.BackendConfig{Name: "memory"}
	}
	return bridge.BackendConfig{Name: "odl", ODL: b.backendAt(url)}
}

// open creates a bridge with a data folder. Run starts it.
func (b *bench) open(ctx context.Context, dir, url string) (*running, error) {
	made, err := inprocess.New(ctx, bridge.Config{
		HTTP:      bridge.HTTPConfig{Listen: "127.0.0.1:0", Access: access.Config{UsersFile: b.usersFile}},
		Datastore: datastore.Config{Dir: dir},
		Backend:   b.backend(url), Log: b.log,
		Mapping: mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600},
	})
	if err != nil {
		return nil, err
	}
	return &running{Client: serve.NewClient(made.URL(), requestTimeout), bridge: made}, nil
}

// start creates a bridge and runs it.
func (b *bench) start(ctx context.Context, dir, url string) (*running, error) {
	r, err := b.open(ctx, dir, url)
	if err != nil {
		return nil, err
	}
	r.bridge.Start(ctx)
	if err := r.awaitSync(ctx, 0); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *running) stop() error {
	r.Close()
	return r.bridge.Stop()
}

// put sends a request below the config tree. Any status except success is an error.
func (r *running) put(ctx context.Context, method, path, body string) error {
	status, answer, err := r.Do(ctx, method, config+path, body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	return err
}

// fill writes the pool and the nodes of a cluster, and a number of pods.
func (r *running) fill(ctx context.Context, cluster synth.Cluster, pods int) error {
	if err := r.put(ctx, http.MethodPut, synth.PoolsPath, `{"dhcp_allocation_pool":`+cluster.Pools()+`}`); err != nil {
		return err
	}
	if err := r.put(ctx, http.MethodPost, synth.NodesPath, cluster.NodesBody()); err != nil {
		return err
	}
	for i := 0; i < pods; i += podsPerBody {
		if err := r.put(ctx, http.MethodPost, synth.PodsPath, cluster.PodsBody(i, min(i+podsPerBody, pods))); err != nil {
			return err
		}
	}
	return r.awaitSync(ctx, pods)
}

// awaitSync waits until the backend is in sync and has at least a number of pods.
func (r *running) awaitSync(ctx context.Context, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		objects, inSync, err := r.Written(ctx)
		if err == nil && inSync && objects >= pods*objectsPerPod {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the backend to have %d pods: it has %d objects: %w", pods, objects, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// known creates a data folder with a number of pods and their leases. Its bridge has never used the
// controller.
func (b *bench) known(ctx context.Context, cluster synth.Cluster, pods int) (dir string, err error) {
	if dir, err = b.Folder("known"); err != nil {
		return "", err
	}
	r, err := b.start(ctx, dir, "")
	if err != nil {
		return "", err
	}
	return dir, errors.Join(r.fill(ctx, cluster, pods), r.stop())
}

// timeStart starts the parts of a bridge with a data folder, waits until it is in sync with a
// number of pods, and ends it.
func (b *bench) timeStart(ctx context.Context, dir, url string, pods int) (time.Duration, error) {
	r, err := b.open(ctx, dir, url)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	r.bridge.Start(ctx)
	err = r.awaitSync(ctx, pods)
	took := time.Since(begun)
	return took, errors.Join(err, r.stop())
}

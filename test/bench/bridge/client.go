package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	requestTimeout = 2 * time.Minute // a body of many pods is one request
	syncTimeout    = 2 * time.Minute
	syncPoll       = 10 * time.Millisecond
	maxClients     = 64
)

// client is an HTTP client of a bridge, or of the server that the bridge is compared with.
type client struct{ *serve.Client }

func newClient(base string) *client { return &client{serve.NewClient(base, requestTimeout)} }

// do sends a request below the config tree of draft-02. Any status except success is an error.
func (c *client) do(ctx context.Context, method, path, body string) (string, error) {
	status, answer, err := c.Do(ctx, method, "/restconf/config/"+path, body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s: %s", method, path, status, http.StatusText(status), answer)
	}
	return answer, err
}

// load sends one request for each number in a range, from several clients at the same time. It
// returns the duration.
func load(clients, from, to int, request func(i int) error) (time.Duration, error) {
	var (
		next  atomic.Int64
		all   sync.WaitGroup
		fault atomic.Pointer[error]
	)
	next.Store(int64(from))
	begun := time.Now()
	for range clients {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < to && fault.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := request(i); err != nil {
					fault.Store(&err)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	if err := fault.Load(); err != nil {
		return 0, *err
	}
	return took, nil
}

// fill writes the pool and the nodes of a cluster, and a number of pods, perBody in a request.
func (c *client) fill(ctx context.Context, cluster synth.Cluster, pods, perBody int) error {
	if _, err := c.do(ctx, http.MethodPut, synth.PoolsPath, `{"dhcp_allocation_pool":`+cluster.Pools()+`}`); err != nil {
		return err
	}
	if _, err := c.do(ctx, http.MethodPost, synth.NodesPath, cluster.NodesBody()); err != nil {
		return err
	}
	for i := 0; i < pods; i += perBody {
		if _, err := c.do(ctx, http.MethodPost, synth.PodsPath, cluster.PodsBody(i, min(i+perBody, pods))); err != nil {
			return err
		}
	}
	return c.awaitSync(ctx, pods)
}

// objectsPerPod is the number of objects that each of these pods has in the model.
const objectsPerPod = 5

// awaitSync waits until the backend is in sync and has at least a number of pods.
func (c *client) awaitSync(ctx context.Context, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		objects, inSync, err := c.Written(ctx)
		if err == nil && inSync && objects >= pods*objectsPerPod {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the backend to have %d pods: it has %d objects: %w, %w", pods, objects, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

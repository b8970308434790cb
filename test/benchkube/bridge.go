package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/test/serve"
)

const (
	// podPool has room for the blocks of all nodes' networks, and for none of the
	// addresses of nodes and services.
	podPool     = "10.0.0.0/10"
	syncTimeout = 5 * time.Minute
	syncPoll    = 10 * time.Millisecond
	// objectsPerPod is how many objects of the model each of these pods has at least.
	objectsPerPod = 3
)

// bridge is a bridge, its figures, and a client of it.
type bridge struct {
	*serve.Process
	http *http.Client
}

func startBridge(ctx context.Context, b *bench, kubeconfig, nb, dir, annotateQPS string) (*bridge, error) {
	p, err := serve.Start(ctx, b.program, "--auth-file", b.usersFile, "--data-dir", dir,
		"--kubeconfig", kubeconfig, "--annotate-qps", annotateQPS, "--pool", podPool, "--backend", "ovn", "--ovn-nb", nb)
	if err != nil {
		return nil, err
	}
	return &bridge{p, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}, nil
}

func (b *bridge) stop() error {
	b.http.CloseIdleConnections()
	return b.Stop()
}

// awaitSync waits until the backend has all that is wanted, so many pods at least,
// and returns when that was seen.
func (b *bridge) awaitSync(ctx context.Context, pods int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for {
		objects, inSync, err := 0, false, error(nil)
		if b.Leads() {
			objects, inSync, err = b.status(ctx)
		}
		if inSync && objects >= pods*objectsPerPod {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the backend to have %d pods: it has %d objects: %w", pods, objects, errors.Join(ctx.Err(), err))
		case <-time.After(syncPoll):
		}
	}
}

func (b *bridge) status(ctx context.Context) (objects int, inSync bool, err error) {
	answer, err := b.get(ctx, "/restconf/operational/coe-status:status")
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, false, fmt.Errorf("read the bridge's status: %w", err)
	}
	var body map[string]struct {
		InSync bool `json:"in-sync"`
		Scopes []struct {
			Confirmed int `json:"objects-confirmed"`
		} `json:"scope"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return 0, false, fmt.Errorf("read the bridge's status: %w", err)
	}
	for _, status := range body {
		inSync = status.InSync
		for _, s := range status.Scopes {
			objects += s.Confirmed
		}
	}
	return objects, inSync, nil
}

// get asks the bridge for what is at a path. The caller closes the body.
func (b *bridge) get(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+path, nil)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(user, password)
	answer, err := b.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return answer, nil
}

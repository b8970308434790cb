package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

const (
	egressTimeout = 10 * time.Second
	egressAgain   = 5 * time.Second
)

// EgressReporter writes into the status of each EgressIP which node holds its address. Nothing waits for it.
type EgressReporter struct {
	client  dynamic.ResourceInterface
	store   *state.Store
	trouble *trouble
	wake    chan struct{}
}

// NewEgressReporter returns an EgressReporter.
func NewEgressReporter(client dynamic.Interface, store *state.Store, log *slog.Logger) *EgressReporter {
	return &EgressReporter{
		client: client.Resource(kube.EgressIPs), store: store, wake: make(chan struct{}, 1),
		trouble: newTrouble("statuses of EgressIPs", "patch on egressips/status", log),
	}
}

// Mark has the statuses compared with the Store.
func (r *EgressReporter) Mark() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Trouble returns why the API server rejects statuses, and what to do; empty while it accepts them.
func (r *EgressReporter) Trouble() string { return r.trouble.message() }

// Run writes until ctx is done. It writes each status once after its start, and then what changes.
func (r *EgressReporter) Run(ctx context.Context) {
	written := map[string]string{} // status by UID and name
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-again.C:
		}
		err := r.write(ctx, written)
		switch {
		case err == nil:
			r.trouble.over()
		case ctx.Err() == nil:
			r.trouble.add(failureOf(err), err)
			again.Reset(egressAgain)
		}
	}
}

// egressStatus is the status of an EgressIP.
type egressStatus struct {
	Items []egressItem `json:"items"`
}

type egressItem struct {
	Node     string `json:"node"`
	EgressIP string `json:"egressIP"`
}

func (r *EgressReporter) write(ctx context.Context, written map[string]string) error {
	var failed error
	nodes, there := r.store.Nodes(), map[string]bool{}
	for _, e := range r.store.EgressIPs() {
		status := egressStatus{Items: []egressItem{}}
		if host := nodes[e.Host()]; host != nil {
			status.Items = append(status.Items, egressItem{host.HostName, e.Address.String()})
		}
		patch, err := json.Marshal(map[string]egressStatus{"status": status})
		if err != nil {
			return err
		}
		key := e.UID + " " + e.Name
		there[key] = true
		if written[key] == string(patch) {
			continue
		}
		if err := r.patch(ctx, e.Name, patch); err != nil && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, fmt.Errorf("write status of egressip %s: %w", e.Name, err))
			continue
		}
		written[key] = string(patch)
	}
	for key := range written {
		if !there[key] {
			delete(written, key)
		}
	}
	return failed
}

func (r *EgressReporter) patch(ctx context.Context, name string, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	_, err := r.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

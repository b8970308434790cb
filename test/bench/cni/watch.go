package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// watch notes the times at which a switch gets interfaces, and at which OVN has installed them.
type watch struct {
	client client.Client

	mu        sync.Mutex
	added     map[string]time.Time // by iface-id-ver, or by iface-id without one
	installed map[string]time.Time
	changed   chan struct{} // closed when there is more
}

func newWatch(ctx context.Context, endpoint string) (*watch, error) {
	tables, err := vswitch.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(endpoint))
	if err == nil {
		err = c.Connect(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("watch the switch: %w", err)
	}
	w := &watch{client: c, added: map[string]time.Time{}, installed: map[string]time.Time{}, changed: make(chan struct{})}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { w.note(row) },
		UpdateFunc: func(_ string, _, row model.Model) { w.note(row) },
		DeleteFunc: func(_ string, row model.Model) { w.forget(row) },
	})
	iface := &vswitch.Interface{}
	if _, err := c.Monitor(ctx, c.NewMonitor(client.WithTable(iface, &iface.Name, &iface.ExternalIDs))); err != nil {
		return nil, fmt.Errorf("watch the switch: %w", err)
	}
	return w, nil
}

func keyOf(row model.Model) (key string, installed bool) {
	ids := row.(*vswitch.Interface).ExternalIDs
	if key = ids["iface-id-ver"]; key == "" {
		key = ids["iface-id"]
	}
	return key, ids["ovn-installed"] == "true"
}

func (w *watch) note(row model.Model) {
	now := time.Now()
	key, installed := keyOf(row)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.added[key]; !known {
		w.added[key] = now
	}
	if _, known := w.installed[key]; installed && !known {
		w.installed[key] = now
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

func (w *watch) forget(row model.Model) {
	key, _ := keyOf(row)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.added, key)
	delete(w.installed, key)
}

// await waits until OVN has installed an interface. It returns the time at which the interface was
// added, and the time at which it was installed.
func (w *watch) await(ctx context.Context, key string) (added, installed time.Time, err error) {
	for {
		w.mu.Lock()
		added, installed, changed := w.added[key], w.installed[key], w.changed
		w.mu.Unlock()
		if !installed.IsZero() {
			return added, installed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return added, installed, fmt.Errorf("wait for OVN to install %s: %w", key, ctx.Err())
		}
	}
}

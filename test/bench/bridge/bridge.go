package main

import (
	"context"
	"errors"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/bench/inprocess"
)

// The measured backends.
func memoryBackend() bridge.BackendConfig { return bridge.BackendConfig{Name: "memory"} }

func ovnBackend(endpoint string) bridge.BackendConfig {
	return bridge.BackendConfig{Name: "ovn", OVN: ovn.Config{Endpoints: endpoint}}
}

// running is a bridge in this process.
type running struct {
	*client
	bridge *inprocess.Bridge
}

// open creates a bridge with a data folder. Run starts it.
func (b *bench) open(ctx context.Context, dir string, backend bridge.BackendConfig) (*running, error) {
	made, err := inprocess.New(ctx, bridge.Config{
		HTTP:      bridge.HTTPConfig{Listen: "127.0.0.1:0", Access: access.Config{UsersFile: b.usersFile}},
		Datastore: datastore.Config{Dir: dir},
		Backend:   backend, Mapping: settings, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	return &running{client: newClient(made.URL()), bridge: made}, nil
}

// start creates a bridge and runs it.
func (b *bench) start(ctx context.Context, dir string, backend bridge.BackendConfig) (*running, error) {
	r, err := b.open(ctx, dir, backend)
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

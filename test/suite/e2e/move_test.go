package e2e

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestMove moves pods from OVN to OpenDaylight: first a plan, then both backends, then the new one
// alone. Pods keep their addresses. The backend that is being filled does not delay the other.
func TestMove(t *testing.T) {
	t.Parallel()
	nb := ovsdb.Start(t)
	fake, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte(odlfake.User+":"+odlfake.Password), 0o600))
	onOVN := bridge.BackendConfig{Name: "ovn", OVN: ovn.Config{Endpoints: nb.Endpoint()}}
	onODL := bridge.BackendConfig{Name: "odl", ODL: odl.Config{URLs: server.URL, AuthFile: auth, Probe: time.Second, Poll: time.Second}}
	dir := t.TempDir()
	serve := func(backend bridge.BackendConfig, filled ...bridge.BackendConfig) *bridgetest.Bridge {
		return bridgetest.Start(t, func(c *bridge.Config) { c.Backend, c.Filled, c.Datastore.Dir = backend, filled, dir })
	}
	convert := func() *plan.Conversion {
		c, err := bridge.Convert(t.Context(), mapping.IsolationNone, onOVN, onODL, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return c
	}

	b := serve(onOVN)
	r := rest{b.Client()}
	r.putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})
	r.postPods(t, 0, 6)
	b.AwaitSync(converge)
	given := r.living(t)
	plan := convert()
	require.NotEmpty(t, plan.Changes)
	require.Zero(t, plan.Same)
	require.NotZero(t, plan.Lost[netvirt.KindSubnet], "OpenDaylight has no subnets")
	require.Empty(t, fake.Keys("elan:elan-instances"), "a plan writes nothing")
	b.Stop()

	b = serve(onOVN, onODL)
	b.AwaitSync(converge)
	b.AwaitFilled(converge, true)
	plan = convert()
	require.Empty(t, plan.Changes)
	require.NotZero(t, plan.Same)
	rows := dump(t, nb)

	fake.Load(http.StatusServiceUnavailable)
	r = rest{b.Client()}
	r.postPods(t, 6, 1)
	b.AwaitSync(converge)
	await(t, converge, "the filled backend is behind, and the status says why", func() error {
		if f := b.Status().Filled[0]; f.InSync || f.LastError == "" {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	require.NotEqual(t, rows, dump(t, nb), "the active backend has the change")
	fake.Load(0)
	b.AwaitFilled(returnWithin, true)
	rows = dump(t, nb)
	b.Stop()

	b = serve(onODL, onOVN)
	b.AwaitSync(converge)
	b.AwaitFilled(converge, true)
	r = rest{b.Client()}
	for uid, l := range given {
		require.Equal(t, l, r.living(t)[uid])
	}
	require.NoError(t, sameSet(rows, dump(t, nb)))
	b.Stop()

	b = serve(onODL)
	r = rest{b.Client()}
	r.postPods(t, 7, 1)
	b.AwaitSync(converge)
	require.NoError(t, sameSet(rows, dump(t, nb)), "the former backend does not change")
}

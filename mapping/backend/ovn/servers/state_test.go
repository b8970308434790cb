package servers_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const database = "OVN_Northbound"

// TestStates: each member of a cluster says which role it has.
func TestStates(t *testing.T) {
	t.Parallel()
	cluster := ovsdb.StartCluster(t)
	list := &servers.List{Database: database, Endpoints: strings.Split(cluster.Endpoints(), ","), TLS: cluster.TLS()}
	await := func(wantConnected int, wantFailed ...string) {
		t.Helper()
		var all []*servers.State
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			all = servers.States(ctx, list)
			leaders, connected, indexed := 0, 0, 0
			var failed []string
			for _, s := range all {
				if s.Err != nil {
					failed = append(failed, s.Endpoint)
				}
				if s.Leader {
					leaders++
				}
				if s.Connected {
					connected++
				}
				if s.Index > 0 {
					indexed++
				}
			}
			return leaders == 1 && connected == wantConnected && indexed == wantConnected && slices.Equal(failed, wantFailed)
		}, patience.Patience, 50*time.Millisecond, "%+v", &all)
	}
	await(3)
	leader := cluster.Leader(t)
	leader.Stop(t)
	await(2, leader.Endpoint())
	leader.Continue(t)
	await(3)

	single := ovsdb.Start(t)
	of := func(database string) *servers.List {
		return &servers.List{Database: database, Endpoints: []string{single.Endpoint()}}
	}
	all := servers.States(t.Context(), of(database), of("OVN_Southbound"))
	require.Equal(t, &servers.State{Database: database, Endpoint: single.Endpoint(), Leader: true, Connected: true}, all[0])
	require.ErrorContains(t, all[1].Err, "the server does not have the database")
}

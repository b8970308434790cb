package agentstream

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The Hub reads what ipam writes: a reported pod has its record on its node's stream, and a
// deleted pod has none.
func TestWhatIPAMChooses(t *testing.T) {
	b := newBed(t)
	r := b.replica()
	store := state.NewStore(func(state.Changed) {}, coe.RESTCONF)
	assigner := ipam.New(ipam.Config{}, store, b.chosen, slog.New(slog.DiscardHandler))
	require.NoError(t, assigner.Load(t.Context()))
	assigner.SetPools([]dhcppool.Pool{{
		Network: "default", Subnet: netip.MustParsePrefix("192.168.10.0/24"), Gateway: netip.MustParseAddr("192.168.10.2"),
		From: netip.MustParseAddr("192.168.10.3"), To: netip.MustParseAddr("192.168.10.50"),
	}})
	change := func(change func(*state.Tx)) {
		store.Update(change)
		_, _, err := assigner.Sync(t.Context(), []string{"default"})
		require.NoError(t, err)
	}

	a := newAgent(t, node1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = a.follow(ctx, r.url, 1<<30) })
	knows := func(want map[string]told) func() bool {
		return func() bool { return a.at() != "" && len(a.now()) == len(want) && sameOf(want, a.now()) }
	}
	change(func(tx *state.Tx) {
		tx.SetComplete(coe.RESTCONF)
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: pod1, Name: "busybox1", Namespace: "default", HostIP: netip.MustParseAddr(node1)})
	})
	require.Eventually(t, knows(map[string]told{pod1 + "/" + pod1: {Operation: "put", Pod: pod1, Interface: pod1, MAC: "0a:58:c0:a8:0a:03", Node: node1}}), patience.Patience, time.Millisecond)

	lease := store.View("default").Leases.Get(coe.LeaseKey{PodUID: pod1, InterfaceUID: pod1})
	require.NoError(t, b.confirmed.Commit(t.Context(), map[string][]byte{RecordName(lease.Key()): ConfirmationOf(lease).Encode()}, nil))
	require.Eventually(t, knows(map[string]told{pod1 + "/" + pod1: {Operation: "put", Pod: pod1, Interface: pod1, MAC: "0a:58:c0:a8:0a:03", Node: node1, Confirmed: true}}), patience.Patience, time.Millisecond)

	change(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, pod1) })
	require.Eventually(t, knows(nil), patience.Patience, time.Millisecond)
}

func sameOf(want, got map[string]told) bool {
	for key, o := range want {
		if got[key] != o {
			return false
		}
	}
	return true
}

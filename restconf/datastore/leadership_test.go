package datastore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

func TestOneLeads(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	cfg := Config{Schema: s.schema, Endpoints: []string{endpoint}, LeaseTTL: time.Minute}
	a, b := open(t, cfg), open(t, cfg)

	first, err := a.Campaign(t.Context())
	require.NoError(t, err)
	records := first.Records("leases")
	require.NoError(t, records.Commit(t.Context(), map[string][]byte{"1": []byte("x"), "2": []byte("y")}, nil))
	require.NoError(t, records.Commit(t.Context(), map[string][]byte{"1": []byte("z")}, []string{"2"}))

	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := b.Campaign(ctx)
		waiting <- err
	}()
	cancel()
	require.ErrorIs(t, <-waiting, ErrUnavailable)

	elected := make(chan *Leadership, 1)
	go func() {
		l, err := b.Campaign(context.Background())
		if err != nil {
			t.Error(err)
		}
		elected <- l
	}()
	require.NoError(t, first.Resign(t.Context()))
	second := <-elected
	<-first.Lost
	require.Greater(t, second.Epoch, first.Epoch)

	// The old leader's claims change nothing any more.
	require.ErrorIs(t, records.Commit(t.Context(), map[string][]byte{"1": []byte("stale")}, nil), ErrDeposed)
	got, err := second.Records("leases").Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"1": []byte("z")}, got)
	require.NoError(t, second.Resign(t.Context()))
}

// A leader whose election key another process has deleted learns so by its next write.
func TestKeyIsDeleted(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	l, err := d.Campaign(t.Context())
	require.NoError(t, err)
	_, err = d.client.Delete(t.Context(), l.key)
	require.NoError(t, err)
	require.ErrorIs(t, l.Records("x").Commit(t.Context(), map[string][]byte{"a": nil}, nil), ErrDeposed)
	<-l.Lost
}

// The place of a candidate whose lease ran out is gone: it says so and does not wait
// for a turn that would be nobody's.
func TestCandidateLosesItsLease(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	cfg := Config{Schema: s.schema, Endpoints: []string{endpoint}, LeaseTTL: time.Minute}
	a, b := open(t, cfg), open(t, cfg)
	first, err := a.Campaign(t.Context())
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := b.Campaign(context.Background())
		waiting <- err
	}()
	var candidate clientv3.LeaseID
	require.Eventually(t, func() bool {
		resp, err := a.client.Get(t.Context(), electionPrefix+"/", clientv3.WithLastCreate()...)
		require.NoError(t, err)
		candidate = clientv3.LeaseID(resp.Kvs[0].Lease)
		return candidate != first.session.Lease()
	}, patience.Patience, time.Millisecond)
	_, err = a.client.Revoke(t.Context(), candidate)
	require.NoError(t, err)
	require.ErrorIs(t, <-waiting, ErrUnavailable)
	require.NoError(t, first.Resign(t.Context()))
}

// A lease that ends deposes, whatever the leader believes.
func TestLeaseEnds(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), LeaseTTL: time.Minute})
	l, err := d.Campaign(t.Context())
	require.NoError(t, err)
	_, err = d.client.Revoke(t.Context(), l.session.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, l.Records("x").Commit(t.Context(), map[string][]byte{"a": nil}, nil), ErrDeposed)
	<-l.Lost
}

// TestHeld: a leader counts as the leader until it is known that it lost the leadership.
func TestHeld(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), LeaseTTL: 5 * time.Second})
	l, err := d.Campaign(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Held(t.Context()))
	_, err = d.client.Delete(t.Context(), l.key)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		err = l.Held(t.Context())
		return err != nil
	}, patience.Patience, 10*time.Millisecond)
	require.ErrorIs(t, err, ErrDeposed)
	<-l.Lost
}

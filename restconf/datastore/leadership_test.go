package datastore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestOneLeads(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	cfg := Config{Schema: s.schema, Endpoints: []string{endpoint}}
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

// A lease that ends deposes, whatever the leader believes.
func TestLeaseEnds(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), LeaseTTL: time.Second})
	l, err := d.Campaign(t.Context())
	require.NoError(t, err)
	_, err = d.client.Revoke(t.Context(), l.session.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, l.Records("x").Commit(t.Context(), map[string][]byte{"a": nil}, nil), ErrDeposed)
	<-l.Lost
}

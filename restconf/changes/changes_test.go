package changes

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

const uid = "9f2a6d5e-0000-4000-8000-00000000000a"

// taken is the next group of a stream: the notifications, and the ID.
func taken(t *testing.T, s stream.Subscription) (names []string, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	for {
		for _, e := range s.Take() {
			names, id = append(names, e.Name), e.ID
		}
		if names != nil {
			return names, id
		}
		select {
		case <-s.Ready():
		case <-ctx.Done():
			require.Fail(t, "no group came")
		}
	}
}

// Nobody pays for streams that nobody follows.
func TestAbandoned(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir(), Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	cfg := tree.Config{Schema: schema, Datastore: store}
	writer, err := tree.New(cfg)
	require.NoError(t, err)
	at, err := wire.RFC8040.Parse(schema, "pod:coe/pods="+uid)
	require.NoError(t, err)
	write := func(e tree.Edit) {
		e.At = at
		_, err := writer.Write(t.Context(), tree.Caller{}, []tree.Edit{e}, tree.Condition{}, false)
		require.NoError(t, err)
	}

	s := New(cfg, nil, slog.New(slog.DiscardHandler))
	s.linger = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	pod, err := yang.DecodeObject([]byte(`{"uid":"`+uid+`"}`), at.Node())
	require.NoError(t, err)
	write(tree.Edit{Op: tree.Replace, Data: []*yang.Data{pod}})
	require.Empty(t, s.stored.Streams())
	followed, found := s.Open("pod:coe", "")
	require.True(t, found)
	names, id := taken(t, followed)
	require.Equal(t, []string{Begin, Changed, Changed, Complete}, names)
	require.NotEmpty(t, s.stored.Streams())
	followed.Close()
	require.Eventually(t, func() bool { return len(s.stored.Streams()) == 0 }, patience.Patience, time.Millisecond)

	write(tree.Edit{Op: tree.Delete})
	followed, found = s.Open("pod:coe", id)
	require.True(t, found)
	defer followed.Close()
	names, _ = taken(t, followed)
	require.Equal(t, []string{Begin, Changed, Complete}, names, "changes that were not kept are replaced by a snapshot")
}

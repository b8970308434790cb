package datastore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// ledger applies batches of records as a consumer would, and checks their order.
type ledger struct {
	t         *testing.T
	rev       int64
	snapshots int
	state     map[string]string
}

func (l *ledger) apply(b RecordBatch) {
	if b.Snapshot {
		l.snapshots++
		l.state = map[string]string{}
		require.GreaterOrEqual(l.t, b.Revision, l.rev)
	} else {
		require.Greater(l.t, b.Revision, l.rev)
		require.NotZero(l.t, len(b.Put)+len(b.Delete))
	}
	l.rev = b.Revision
	for name, value := range b.Put {
		l.state[name] = string(value)
	}
	for _, name := range b.Delete {
		require.Contains(l.t, l.state, name)
		delete(l.state, name)
	}
}

var errSeen = errors.New("seen enough")

// until follows prefix until the record name is there, and returns all records.
func (l *ledger) until(ctx context.Context, d *Datastore, prefix, name string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- d.FollowRecords(ctx, prefix, func(b RecordBatch) error {
			if l.apply(b); l.state[name] != "" {
				return errSeen
			}
			return nil
		})
	}()
	return ended
}

func lead(t *testing.T, d *Datastore) *Leadership {
	t.Helper()
	l, err := d.Campaign(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Resign(context.Background()) })
	return l
}

func commit(t *testing.T, r *Records, puts map[string]string, deletes ...string) {
	t.Helper()
	bytes := map[string][]byte{}
	for name, value := range puts {
		bytes[name] = []byte(value)
	}
	require.NoError(t, r.Commit(t.Context(), bytes, deletes))
}

func TestFollowRecords(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		leader := lead(t, d)
		chosen, confirmed := leader.Records("chosen"), leader.Records("confirmed")
		commit(t, chosen, map[string]string{"kept": "1", "gone": "1"})
		commit(t, confirmed, map[string]string{"other": "1"})
		one, all := &ledger{t: t}, &ledger{t: t}
		oneEnd, allEnd := one.until(t.Context(), d, "chosen", "last"), all.until(t.Context(), d, "", "confirmed/last")
		for i := range 20 {
			commit(t, chosen, map[string]string{"new": fmt.Sprint(i), "kept": fmt.Sprint(i)})
			put(t, d, s.pods, fmt.Sprint(i), `1`) // configuration is not for them
		}
		commit(t, chosen, map[string]string{"last": "1"}, "gone")
		commit(t, confirmed, map[string]string{"last": "1"})
		require.ErrorIs(t, <-oneEnd, errSeen)
		require.Equal(t, map[string]string{"kept": "19", "new": "19", "last": "1"}, one.state)
		require.ErrorIs(t, <-allEnd, errSeen)
		history, err := d.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			HistoryRecord: history,
			"chosen/kept": "19", "chosen/new": "19", "chosen/last": "1", "confirmed/other": "1", "confirmed/last": "1",
		}, all.state)
	})
}

// The records that a leader has read once are the result of the first Load of each prefix, and the first snapshot of a follower.
func TestReadRecords(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, _ shapes) {
		leader := lead(t, d)
		commit(t, leader.Records("chosen"), map[string]string{"a": "1", "gone": "1"})
		commit(t, leader.Records("confirmed"), map[string]string{"b": "1"})
		all, err := leader.ReadRecords(t.Context())
		require.NoError(t, err)
		chosen, none := all.Records("chosen"), all.Records("chose")
		load := func(r *Records) map[string]string {
			loaded, err := r.Load(t.Context())
			require.NoError(t, err)
			texts := map[string]string{}
			for name, value := range loaded {
				texts[name] = string(value)
			}
			return texts
		}
		require.Equal(t, map[string]string{"a": "1", "gone": "1"}, load(chosen))
		require.Empty(t, load(none))
		commit(t, chosen, map[string]string{"a": "2", "last": "1"}, "gone")
		require.Equal(t, map[string]string{"a": "2", "last": "1"}, load(chosen), "the second Load")
		follower := &ledger{t: t}
		require.ErrorIs(t, all.Follow(t.Context(), func(b RecordBatch) error {
			if follower.apply(b); b.Snapshot {
				require.Equal(t, "1", follower.state["chosen/a"])
				require.Equal(t, "1", follower.state["chosen/gone"])
			}
			if follower.state["chosen/last"] != "" {
				return errSeen
			}
			return nil
		}), errSeen)
		require.Equal(t, 1, follower.snapshots)
		delete(follower.state, HistoryRecord)
		require.Equal(t, map[string]string{"chosen/a": "2", "chosen/last": "1", "confirmed/b": "1"}, follower.state)
	})
}

// Where etcd has dropped the history, a snapshot says what there is.
func TestFollowRecordsAfterCompaction(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	records := lead(t, d).Records("chosen")
	commit(t, records, map[string]string{"gone": "1", "kept": "1"})
	l := &ledger{t: t}
	f := &recordFollower{d: d, prefix: recordsPrefix + "chosen/", fn: func(b RecordBatch) error {
		l.apply(b)
		return errSeen
	}}
	require.ErrorIs(t, f.run(t.Context()), errSeen)
	commit(t, records, map[string]string{"new": "0"}, "gone")
	commit(t, records, map[string]string{"new": "1"})
	f.refused = nil
	resp, err := d.client.Get(t.Context(), root)
	require.NoError(t, err)
	_, err = d.client.Compact(t.Context(), resp.Header.Revision)
	require.NoError(t, err)
	require.ErrorIs(t, f.run(t.Context()), errSeen)
	require.Equal(t, 2, l.snapshots)
	require.Equal(t, map[string]string{"new": "1", "kept": "1"}, l.state)
}

// A follower waits for an etcd that goes away and comes back, and reports nothing twice.
func TestFollowRecordsWhileAway(t *testing.T) {
	s := newShapes()
	dir := shortDir(t)
	process, lines := child(t, serverDir, dir)
	require.True(t, lines.Scan())
	d := open(t, Config{Schema: s.schema, Endpoints: []string{lines.Text()}, Timeout: 30 * time.Second, LeaseTTL: time.Minute})
	records := lead(t, d).Records("chosen")
	commit(t, records, map[string]string{"a": "1"})
	l := &ledger{t: t}
	ended := l.until(t.Context(), d, "chosen", "last")
	commit(t, records, map[string]string{"b": "1"})
	require.NoError(t, process.Kill())
	_, lines = child(t, serverDir, dir)
	require.True(t, lines.Scan())
	require.Eventually(t, func() bool {
		return records.Commit(t.Context(), map[string][]byte{"last": []byte("1")}, []string{"a"}) == nil
	}, patience.Patience, 50*time.Millisecond)
	require.ErrorIs(t, <-ended, errSeen)
	require.Equal(t, 1, l.snapshots)
	require.Equal(t, map[string]string{"b": "1", "last": "1"}, l.state)
}

func TestFollowRecordsEnds(t *testing.T) {
	s := newShapes()
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: t.TempDir()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l := &ledger{t: t}
	ended := l.until(ctx, d, "chosen", "never")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	started, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		closed <- d.FollowRecords(context.Background(), "chosen", func(RecordBatch) error { close(started); return nil })
	}()
	<-started
	require.NoError(t, d.Close())
	require.ErrorIs(t, <-closed, ErrClosed)
}

// A datastore keeps its identity, every replica has the same, and another
// datastore has another.
func TestIdentity(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	cfg := Config{Schema: s.schema, Endpoints: []string{endpoint}, LeaseTTL: time.Minute, Defaults: "first"}
	opened := make(chan *Datastore, 4)
	for range cap(opened) {
		go func() {
			d, err := Open(context.Background(), cfg)
			if err != nil {
				t.Error(err)
			}
			opened <- d
		}()
	}
	names := map[string]bool{}
	for range cap(opened) {
		d := <-opened
		names[d.Identity()] = true
		require.Equal(t, "first", d.Defaults())
		require.NoError(t, d.Close())
	}
	dir := t.TempDir()
	for range 2 {
		d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
		require.NoError(t, err)
		names[d.Identity()] = true
		require.NoError(t, d.Close())
	}
	require.Len(t, names, 2)
	require.NotContains(t, names, "")
}

// A datastore that was put back from a backup has another identity, once: nobody takes
// its revisions for those that had the same numbers before.
func TestIdentityOfWhatWasRestored(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	mark := filepath.Join(dir, "restored")
	var names []string
	for _, restored := range []bool{false, true, false} {
		if restored {
			require.NoError(t, os.WriteFile(mark, nil, 0o600))
		}
		d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
		require.NoError(t, err)
		require.NoFileExists(t, mark)
		if len(names) > 0 {
			require.NotNil(t, d.Get(s.pods, "a"))
		} else {
			require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
				tx.Put(s.pods, []string{"a"}, []byte("{}"))
				return nil
			}))
		}
		names = append(names, d.Identity())
		require.NoError(t, d.Close())
	}
	require.NotEqual(t, names[0], names[1])
	require.Equal(t, names[1], names[2])
}

// A datastore keeps the defaults with which it was created, also when it is restored. One that an earlier version has created has none.
func TestDefaults(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	open := func(defaults string) *Datastore {
		d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir, Defaults: defaults})
		require.NoError(t, err)
		return d
	}
	require.NoError(t, open("first").Close())
	d := open("second")
	require.Equal(t, "first", d.Defaults())
	require.NoError(t, d.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "restored"), nil, 0o600))
	d = open("third")
	require.Equal(t, "first", d.Defaults())
	_, err := d.client.Delete(t.Context(), defaultsKey)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "restored"), nil, 0o600))
	for range 2 {
		d = open("fourth")
		require.Empty(t, d.Defaults())
		require.NoError(t, d.Close())
	}
}

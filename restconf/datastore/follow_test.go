package datastore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// replay applies batches as a consumer would, and checks their order.
type replay struct {
	t     *testing.T
	rev   int64
	state map[string]string
}

func (r *replay) apply(b Batch) error {
	if b.Snapshot {
		r.state = map[string]string{}
	} else {
		require.Greater(r.t, b.Revision, r.rev)
	}
	r.rev = b.Revision
	for _, u := range b.Put {
		r.state[u.id] = string(u.Raw)
	}
	for _, u := range b.Delete {
		require.Contains(r.t, r.state, u.id)
		delete(r.state, u.id)
	}
	return nil
}

func TestFollow(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		put(t, d, s.coe, "", `{}`)
		put(t, d, s.pods, "before", `1`)
		end := errors.New("seen enough")
		r := &replay{t: t}
		got := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			got <- d.Follow(context.Background(), func(b Batch) error {
				if b.Snapshot {
					close(started)
				}
				if err := r.apply(b); err != nil {
					return err
				}
				if _, ok := r.state["pod:coe/pods=last"]; ok {
					return end
				}
				return nil
			})
		}()
		<-started
		for i := range 20 {
			put(t, d, s.pods, fmt.Sprint(i), `1`)
		}
		require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
			tx.DeleteAll(s.pods)
			tx.Put(s.pods, []string{"last"}, []byte(`1`))
			return nil
		}))
		require.ErrorIs(t, <-got, end)
		require.Equal(t, map[string]string{"pod:coe": "{}", "pod:coe/pods=last": "1"}, r.state)
	})
}

// A mirror that lost its place in etcd's history starts again from a list, and
// its followers see the difference.
func TestFollowAfterCompaction(t *testing.T) {
	s := newShapes()
	dir := shortDir(t)
	process, lines := child(t, serverDir, dir)
	require.True(t, lines.Scan())
	endpoint := lines.Text()
	d := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	other := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	put(t, d, s.pods, "gone", `1`)
	put(t, d, s.pods, "kept", `1`)
	require.NoError(t, other.mirror.reach(t.Context(), d.Revision()))

	// other stops watching while much happens.
	other.stop()
	other.done.Wait()
	put(t, d, s.pods, "new", `1`)
	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
		tx.Delete(s.pods, []string{"gone"})
		return nil
	}))
	_, err := d.client.Compact(t.Context(), d.Revision())
	require.NoError(t, err)

	states := make(chan map[string]string, 100)
	r := &replay{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- other.Follow(ctx, func(b Batch) error {
			defer func() { states <- maps.Clone(r.state) }()
			return r.apply(b)
		})
	}()
	require.Equal(t, map[string]string{"pod:coe/pods=gone": "1", "pod:coe/pods=kept": "1"}, <-states)
	run, stop := context.WithCancel(context.Background())
	other.stop = stop
	other.done.Go(func() { other.watch(run) })
	require.Equal(t, map[string]string{"pod:coe/pods=new": "1", "pod:coe/pods=kept": "1"}, <-states)

	// The server goes and comes back: the watch resumes.
	require.NoError(t, process.Kill())
	ctx2, cancel2 := context.WithTimeout(t.Context(), 300*time.Millisecond)
	err = d.Update(ctx2, func(tx *Tx) error { tx.Put(s.pods, []string{"x"}, []byte(`1`)); return nil })
	cancel2()
	require.ErrorIs(t, err, ErrUnavailable)
	_, lines = child(t, serverDir, dir)
	require.True(t, lines.Scan())
	require.Eventually(t, func() bool {
		return d.Update(t.Context(), func(tx *Tx) error { tx.Put(s.pods, []string{"y"}, []byte(`1`)); return nil }) == nil
	}, patience.Patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { return other.Get(s.pods, "y") != nil }, patience.Patience, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-followed, context.Canceled)
}

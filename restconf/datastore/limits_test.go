package datastore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

func fill(n, size int, s shapes) func(*Tx) error {
	return func(tx *Tx) error {
		for i := range n {
			tx.Put(s.pods, []string{fmt.Sprint(i)}, bytes.Repeat([]byte("x"), size))
		}
		return nil
	}
}

// update makes an Update, and repeats it while the datastore is unavailable: on a busy machine or a slow disk etcd gives up after seven
// seconds.
func update(t *testing.T, d *Datastore, fn func(*Tx) error) (err error) {
	t.Helper()
	for end := time.Now().Add(patience.Patience); ; {
		if err = d.Update(t.Context(), fn); !errors.Is(err, ErrUnavailable) || time.Now().After(end) {
			return err
		}
	}
}

func TestLimitsOfAnExternalServer(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(c *embed.Config) { c.MaxTxnOps, c.MaxRequestBytes = 128, 1<<16 })
	d := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	for _, c := range []struct {
		name    string
		n, size int
		flag    string
	}{
		{"too many operations", 129, 1, "--max-txn-ops"},
		{"too many bytes", 2, 1 << 15, "--max-request-bytes"},
		{"more bytes than the transport takes", 8, 1 << 18, "--max-request-bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := d.Update(t.Context(), fill(c.n, c.size, s))
			var limit *LimitError
			require.ErrorAs(t, err, &limit)
			require.Equal(t, c.flag, limit.Flag)
			require.Empty(t, d.Tree(s.coe))
		})
	}
	require.NoError(t, d.Update(t.Context(), fill(127, 1, s)), "with the mark it is 128")
	require.Len(t, d.Tree(s.coe), 127)
}

// The embedded etcd takes what a body within the limit can hold: many small units, or few large ones.
func TestLimitsOfTheEmbedded(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), BodyLimit: 1 << 20})
	for _, fn := range []func(*Tx) error{fill(1<<14, 16, s), fill(2, 1<<20, s)} {
		require.NoError(t, update(t, d, fn))
	}
	require.Len(t, d.Tree(s.coe), 1<<14)
}

// A container may be replaced by a body of the smallest entries, although what is
// between them has to be deleted with the same transaction.
func TestReplacementBySmallestEntries(t *testing.T) {
	s := newShapes()
	const limit = 1 << 16
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), BodyLimit: limit})
	replace := func(tx *Tx) error {
		tx.DeleteAll(s.pods)
		for i := range limit / minEntryBytes {
			id := fmt.Sprint(i)
			tx.Get(s.pods, id)
			tx.Put(s.pods, []string{id}, []byte(`{"id":"`+id+`"}`))
		}
		return nil
	}
	require.NoError(t, update(t, d, replace))
	require.NoError(t, update(t, d, replace))
	require.Len(t, d.Tree(s.coe), limit/minEntryBytes)
}

// one puts a unit of its own.
func one(s shapes, i, size int) func(*Tx) error {
	return func(tx *Tx) error {
		tx.Put(s.pods, []string{fmt.Sprint(i)}, bytes.Repeat([]byte("x"), size))
		return nil
	}
}

func TestFullDatabase(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	const many, size = 2000, 1 << 18
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir, Quota: 4 << 20})
	require.NoError(t, err)
	n := 0
	for err = update(t, d, one(s, n, size)); n < many && err == nil; err = update(t, d, one(s, n, size)) {
		n++
	}
	require.ErrorIs(t, err, ErrFull)
	require.ErrorIs(t, update(t, d, one(s, n, size)), ErrFull)
	require.Len(t, d.Tree(s.coe), n)
	require.NoError(t, d.Close())
	d = open(t, Config{Schema: s.schema, Dir: dir, Quota: 1 << 30})
	require.Len(t, d.Tree(s.coe), n, "what was refused is not there")
	require.NoError(t, update(t, d, one(s, n, size)), "a larger quota is the way out")
}

// Overwritten values do not fill the database: their space is reclaimed where the quota
// is reached, while others write, and their watches go on.
func TestPastIsDropped(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), Quota: 4 << 20})
	const writers, each = 4, 60
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range each {
				err := update(t, d, one(s, w, 1<<17))
				for end := time.Now().Add(patience.Patience); errors.Is(err, ErrFull) && time.Now().Before(end); { // somebody else is at it
					err = update(t, d, one(s, w, 1<<17))
				}
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	require.Len(t, d.Tree(s.coe), writers)
}

// An external etcd that is full refuses what would make it fuller, and all goes on without
// a restart once its operator has made room.
func TestFullExternalServer(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(c *embed.Config) { c.QuotaBackendBytes = 4 << 20 })
	d := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, etcd.Close()) }()
	for range 2 {
		for err = nil; err == nil; {
			err = d.Update(t.Context(), one(s, 0, 1<<18))
		}
		require.ErrorIs(t, err, ErrFull)
		require.ErrorContains(t, err, "disarm the NOSPACE alarm")
		now, err := etcd.Get(t.Context(), configPrefix)
		require.NoError(t, err)
		revision := now.Header.Revision
		require.ErrorIs(t, d.Update(t.Context(), one(s, 1, 1<<18)), ErrFull)
		now, err = etcd.Get(t.Context(), configPrefix)
		require.NoError(t, err)
		require.Equal(t, revision, now.Header.Revision)
		require.Len(t, d.Tree(s.coe), 1)

		_, err = etcd.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		_, err = etcd.Defragment(t.Context(), endpoint)
		require.NoError(t, err)
		_, err = etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
		require.NoError(t, err)
		require.NoError(t, d.Update(t.Context(), one(s, 0, 1<<18)))
	}
}

// TestDamagedUnit: a value that no unit can have is handed on as the unit's keys, and
// a client mends it by writing the entry, or deletes it.
func TestDamagedUnit(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	cfg := Config{Schema: s.schema, Endpoints: []string{endpoint}, Valid: func(raw []byte) bool { return string(raw) != "damaged" }}
	before := open(t, cfg)
	for _, key := range []string{"a", "b"} {
		_, err := before.client.Put(t.Context(), configPrefix+"pod:coe/pods="+key, "damaged")
		require.NoError(t, err)
	}
	d := open(t, cfg)
	u := d.mirror.get(s.coe, "pod:coe/pods=a")
	require.True(t, u.Damaged)
	require.JSONEq(t, `{"id":"a"}`, string(u.Raw))
	err := d.Update(t.Context(), func(tx *Tx) error {
		tx.Put(s.pods, []string{"a"}, []byte("whole"))
		tx.Delete(s.pods, []string{"b"})
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "whole", string(d.mirror.get(s.coe, "pod:coe/pods=a").Raw))
	require.Nil(t, d.mirror.get(s.coe, "pod:coe/pods=b"))
}

// TestDeletedUnitIsNotDamaged: a Batch has a deleted unit without Raw, also where values are
// judged.
func TestDeletedUnitIsNotDamaged(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), Valid: func(raw []byte) bool { return len(raw) > 0 }})
	change := func(do func(*Tx)) {
		require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
			do(tx)
			return nil
		}))
	}
	change(func(tx *Tx) { tx.Put(s.pods, []string{"a"}, []byte("whole")) })
	f := &follower{wake: make(chan struct{}, 1)}
	d.mirror.attach(f)
	defer d.mirror.detach(f)
	change(func(tx *Tx) { tx.Delete(s.pods, []string{"a"}) })
	var deleted []*Unit
	for _, b := range f.take() {
		deleted = append(deleted, b.Delete...)
	}
	require.Len(t, deleted, 1)
	require.Nil(t, deleted[0].Raw)
	require.False(t, deleted[0].Damaged)
}

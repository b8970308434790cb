package datastore

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// write makes one change and returns what Write told of it.
func write(t *testing.T, d *Datastore, fn func(*Tx)) Change {
	t.Helper()
	made, err := d.Write(t.Context(), func(tx *Tx) error {
		fn(tx)
		return nil
	})
	require.NoError(t, err)
	return made
}

func TestChangedTellsTheLastChange(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		require.Zero(t, d.Changed(nil).Revision)
		require.NotZero(t, d.Changed(nil).Time)
		begin := time.Now().Truncate(time.Second)
		var last Change
		for _, c := range []struct {
			name string
			do   func(*Tx)
		}{
			{"put", func(tx *Tx) { tx.Put(s.pods, []string{"a"}, []byte(`1`)) }},
			{"another put", func(tx *Tx) { tx.Put(s.pods, []string{"b"}, []byte(`1`)) }},
			{"delete of the older", func(tx *Tx) { tx.Delete(s.pods, []string{"a"}) }},
			{"delete of all", func(tx *Tx) { tx.DeleteAll(s.pods) }},
			{"delete of the container", func(tx *Tx) { tx.Delete(s.coe, nil) }},
		} {
			made := write(t, d, c.do)
			require.Greater(t, made.Revision, last.Revision, c.name)
			require.Equal(t, made, d.Changed(s.coe), c.name)
			require.Equal(t, made, d.Changed(nil), c.name)
			require.False(t, made.Time.Before(begin), c.name)
			last = made
		}
		other := write(t, d, func(tx *Tx) { tx.Put(s.rule, []string{"r"}, []byte(`1`)) })
		require.Equal(t, last, d.Changed(s.coe))
		require.Equal(t, other, d.Changed(s.k8s))
		require.Equal(t, other.Revision, d.Changed(nil).Revision)
		require.Zero(t, write(t, d, func(*Tx) {}))
	})
}

// The last change survives a restart, even if its unit is gone.
func TestChangedAfterARestart(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
	require.NoError(t, err)
	put(t, d, s.pods, "a", `1`)
	put(t, d, s.pods, "b", `1`)
	last := write(t, d, func(tx *Tx) { tx.Delete(s.pods, []string{"a"}) })
	require.NoError(t, d.Close())
	d = open(t, Config{Schema: s.schema, Dir: dir})
	require.Equal(t, last, d.Changed(s.coe))
	require.Len(t, d.Tree(s.coe), 1)
}

// Two who share an etcd tell the same.
func TestChangedIsTheSameForAll(t *testing.T) {
	s := newShapes()
	endpoint := server(t, func(*embed.Config) {})
	one := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	put(t, one, s.pods, "a", `1`)
	put(t, one, s.pods, "b", `1`)
	last := write(t, one, func(tx *Tx) { tx.DeleteAll(s.pods) })
	two := open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}})
	require.Equal(t, last, two.Changed(s.coe))
	last = write(t, two, func(tx *Tx) { tx.Put(s.coe, nil, []byte(`{}`)) })
	require.Eventually(t, func() bool { return one.Changed(s.coe) == last }, patience.Patience, time.Millisecond)
}

// Writers who go by what changed last lose no change, whatever and wherever it is.
func TestWritersThatRelyOnChanged(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		const writers, rounds = 8, 10
		var all sync.WaitGroup
		for w := range writers {
			top := []*yang.Node{s.coe, nil}[w%2]
			all.Go(func() {
				for range rounds {
					assert.NoError(t, d.Update(context.Background(), func(tx *Tx) error {
						tx.Changed(top)
						n := len(d.Tree(s.coe))
						tx.Put(s.pods, []string{strconv.Itoa(n)}, []byte(`1`))
						return nil
					}))
				}
			})
		}
		all.Wait()
		require.Len(t, d.Tree(s.coe), writers*rounds)
	})
}

// A deletion is a change that whoever relies on Changed sees.
func TestDeletionIsNoticed(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: filepath.Join(t.TempDir(), "d")})
	put(t, d, s.pods, "a", `1`)
	attempts := 0
	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
		attempts++
		tx.Changed(s.coe)
		if attempts == 1 {
			write(t, d, func(tx *Tx) { tx.Delete(s.pods, []string{"a"}) })
		}
		tx.Put(s.rule, []string{"r"}, []byte(`1`))
		return nil
	}))
	require.Equal(t, 2, attempts)
}

// The time stays where it is within a second, and never goes back.
func TestMarksAreFew(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	made := write(t, d, func(tx *Tx) { tx.Put(s.pods, []string{"a"}, []byte(`1`)) })
	for _, c := range []struct {
		name   string
		now    time.Time
		delete bool
		marks  int
		at     time.Time
	}{
		{"the same second", made.Time.Add(time.Second - 1), false, 0, made.Time},
		{"the next second", made.Time.Add(time.Second), false, 1, made.Time.Add(time.Second)},
		{"a clock that is behind", made.Time.Add(-time.Minute), false, 0, made.Time},
		{"a deletion", made.Time, true, 1, made.Time},
	} {
		tx := d.begin()
		tx.Put(s.pods, []string{"b"}, []byte(`1`))
		if c.delete {
			tx.Delete(s.pods, []string{"a"})
		}
		marks, at := tx.marks(c.now)
		require.Len(t, marks, c.marks, c.name)
		require.Equal(t, c.at, at, c.name)
	}
}

// An error of who relies on Changed is about one state: where that has passed, it
// decides again.
func TestErrorAboutAStateThatHasPassed(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	attempts := 0
	err := d.Update(t.Context(), func(tx *Tx) error {
		attempts++
		tx.Changed(s.coe)
		if attempts == 1 {
			put(t, d, s.pods, "a", `1`)
		}
		if tx.Get(s.pods, "a") != nil {
			return errors.New("attempt " + strconv.Itoa(attempts))
		}
		return nil
	})
	require.EqualError(t, err, "attempt 2")
}

package datastore

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
)

// Writers count in entries while others throw the container away: no count is lost, and
// no revision has an entry without its container.
func TestWritersSideBySide(t *testing.T) {
	s := newShapes()
	for name, cfg := range map[string]Config{
		"embedded": {Schema: s.schema, Dir: t.TempDir(), Timeout: time.Minute},
		"external": {Schema: s.schema, Endpoints: []string{server(t, func(*embed.Config) {})}, Timeout: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			watching.Go(func() {
				_ = d.Follow(ctx, func(Batch) error {
					if units := d.Tree(s.coe); len(units) > 0 && units[0].Node != s.coe {
						t.Errorf("%s is there without its container", units[0].id)
					}
					return nil
				})
			})
			const writers, entries, rounds = 16, 4, 20
			counted := make([]int, entries) // what each entry has lost to deletions and still has
			var mu sync.Mutex
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					for range rounds {
						assert.NoError(t, d.Update(t.Context(), countUp(s, strconv.Itoa(w%entries))))
					}
				})
			}
			for range 2 {
				all.Go(func() {
					for range rounds / 4 {
						lost := make([]int, entries)
						if !assert.NoError(t, d.Update(t.Context(), throwAway(s, lost))) {
							return
						}
						mu.Lock()
						for i, n := range lost {
							counted[i] += n
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			cancel()
			watching.Wait()
			for i := range entries {
				require.Equal(t, writers/entries*rounds, counted[i]+count(d.Get(s.pods, strconv.Itoa(i))), "entry %d", i)
			}
		})
	}
}

// countUp adds one to an entry, and makes the container where it is missing.
func countUp(s shapes, key string) func(*Tx) error {
	return func(tx *Tx) error {
		if tx.Get(s.coe) == nil {
			tx.Put(s.coe, nil, []byte(`{}`))
		}
		tx.Put(s.pods, []string{key}, strconv.AppendInt(nil, int64(count(tx.Get(s.pods, key)))+1, 10))
		return nil
	}
}

// throwAway deletes the container and all in it, and tells what the entries had.
func throwAway(s shapes, lost []int) func(*Tx) error {
	return func(tx *Tx) error {
		tx.Get(s.coe)
		for i := range lost {
			lost[i] = count(tx.Get(s.pods, strconv.Itoa(i)))
		}
		tx.DeleteAll(s.pods)
		tx.Delete(s.coe, nil)
		return nil
	}
}

func count(u *Unit) int {
	if u == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(u.Raw))
	return n
}

// If the result of a write is unknown, the next write relies on etcd and not on the
// mirror.
func TestAWriteInDoubt(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	require.NoError(t, d.Update(t.Context(), countUp(s, "1")))
	d.order.doubt.Store(true)
	late := func() error { // what was in doubt is made after all
		_, err := d.client.Put(t.Context(), configPrefix+d.layout.id(s.pods, []string{"1"}), "41")
		return err
	}
	tries := 0
	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
		err := countUp(s, "1")(tx)
		if tries++; tries == 1 {
			err = errors.Join(err, late())
		}
		return err
	}))
	require.Equal(t, 42, count(d.Get(s.pods, "1")))
	require.Equal(t, 2, tries)
	require.False(t, d.order.doubt.Load())
}

// A write that failed once it was sent leaves doubt, which ends with the next that is made.
func TestAWriteThatFailsLeavesDoubt(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir(), BodyLimit: 1 << 10})
	require.NoError(t, d.Update(t.Context(), countUp(s, "1")))
	size := int(embeddedConfig(d.cfg).MaxRequestBytes)
	err := d.Update(t.Context(), func(tx *Tx) error {
		tx.Put(s.pods, []string{"1"}, make([]byte, size))
		return nil
	})
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	require.True(t, d.order.doubt.Load())
	require.NoError(t, d.Update(t.Context(), countUp(s, "1")))
	require.False(t, d.order.doubt.Load())
	require.Equal(t, 2, count(d.Get(s.pods, "1")))
}

func TestPlainTransactions(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	for _, c := range []struct {
		name    string
		does    func(*Tx)
		entries []string
		plain   bool
	}{
		{"an entry is put", func(tx *Tx) { tx.Get(s.coe); tx.Get(s.pods, "1"); tx.Put(s.pods, []string{"1"}, nil) }, []string{"pod:coe/pods=1"}, true},
		{"an entry is deleted, since another is there", func(tx *Tx) { tx.Get(s.pods, "2"); tx.Delete(s.pods, []string{"1"}) }, []string{"pod:coe/pods=1", "pod:coe/pods=2"}, true},
		{"a container is put", func(tx *Tx) { tx.Put(s.coe, nil, nil) }, nil, false},
		{"a container is deleted", func(tx *Tx) { tx.Delete(s.coe, nil) }, nil, false},
		{"a list is emptied", func(tx *Tx) { tx.DeleteAll(s.pods) }, nil, false},
		{"an entry is put if nothing has changed", func(tx *Tx) { tx.Changed(s.coe); tx.Put(s.pods, []string{"1"}, nil) }, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx := d.begin()
			c.does(tx)
			entries, plain := tx.entries()
			require.Equal(t, c.plain, plain)
			require.ElementsMatch(t, c.entries, entries)
		})
	}
}

func TestTurnsAreGivenBack(t *testing.T) {
	order := newTxOrder()
	require.Nil(t, order.lock([]string{"a", "b"}))
	busy := order.lock([]string{"c", "b"})
	require.NotNil(t, busy)
	require.Nil(t, order.lock([]string{"c"}), "nothing of what was refused is taken")
	order.unlock([]string{"a", "b"})
	<-busy
	require.Nil(t, order.lock([]string{"a", "b"}))
}

package datastore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// shapes are the schema nodes that these tests store: a list in a top container,
// and one a container deeper.
type shapes struct {
	schema                            *yang.Schema
	coe, pods, iface, k8s, nest, rule *yang.Node
}

func newShapes() shapes {
	keyed := func(name string, children ...*yang.Node) *yang.Node {
		key := &yang.Node{Name: "id", Kind: yang.Leaf, Config: true}
		return &yang.Node{
			Name: name, Kind: yang.List, Config: true,
			Keys: []*yang.Node{key}, Children: append([]*yang.Node{key}, children...),
		}
	}
	box := func(name string, children ...*yang.Node) *yang.Node {
		return &yang.Node{Name: name, Kind: yang.Container, Config: true, Children: children}
	}
	var s shapes
	s.iface, s.rule = keyed("interface"), keyed("rule")
	s.pods = keyed("pods", s.iface)
	s.nest = box("nest", s.rule)
	s.coe, s.k8s = box("coe", s.pods), box("k8s", s.nest)
	s.schema = &yang.Schema{Modules: []*yang.Module{
		{Name: "k8s", Top: []*yang.Node{s.k8s}},
		{Name: "pod", Top: []*yang.Node{s.coe}},
	}}
	for _, m := range s.schema.Modules {
		link(m, nil, m.Top)
	}
	return s
}

func link(m *yang.Module, parent *yang.Node, nodes []*yang.Node) {
	for _, n := range nodes {
		n.Module, n.Parent = m, parent
		link(m, n, n.Children)
	}
}

func open(t *testing.T, cfg Config) *Datastore {
	t.Helper()
	d, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// server starts an etcd for others, as an operator would, and returns its endpoint.
func server(t *testing.T, tune func(*embed.Config)) (endpoint string) {
	t.Helper()
	e, endpoint, err := startServer(shortDir(t), tune)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return endpoint
}

func startServer(dir string, tune func(*embed.Config)) (*embed.Etcd, string, error) {
	sock := url.URL{Scheme: "unix", Path: filepath.Join(dir, "sock")}
	c := embed.NewConfig()
	c.Name, c.Dir = "x", filepath.Join(dir, "etcd")
	peer := url.URL{Scheme: "unix", Host: "x"}
	c.AdvertisePeerUrls, c.InitialCluster, c.ListenPeerUrls = []url.URL{peer}, "x="+peer.String(), nil
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{sock}, []url.URL{sock}
	c.TickMs, c.ElectionMs = 50, 250
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	tune(c)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, "", err
	}
	<-e.Server.ReadyNotify()
	return e, sock.String(), nil
}

// shortDir is a directory whose sockets' names are short enough for the kernel.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ds")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// both runs a test over the embedded and over an external etcd.
func both(t *testing.T, test func(t *testing.T, d *Datastore, s shapes)) {
	t.Run("embedded", func(t *testing.T) {
		s := newShapes()
		test(t, open(t, Config{Schema: s.schema, Dir: t.TempDir()}), s)
	})
	t.Run("external", func(t *testing.T) {
		s := newShapes()
		endpoint := server(t, func(*embed.Config) {})
		test(t, open(t, Config{Schema: s.schema, Endpoints: []string{endpoint}, LeaseTTL: time.Minute}), s)
	})
}

func put(t *testing.T, d *Datastore, node *yang.Node, key, raw string) {
	t.Helper()
	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
		tx.Put(node, keyOf(key), []byte(raw))
		return nil
	}))
}

func keyOf(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}

// show is a tree as text.
func show(units []*Unit) []string {
	out := []string{}
	for _, u := range units {
		out = append(out, u.id+" "+string(u.Raw))
	}
	return out
}

func TestUpdateIsSeenAndStays(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		require.Empty(t, d.Tree(s.coe))
		require.Nil(t, d.Get(s.coe))
		put(t, d, s.coe, "", `{}`)
		put(t, d, s.pods, "b/,=%", `{"id":"b"}`)
		put(t, d, s.pods, "a", `{"id":"a"}`)
		put(t, d, s.rule, "r", `{"id":"r"}`)

		require.Equal(t, []string{`pod:coe {}`, `pod:coe/pods=a {"id":"a"}`, `pod:coe/pods=b%2F%2C=%25 {"id":"b"}`}, show(d.Tree(s.coe)))
		require.Equal(t, []string{`k8s:k8s/nest/rule=r {"id":"r"}`}, show(d.Tree(s.k8s)))
		u := d.Get(s.pods, "b/,=%")
		require.Equal(t, []string{"b/,=%"}, u.Key)
		require.Same(t, s.pods, u.Node)
		require.NotZero(t, u.ModRevision)

		require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
			tx.Delete(s.pods, []string{"a"})
			return nil
		}))
		require.Nil(t, d.Get(s.pods, "a"))

		want := show(d.Tree(s.coe))
		again, err := Open(t.Context(), Config{Schema: s.schema, Endpoints: d.cfg.Endpoints, Dir: t.TempDir()})
		require.NoError(t, err)
		defer func() { require.NoError(t, again.Close()) }()
		if len(d.cfg.Endpoints) > 0 {
			require.Equal(t, want, show(again.Tree(s.coe)))
		}
	})
}

func TestUpdateReadsItsOwnWrites(t *testing.T) {
	s := newShapes()
	d := open(t, Config{Schema: s.schema, Dir: t.TempDir()})
	put(t, d, s.coe, "", `{}`)
	for _, k := range []string{"a", "b", "c", "d"} {
		put(t, d, s.pods, k, `1`)
	}
	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
		tx.Put(s.pods, []string{"a"}, []byte(`lost`))
		tx.DeleteAll(s.pods)
		require.Nil(t, tx.Get(s.pods, "a"))
		tx.Put(s.pods, []string{"b"}, []byte(`2`))
		tx.Put(s.pods, []string{"bb"}, []byte(`2`))
		tx.Put(s.pods, []string{"z"}, []byte(`2`))
		tx.Delete(s.pods, []string{"z"})
		require.Equal(t, "2", string(tx.Get(s.pods, "b").Raw))
		require.Equal(t, []string{"pod:coe {}", "pod:coe/pods=b 2", "pod:coe/pods=bb 2"}, show(tx.Tree(s.coe)))
		return nil
	}))
	require.Equal(t, []string{"pod:coe {}", "pod:coe/pods=b 2", "pod:coe/pods=bb 2"}, show(d.Tree(s.coe)))

	failure := fmt.Errorf("no")
	require.ErrorIs(t, d.Update(t.Context(), func(tx *Tx) error {
		tx.DeleteAll(s.pods)
		return failure
	}), failure)
	require.Len(t, d.Tree(s.coe), 3)

	require.NoError(t, d.Update(t.Context(), func(tx *Tx) error { // nothing to delete: no revision, and no waiting for it
		tx.Delete(s.pods, []string{"nobody"})
		return nil
	}))
}

// Writers that add to one value lose no addition: each attempt builds on what it
// has read, or runs again.
func TestUpdateConflicts(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		const writers, rounds = 4, 25
		var all sync.WaitGroup
		errs := make(chan error, writers*rounds)
		for range writers {
			all.Go(func() {
				for range rounds {
					errs <- d.Update(context.Background(), func(tx *Tx) error {
						var old []byte
						if u := tx.Get(s.pods, "n"); u != nil {
							old = u.Raw
						}
						tx.Put(s.pods, []string{"n"}, append(append([]byte{}, old...), 'x'))
						return nil
					})
				}
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.Equal(t, strings.Repeat("x", writers*rounds), string(d.Get(s.pods, "n").Raw))
	})
}

// An Update refuses for a state that existed: not for one half of what
// came before a change and one half of what came after.
func TestRefusalsOfWholeStates(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		toggle := func(tx *Tx) error {
			for _, key := range []string{"a", "b"} {
				if tx.Get(s.pods, key) == nil {
					tx.Put(s.pods, []string{key}, []byte("{}"))
				} else {
					tx.Delete(s.pods, []string{key})
				}
			}
			return nil
		}
		for range 4 {
			attempts := 0
			err := d.Update(t.Context(), func(tx *Tx) error {
				attempts++
				a := tx.Get(s.pods, "a")
				if attempts == 1 {
					require.NoError(t, d.Update(t.Context(), toggle))
				}
				if b := tx.Get(s.pods, "b"); (a == nil) != (b == nil) {
					return errors.New("one is there without the other")
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, 2, attempts)
		}
		refused := errors.New("refused")
		require.ErrorIs(t, d.Update(t.Context(), func(tx *Tx) error {
			tx.Get(s.pods, "a")
			return refused
		}), refused)
	})
}

// If many writers write one unit, each tries at most three times: first concurrently
// with all, then one by one against the newest writers.
func TestManyWritersOfOneUnit(t *testing.T) {
	both(t, func(t *testing.T, d *Datastore, s shapes) {
		const writers = 50
		var attempts atomic.Int64
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				assert.NoError(t, d.Update(t.Context(), func(tx *Tx) error {
					attempts.Add(1)
					tx.Get(s.coe)
					tx.Put(s.coe, nil, []byte("{}"))
					return nil
				}))
			})
		}
		all.Wait()
		require.LessOrEqual(t, attempts.Load(), int64(3*writers))
	})
}

func TestOpenOfADirectoryInUse(t *testing.T) {
	s := newShapes()
	dir := t.TempDir()
	open(t, Config{Schema: s.schema, Dir: dir})
	_, err := Open(t.Context(), Config{Schema: s.schema, Dir: dir})
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "another process uses it")
}

func TestRestart(t *testing.T) {
	s := newShapes()
	cfg := Config{Schema: s.schema, Dir: t.TempDir()}
	d, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	put(t, d, s.pods, "a", `1`)
	// The leader of the first run never resigns; the second must not wait for it.
	first, err := d.Campaign(t.Context())
	require.NoError(t, err)
	require.NoError(t, first.Records("x").Commit(t.Context(), map[string][]byte{"k": []byte("v")}, nil))
	require.NoError(t, d.Close())
	<-first.Lost

	d = open(t, cfg)
	require.Equal(t, []string{"pod:coe/pods=a 1"}, show(d.Tree(s.coe)))
	begin := time.Now()
	second, err := d.Campaign(t.Context())
	require.NoError(t, err)
	require.Less(t, time.Since(begin), aloneLeaseTTL/2)
	require.Greater(t, second.Epoch, first.Epoch)
	records, err := second.Records("x").Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"k": []byte("v")}, records)
}

func TestNoGoroutineIsLeftBehind(t *testing.T) {
	s := newShapes()
	d, err := Open(t.Context(), Config{Schema: s.schema, Dir: t.TempDir()})
	require.NoError(t, err)
	followed := make(chan error, 1)
	go func() { followed <- d.Follow(context.Background(), func(Batch) error { return nil }) }()
	put(t, d, s.pods, "a", `1`)
	require.NoError(t, d.Close())
	require.ErrorIs(t, <-followed, ErrClosed)
	require.Eventually(t, func() bool { return ourGoroutines() == "" }, patience.Patience, 10*time.Millisecond, ourGoroutines())
}

// ourGoroutines are the stacks of the goroutines of this package, except the tests'
// own.
func ourGoroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "restconf/datastore.") && !strings.Contains(stack, "_test.go") {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}

// An error about an unreachable etcd names its address, and the flag of that address.
func TestOpenWithoutEtcd(t *testing.T) {
	_, err := Open(t.Context(), Config{Schema: newShapes().schema, Endpoints: []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, Timeout: 100 * time.Millisecond})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "--etcd-endpoints http://127.0.0.1:1,http://127.0.0.1:2")
}

package agentstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// diary is a Journal in memory that can fail.
type diary struct {
	mu      sync.Mutex
	records map[string][]byte
	fails   int // number of calls that fail
	commits int
	most    int // MaxOps; 0 means 4
}

// mostBytes is how many bytes a Commit may have, as in etcd.
const mostBytes = 3 << 19

var errDiary = errors.New("the datastore is away")

func (d *diary) trouble() error {
	if d.fails > 0 {
		d.fails--
		return errDiary
	}
	return nil
}

func (d *diary) Load(context.Context) (map[string][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.records), d.trouble()
}

func (d *diary) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(puts)+len(deletes) > d.MaxOps() {
		return fmt.Errorf("%d changes are too many", len(puts)+len(deletes))
	}
	bytes := 0
	for name, value := range puts {
		bytes += len(name) + len(value)
	}
	if bytes > mostBytes {
		return fmt.Errorf("%d bytes are too many", bytes)
	}
	maps.Copy(d.records, puts)
	for _, name := range deletes {
		delete(d.records, name)
	}
	d.commits++
	return d.trouble() // the changes were made despite the error
}

func (d *diary) MaxOps() int { return cmp.Or(d.most, 4) }

func (d *diary) names() []string { return slices.Sorted(maps.Keys(d.records)) }

// confirmWorld is a Store, a Journal, and the leases that a backend has, by pod UID.
type confirmWorld struct {
	t     *testing.T
	store *state.Store
	diary *diary
	c     *Confirmer
	noted map[string]bool // written by the Confirmer

	mu      sync.Mutex
	backend map[string]*coe.Lease
	network Network
}

// turns changes the network identity of the backend, once the Confirmer is idle.
func (w *confirmWorld) turns(n Network) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.network = n
}

// takes gives the backend a new lease, once the Confirmer is idle.
func (w *confirmWorld) takes(uid, addr string) {
	synctest.Wait()
	l := w.lease(uid, addr)
	w.mu.Lock()
	w.backend[uid] = l
	w.mu.Unlock()
	w.c.Mark(uid)
}

func newConfirmWorld(t *testing.T) *confirmWorld {
	w := &confirmWorld{t: t, store: state.NewStore(nil, coe.RESTCONF), diary: &diary{records: map[string][]byte{}}, backend: map[string]*coe.Lease{}, noted: map[string]bool{}}
	w.c = NewConfirmer(w.store, w.diary, ConfirmedBackend{
		Has: func(l *coe.Lease) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.backend[l.PodUID] == l
		},
		Network: func() Network {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.network
		},
		Noted: func(uid string, confirmed bool) { w.noted[uid] = confirmed },
	}, slog.New(slog.DiscardHandler))
	return w
}

func (w *confirmWorld) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { w.c.Run(ctx); close(done) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// lease sets the lease of a pod, nil for none, without a mark.
func (w *confirmWorld) lease(uid, addr string) *coe.Lease {
	l := &coe.Lease{
		PodUID: uid, InterfaceUID: uid, Namespace: "shop", Pod: uid, Name: "shop:" + uid, Node: netip.MustParseAddr("192.168.33.12"),
		Addresses: []coe.LeasedAddress{{Address: netip.MustParseAddr(addr)}},
	}
	w.store.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: uid, Name: uid, Namespace: "shop"})
		tx.PutLease(l)
	})
	return l
}

func TestConfirmer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newConfirmWorld(t)
		old := w.lease("a", "10.11.0.3")
		w.diary.records["gone/gone"] = []byte("{}")
		w.diary.records["a/a"] = ConfirmationOf(old).Encode()
		w.run()
		synctest.Wait()
		sleep := func() { pause(t.Context(), 2*gather); synctest.Wait() }
		sleep()
		require.Equal(t, []string{"a/a"}, w.diary.names(), "the record of a deleted pod is deleted; the others are unknown yet")
		w.c.Mark("a")
		sleep()
		require.Empty(t, w.diary.names(), "the backend has nothing")

		w.backend["a"] = old
		w.c.Mark("a")
		sleep()
		require.Equal(t, []string{"a/a"}, w.diary.names())
		require.Equal(t, ConfirmationOf(old).Encode(), w.diary.records["a/a"])
		require.Equal(t, map[string]bool{"a": true, "gone": false}, w.noted)

		commits := w.diary.commits
		w.c.Mark("a", "nobody")
		sleep()
		require.Equal(t, commits, w.diary.commits, "correct records are not written")

		w.store.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, "a") })
		w.c.Mark("a")
		sleep()
		require.Equal(t, []string{"a/a"}, w.diary.names(), "no origin has reported the pod, but it may exist")

		w.lease("a", "10.11.0.4")
		w.c.Mark("a")
		sleep()
		require.Empty(t, w.diary.names(), "the backend has another address")
	})
}

// TestConfirmerNetwork: a network identity is published after an interface was confirmed in that
// network, and not before.
func TestConfirmerNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newConfirmWorld(t)
		w.diary.records[NetworkRecord] = Network{"first"}.Encode()
		w.turns(Network{"second"})
		w.lease("a", "10.11.0.3")
		w.run()
		look := func() {
			w.c.Mark("a")
			pause(t.Context(), 2*gather)
			synctest.Wait()
		}
		look()
		require.Equal(t, []string{NetworkRecord}, w.diary.names())
		is := func(identity string) {
			t.Helper()
			synctest.Wait()
			w.diary.mu.Lock()
			defer w.diary.mu.Unlock()
			require.Equal(t, string(Network{identity}.Encode()), string(w.diary.records[NetworkRecord]))
		}
		pause(t.Context(), 2*settleMost)
		is("first") // nothing is confirmed
		w.takes("a", "10.11.0.5")
		look()
		require.Equal(t, []string{"a/a", NetworkRecord}, w.diary.names())
		pause(t.Context(), settleQuiet/2)
		w.takes("b", "10.11.0.4")
		pause(t.Context(), settleQuiet*3/4)
		is("first") // it is not due yet
		pause(t.Context(), settleQuiet)
		is("second")

		commits := w.diary.commits
		look()
		w.turns(Network{})
		look()
		require.Equal(t, commits, w.diary.commits, "no new identity, and an unknown one")
		w.turns(Network{"third"})
		look()
		pause(t.Context(), 2*settleQuiet)
		is("third") // the confirmations still count

		w.turns(Network{"fourth"})
		for i := range int(settleMost/settleQuiet) * 4 {
			if i > 0 && i < 20 {
				is("third")
			}
			w.takes(fmt.Sprintf("churn-%d", i), fmt.Sprintf("10.11.1.%d", i))
			pause(t.Context(), settleQuiet/4)
		}
		pause(t.Context(), gather)
		is("fourth") // although new interfaces are confirmed all the time
	})
}

func TestConfirmerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newConfirmWorld(t)
		w.diary.fails = 1 // the first Load
		var want []string
		for i := range 11 {
			uid := fmt.Sprintf("pod-%02d", i)
			w.backend[uid] = w.lease(uid, fmt.Sprintf("10.11.0.%d", 3+i))
			w.c.Mark(uid)
			want = append(want, uid+"/"+uid)
		}
		w.run()
		pause(t.Context(), retryAfter/2)
		require.Empty(t, w.diary.names())
		w.diary.mu.Lock()
		w.diary.fails = 2 // Load again, and a Commit
		w.diary.mu.Unlock()
		pause(t.Context(), 4*retryAfter)
		synctest.Wait()
		require.Equal(t, want, w.diary.names())
	})
}

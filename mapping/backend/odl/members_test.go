package odl_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// failing answers 500 to the requests for data that match, as a member that has lost the others of its cluster does. It goes on
// answering what it serves.
func failing(matches func(*http.Request) bool) odlfake.Fault {
	refuse := answer(http.StatusInternalServerError, "application/json", `{"errors":{"error":[{"error-type":"application","error-tag":"operation-failed"}]}}`)
	return func(w http.ResponseWriter, r *http.Request) bool {
		return !strings.Contains(r.URL.Path, "modules") && matches(r) && refuse(w, r)
	}
}

func all(*http.Request) bool      { return true }
func writes(r *http.Request) bool { return r.Method != http.MethodGet }

// members returns a backend of two controllers.
func members(t *testing.T) (b *odl.Backend, first, second *fake) {
	first, second = newFake(t, odlfake.Oxygen), newFake(t, odlfake.Oxygen)
	cfg := first.config(t)
	cfg.URLs += "," + second.url
	return open(t, cfg), first, second
}

// TestSeparatedMember: a member that answers, but has no datastore, is left for another one.
func TestSeparatedMember(t *testing.T) {
	for name, matches := range map[string]func(*http.Request) bool{"reads and writes fail": all, "writes fail": writes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, first, second := members(t)
			first.Break(failing(matches))
			want := odltest.PodsOf("a")
			heal(t, b, want)
			require.NotEmpty(t, second.Keys("ietf-interfaces:interfaces"))
			agree(t, b, want)
		})
	}
}

// TestNoLeader: while no member accepts a write, no entry counts as rejected.
func TestNoLeader(t *testing.T) {
	b, first, second := members(t)
	want := odltest.PodsOf("a")
	write(t, b, want)
	more := odltest.PodsOf("a", "b")
	for _, f := range []*fake{first, second} {
		f.Break(failing(writes))
	}
	for range 8 {
		err := b.Write(t.Context(), netvirt.Diff(want, more))
		require.Error(t, err)
		require.NotErrorIs(t, err, netvirt.ErrRejected)
	}
	first.Break(nil)
	heal(t, b, more)
}

// TestNoLeaderForMany: the backend counts no failures of entries while the cluster has no leader, so it rejects no entry after the election.
func TestNoLeaderForMany(t *testing.T) {
	b, first, second := members(t)
	want := odltest.PodsOf()
	for i := range 16 {
		odltest.PodOn(want, fmt.Sprintf("ns-%d", i), "pod", 0, i)
	}
	for _, f := range []*fake{first, second} {
		f.Break(failing(func(r *http.Request) bool { return writes(r) && !ofTopology(r) }))
	}
	for range 4 {
		err := b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want))
		require.ErrorContains(t, err, "accepts no write")
	}
	for _, f := range []*fake{first, second} {
		f.Break(failing(func(r *http.Request) bool { return writes(r) && strings.Contains(r.URL.Path, "ns-0") }))
	}
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.NotErrorIs(t, b.Write(t.Context(), netvirt.Diff(have, want)), netvirt.ErrRejected)
	for _, f := range []*fake{first, second} {
		f.Break(nil)
	}
	heal(t, b, want)
}

// ofTopology matches the requests for the identity, which is in another part of the datastore than the entries.
func ofTopology(r *http.Request) bool { return strings.Contains(r.URL.Path, "network-topology") }

// TestPartsOfTheDatastore: whether entries are refused depends on the part of the datastore that has them, and not on that of the identity.
func TestPartsOfTheDatastore(t *testing.T) {
	ofBad := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "ietf-interfaces") }
	for name, c := range map[string]struct {
		fails    func(*http.Request) bool
		rejected bool
	}{
		"only the part with the identity accepts writes":    {func(r *http.Request) bool { return writes(r) && !ofTopology(r) }, false},
		"only the part with the identity accepts no writes": {func(r *http.Request) bool { return writes(r) && (ofTopology(r) || ofBad(r)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, first, second := members(t)
			want := odltest.PodsOf("a")
			write(t, b, want)
			for _, f := range []*fake{first, second} {
				f.Break(failing(c.fails))
			}
			more := netvirt.Model{}
			maps.Copy(more, want)
			more.Add(netvirt.Interface{Name: "a:more", ParentInterface: "tap00000000-01"})
			rejected := false
			for range 8 {
				err := b.Write(t.Context(), netvirt.Diff(want, more))
				require.Error(t, err)
				rejected = rejected || errors.Is(err, netvirt.ErrRejected)
			}
			require.Equal(t, c.rejected, rejected)
		})
	}
}

// TestSlowMember: a member that answers, but needs too long for a whole list, is not left.
func TestSlowMember(t *testing.T) {
	t.Parallel()
	first, second := newFake(t, odlfake.Oxygen), newFake(t, odlfake.Oxygen)
	cfg := first.config(t)
	cfg.URLs += "," + second.url
	cfg.ReadTimeout = 500 * time.Millisecond
	b := open(t, cfg)
	second.Load(http.StatusServiceUnavailable) // on a busy machine the first can need longer than ReadTimeout here
	heal(t, b, odltest.PodsOf("a"))
	second.Load(0)
	hung := make(chan struct{}, 1000)
	first.Break(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ":interfaces") {
			return false
		}
		hung <- struct{}{}
		return hang(w, r)
	})
	var asked atomic.Int32 // beside its shards
	second.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		if !asksForShards(r) {
			asked.Add(1)
		}
		return false
	})
	watch(t, b)
	for range 3 { // comparisons
		select {
		case <-hung:
		case <-time.After(patience):
			require.Fail(t, "the member is not asked")
		}
	}
	require.Zero(t, asked.Load())
}

// asksForShards reports whether a request is one of package shards, which looks at each member.
func asksForShards(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/jolokia/") }

// TestSeparatedWhileIdle: Watch leaves a member that cannot read its data, also while nothing is written.
func TestSeparatedWhileIdle(t *testing.T) {
	b, first, second := members(t)
	want := odltest.PodsOf("a")
	write(t, b, want)
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	changed := make(chan struct{}, 1)
	go func() {
		_ = b.Watch(t.Context(), func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	first.Break(failing(all))
	select {
	case <-changed:
	case <-time.After(6 * patience):
		require.Fail(t, "no change was reported")
	}
	heal(t, b, want)
	require.NotEmpty(t, second.Keys("ietf-interfaces:interfaces"))
}

// TestFrozenMember: a member that does not answer is asked in one dialect only, because each request takes the whole time.
func TestFrozenMember(t *testing.T) {
	t.Parallel()
	b, first, second := members(t)
	var asked atomic.Int64
	first.Break(func(w http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		return hang(w, r)
	})
	heal(t, b, odltest.PodsOf("a"))
	require.NotEmpty(t, second.Keys("ietf-interfaces:interfaces"))
	require.EqualValues(t, 1, asked.Load())
}

// TestWatchesShards: Watch looks at the shards of each member of a cluster, and not at the shards of a single controller.
func TestWatchesShards(t *testing.T) {
	b, first, second := members(t)
	alone := newFake(t, odlfake.Oxygen)
	asked := map[*fake]*atomic.Int32{first: {}, second: {}, alone: {}}
	for f, times := range asked {
		f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
			if asksForShards(r) {
				times.Add(1)
			}
			return false
		})
	}
	for _, b := range []*odl.Backend{open(t, alone.config(t)), b} {
		write(t, b, odltest.PodsOf("a"))
		watch(t, b)
	}
	require.Eventually(t, func() bool { return asked[first].Load() > 2 && asked[second].Load() > 2 }, patience, time.Millisecond)
	require.Zero(t, asked[alone].Load())
}

// TestWatchMovesShard: Watch lets the member that follows lead a shard that commits nothing.
func TestWatchMovesShard(t *testing.T) {
	first, second := newFake(t, odlfake.Oxygen), newFake(t, odlfake.Oxygen)
	cfg := first.config(t)
	cfg.URLs += "," + second.url
	cfg.StuckAfter = 50 * time.Millisecond
	b := open(t, cfg)
	write(t, b, odltest.PodsOf("a"))
	bodies := make(chan string, 100)
	says := func(name, role string, waits int) odlfake.Fault {
		shards := answer(http.StatusOK, "application/json", fmt.Sprintf(
			`{"status":200,"value":{"d:name=%s-shard-inventory-operational":{"RaftState":%q,"Leader":"member-1-shard-inventory-operational","PendingTxCommitQueueSize":%d,"CommittedTransactionsCount":490}}}`, name, role, waits))
		return func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/operations/cluster-admin:make-leader-local") {
				body, _ := io.ReadAll(r.Body)
				bodies <- name + " " + string(body)
				return answer(http.StatusOK, "", "")(w, r)
			}
			return asksForShards(r) && shards(w, r)
		}
	}
	first.Break(says("member-1", "Leader", 17))
	second.Break(says("member-2", "Follower", 0))
	watch(t, b)
	select {
	case body := <-bodies:
		require.Equal(t, `member-2 {"cluster-admin:input":{"shard-name":"inventory","data-store-type":"operational"}}`, body)
	case <-time.After(patience):
		require.Fail(t, "no member is asked to lead")
	}
}

// TestShardsAreForbidden: if the members refuse the user at Jolokia, reads and writes go on.
func TestShardsAreForbidden(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		b, first, second := members(t)
		var refused atomic.Int32
		for _, f := range []*fake{first, second} {
			f.Break(func(w http.ResponseWriter, r *http.Request) bool {
				if !asksForShards(r) {
					return false
				}
				refused.Add(1)
				return answer(status, "", "")(w, r)
			})
		}
		write(t, b, odltest.PodsOf("a"))
		watch(t, b)
		require.Eventually(t, func() bool { return refused.Load() > 4 }, patience, time.Millisecond)
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, odltest.PodsOf("a", "b"))))
	}
}

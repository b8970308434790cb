package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// Three members of Oxygen gave the answers in testdata, after one had been separated from the others: the leader of two shards commits nothing, and
// then another member leads them.
const whileStuck, whenMoved = "stuck", "moved"

// cluster is a cluster of three members.
type cluster struct {
	*Keeper
	t    *testing.T
	urls []string

	mu     sync.Mutex
	says   string                                          // which answers the members give about their shards
	answer func(w http.ResponseWriter, member string) bool // instead of these; nil for none. It reports whether it has answered
	refuse map[string]int                                  // status of a member's answer to the RPC
	calls  []string                                        // member, path and body
	log    bytes.Buffer
}

// newCluster starts a cluster whose members have a release, and a Keeper of it.
func newCluster(t *testing.T, release odlfake.Release, mayWrite func(context.Context) error) *cluster {
	t.Helper()
	c := &cluster{t: t, says: whileStuck, refuse: map[string]int{}}
	for i := range 3 {
		name := fmt.Sprintf("member-%d", i+1)
		fake, err := odlfake.New(release)
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /jolokia/read/", func(w http.ResponseWriter, r *http.Request) { c.tell(w, r, name) })
		mux.HandleFunc("POST /restconf/operations/", func(w http.ResponseWriter, r *http.Request) { c.call(w, r, name) })
		mux.HandleFunc("POST /rests/operations/", func(w http.ResponseWriter, r *http.Request) { c.call(w, r, name) })
		mux.Handle("/", fake)
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		c.urls = append(c.urls, server.URL)
	}
	password := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(password, []byte(odlfake.User+":"+odlfake.Password), 0o600))
	log := slog.New(slog.NewTextHandler(&c.log, nil))
	client, err := controller.New(controller.Config{
		AuthFile: password, Timeout: patience.Patience, ReadTimeout: patience.Patience, ConnectTimeout: patience.Patience,
		Parallel: 8, AnswerBytes: 1 << 20, MayWrite: mayWrite,
	}, log)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	session, err := client.Open(t.Context(), c.urls[0])
	require.NoError(t, err)
	c.Keeper = New(Config{Client: client, URLs: c.urls, Poll: 5 * time.Millisecond, StuckAfter: time.Minute}, log)
	c.Use(session)
	return c
}

// tell answers a question for the shards of a member.
func (c *cluster) tell(w http.ResponseWriter, r *http.Request, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer != nil && c.answer(w, member) {
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=utf-8")
	if r.URL.Query().Get("mimeType") == "application/json" {
		w.Header().Set("Content-Type", "application/json;charset=utf-8")
	}
	answer, err := os.ReadFile(filepath.Join("testdata", c.says+"-"+member+".json"))
	require.NoError(c.t, err)
	_, _ = w.Write(answer)
}

func (c *cluster) call(w http.ResponseWriter, r *http.Request, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	c.calls = append(c.calls, member+" "+r.URL.Path+" "+string(body))
	if status := c.refuse[member]; status != 0 {
		w.WriteHeader(status)
	}
}

// looks lets the Keeper look some times, a time apart. It returns the calls of the members.
func (c *cluster) looks(n int, apart time.Duration) []string {
	c.t.Helper()
	c.mu.Lock()
	c.calls = nil
	c.mu.Unlock()
	for range n {
		c.look(c.t.Context(), c.current.Load())
		for id, w := range c.waiting {
			w.since = w.since.Add(-apart)
			c.waiting[id] = w
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.calls)
	return c.calls
}

// set says what the members answer from now on.
func (c *cluster) set(says string, answer func(w http.ResponseWriter, member string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.says, c.answer = says, answer
}

func made(member, operations, shard string) string {
	return member + " " + operations + "/cluster-admin:make-leader-local " + `{"cluster-admin:input":{"shard-name":"` + shard + `","data-store-type":"operational"}}`
}

// TestStuckShards: another member leads the shards that commit nothing, by the RPCs of its dialect.
func TestStuckShards(t *testing.T) {
	for operations, release := range map[string]odlfake.Release{"/restconf/operations": odlfake.Oxygen, "/rests/operations": odlfake.AsTheRFC} {
		t.Run(operations, func(t *testing.T) {
			c := newCluster(t, release, nil)
			require.Empty(t, c.looks(2, 20*time.Second))
			require.Equal(t, []string{made("member-1", operations, "inventory"), made("member-1", operations, "topology")}, c.looks(2, 20*time.Second))
			c.set(whenMoved, nil)
			require.Empty(t, c.looks(20, time.Minute))
			require.Empty(t, c.waiting)
			require.Equal(t, 2, strings.Count(c.log.String(), "another member leads it now"))
			require.Contains(t, c.log.String(), "shard=inventory datastore=operational leader=member-3-shard-inventory-operational by="+c.urls[0])
		})
	}
}

// TestKeep: Keep looks at the shards at its interval.
func TestKeep(t *testing.T) {
	c := newCluster(t, odlfake.Oxygen, nil)
	c.cfg.StuckAfter = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Keep(ctx) })
	defer func() { cancel(); running.Wait() }()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.calls) >= 2
	}, patience.Patience, time.Millisecond)
}

// TestRefusedMoves: if the first member does not become the leader, the next one is asked, and later both again, each time after twice as long.
func TestRefusedMoves(t *testing.T) {
	c := newCluster(t, odlfake.Oxygen, nil)
	c.refuse["member-1"] = http.StatusInternalServerError
	first, second := made("member-1", "/restconf/operations", "inventory"), made("member-2", "/restconf/operations", "inventory")
	all := c.looks(4, 30*time.Second)
	require.Len(t, all, 4)
	require.Equal(t, []string{first, second}, []string{all[0], all[2]})
	require.Len(t, c.looks(1, 30*time.Second), 4)
	require.Empty(t, c.looks(3, 30*time.Second))
	require.Len(t, c.looks(1, 30*time.Second), 4)
	require.NotContains(t, c.log.String(), "could be made")

	c.refuse["member-2"] = http.StatusInternalServerError
	require.Len(t, c.looks(8, 30*time.Second), 4)
	require.Equal(t, 2, strings.Count(c.log.String(), "no other member could be made its leader"))
	c.refuse = map[string]int{}
	require.Len(t, c.looks(1+8+5*16, time.Minute), 2*6, "after 8 minutes, and then every 16 minutes")
}

// TestWorkingShards: a shard is left alone while it commits transactions, and while members say nothing. The time goes on if a member has said nothing once.
func TestWorkingShards(t *testing.T) {
	c := newCluster(t, odlfake.Oxygen, nil)
	committed := 0
	c.set(whileStuck, func(w http.ResponseWriter, _ string) bool {
		committed++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"status":200,"value":{"d:type=x,name=member-1-shard-default-config":{"RaftState":"Leader","PendingTxCommitQueueSize":3,"CommittedTransactionsCount":%d}}}`, committed)
		return true
	})
	require.Empty(t, c.looks(20, time.Hour))
	require.Contains(t, c.waiting, "member-1-shard-default-config")

	for name, answer := range map[string]string{
		"an error of Jolokia": `{"status":404,"error":"InstanceNotFoundException"}`, "a list": `[]`, "no JSON": `<html>`, "nothing": ``,
	} {
		c.set(whileStuck, func(w http.ResponseWriter, _ string) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
			return true
		})
		require.Empty(t, c.looks(3, time.Hour), name)
	}
	c.set(whileStuck, nil)
	require.Empty(t, c.looks(2, 20*time.Second))
	c.set(whileStuck, func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusServiceUnavailable); return true })
	require.Empty(t, c.looks(1, 20*time.Second))
	c.set(whileStuck, nil)
	require.Len(t, c.looks(1, 0), 2)
}

// TestLeadsAgain: the time of a replica goes on while it does not lead. When it has led in two looks, another member leads.
func TestLeadsAgain(t *testing.T) {
	c := newCluster(t, odlfake.Oxygen, nil)
	say := func(role string) []string {
		c.set(whileStuck, func(w http.ResponseWriter, member string) bool {
			role, waits := role, 3
			if member != "member-1" {
				role, waits = "Follower", 0
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"status":200,"value":{"d:name=%s-shard-default-operational":{"RaftState":%q,"Leader":"member-1-shard-default-operational","PendingTxCommitQueueSize":%d}}}`,
				member, role, waits)
			return true
		})
		return c.looks(1, 40*time.Second)
	}
	for _, role := range []string{"Leader", "Follower", "Candidate", "Leader"} {
		require.Empty(t, say(role))
	}
	require.Equal(t, []string{made("member-2", "/restconf/operations", "default")}, say("Leader"))
}

// TestShardsAreNotShown: the log says once that no member says something of its shards. A refusal of the user there does not keep the bridge from other requests.
func TestShardsAreNotShown(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		c := newCluster(t, odlfake.Oxygen, nil)
		c.set(whileStuck, func(w http.ResponseWriter, _ string) bool { w.WriteHeader(status); return true })
		require.Empty(t, c.looks(refusedLooks-1, 0))
		require.Empty(t, c.log.String())
		require.Empty(t, c.looks(3*refusedLooks, 0))
		require.Equal(t, 1, strings.Count(c.log.String(), "level=WARN"), c.log.String())
		require.NoError(t, c.current.Load().Ready(t.Context()))
	}
}

// TestMayNotMove: a bridge that does not write moves no shard.
func TestMayNotMove(t *testing.T) {
	c := newCluster(t, odlfake.Oxygen, func(context.Context) error { return errors.New("it does not lead") })
	require.Empty(t, c.looks(4, time.Minute))
	require.Contains(t, c.log.String(), "it does not lead")
}

// TestNames: the name of a replica says what it is a copy of.
func TestNames(t *testing.T) {
	for bean, want := range map[string]shard{
		"org.opendaylight.controller:Category=Shards,name=member-1-shard-default-config,type=DistributedConfigDatastore":                                 {"default", "config"},
		"org.opendaylight.controller:type=DistributedOperationalDatastore,name=member-1-shard-entity-ownership-operational,Category=Shards":              {"entity-ownership", "operational"},
		"org.opendaylight.controller:Category=Shards,name=odl.example-shard-prefix-configuration-shard-operational,type=DistributedOperationalDatastore": {"prefix-configuration-shard", "operational"},
		"org.opendaylight.controller:Category=Shards":        {},
		"org.opendaylight.controller:Category=Shards,name=x": {},
	} {
		require.Equal(t, want, shardOf(nameOf(bean)), bean)
	}
}

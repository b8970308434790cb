package agentstream

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	stormNodes   = 8
	stormPods    = 60
	stormCommits = 1500
)

func nodeName(i int) string { return fmt.Sprintf("192.168.33.%d", 10+i) }

// storm is a leader that changes leases at random, and the expected state of agents.
type storm struct {
	*bed
	random *rand.Rand
	pods   map[string]*coe.Lease // active or released
	sure   map[string][]byte
	macs   int
}

// step commits a few changes. A confirmation is a separate commit, because it has other records.
func (s *storm) step() {
	puts, deletes := map[string][]byte{}, []string{}
	sure, unsure := map[string][]byte{}, []string{}
	for range 1 + s.random.IntN(4) {
		uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", s.random.IntN(stormPods))
		l, key := s.pods[uid], uid+"/"+uid
		if _, twice := puts["lease/"+key]; twice || len(deletes)+len(unsure) > 0 {
			continue
		}
		switch n := s.random.IntN(10); {
		case l == nil || n < 3: // new, changed, moved, or reused
			s.macs++
			l = lease(uid, nodeName(s.random.IntN(stormNodes)))
			l.MAC = fmt.Sprintf("0a:58:00:%02x:%02x:%02x", s.macs>>16, s.macs>>8&255, s.macs&255)
			s.pods[uid] = l
			puts["lease/"+key] = records(s.t, l)["chosen/lease/"+key]
		case n < 4:
			released := *l
			released.Released = 1
			s.pods[uid] = &released
			puts["lease/"+key] = records(s.t, &released)["chosen/lease/"+key]
		case n < 5:
			delete(s.pods, uid)
			deletes = append(deletes, "lease/"+key)
		case n < 9:
			sure[key] = ConfirmationOf(l).Encode()
			s.sure[key] = sure[key]
		case s.sure[key] != nil && sure[key] == nil:
			delete(s.sure, key)
			unsure = append(unsure, key)
		}
	}
	if len(puts)+len(deletes) > 0 {
		require.NoError(s.t, s.chosen.Commit(s.t.Context(), puts, deletes))
	}
	if len(sure)+len(unsure) > 0 {
		require.NoError(s.t, s.confirmed.Commit(s.t.Context(), sure, unsure))
	}
}

// want computes the expected state of a node's agent.
func (s *storm) want(node string) map[string]told {
	want := map[string]told{}
	for uid, l := range s.pods {
		if l.Released == 0 && l.Node.String() == node {
			key := uid + "/" + uid
			want[key] = told{
				Operation: "put", Pod: uid, Interface: uid, MAC: l.MAC, Node: node,
				Confirmed: string(s.sure[key]) == string(ConfirmationOf(l).Encode()),
			}
		}
	}
	return want
}

// TestStorm: agents that lose their connection anywhere, and reconnect to any replica, which may
// be behind or have lost its position, end up with exactly the chosen state.
func TestStorm(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runStorm(t, seed) })
	}
}

func runStorm(t *testing.T, seed uint64) {
	b := newBed(t)
	replicas := []*replica{b.replica(), b.replica(), b.replica()}
	ctx, cancel := context.WithCancel(t.Context())
	quiet := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	agents := make([]*agent, stormNodes)
	for i := range agents {
		agents[i] = newAgent(t, nodeName(i))
		running.Go(func() { roam(ctx, agents[i], replicas, rand.New(rand.NewPCG(seed, uint64(i))), quiet) })
	}
	s := &storm{bed: b, random: rand.New(rand.NewPCG(seed, 99)), pods: map[string]*coe.Lease{}, sure: map[string][]byte{}}
	for i := range stormCommits {
		s.step()
		if i%100 == 50 {
			disturb(s.random, replicas)
		}
	}
	close(quiet)
	for _, a := range agents {
		require.Eventually(t, func() bool { return assert.ObjectsAreEqual(s.want(a.node), a.now()) }, patience.Patience, 10*time.Millisecond, a.node)
	}
	const tree = "/rests/data/coe-agent:interfaces"
	require.Eventually(t, func() bool {
		first := replicas[0].get(tree)
		return replicas[1].get(tree) == first && replicas[2].get(tree) == first
	}, patience.Patience, 10*time.Millisecond)
}

// disturb makes a replica list again, or pauses it.
func disturb(random *rand.Rand, replicas []*replica) {
	r := replicas[random.IntN(len(replicas))]
	if random.IntN(3) == 0 {
		r.stop()
		r.start()
		return
	}
	if r.turn.TryLock() {
		time.AfterFunc(time.Duration(random.IntN(200))*time.Millisecond, r.turn.Unlock)
	}
}

// roam follows different replicas for a few events each. When there are no more changes, it stays.
func roam(ctx context.Context, a *agent, replicas []*replica, random *rand.Rand, quiet <-chan struct{}) {
	for ctx.Err() == nil {
		events := 1 + random.IntN(60)
		select {
		case <-quiet:
			events = 1 << 30
		default:
		}
		visit, leave := context.WithCancel(ctx)
		if events < 1<<30 {
			go func() {
				select {
				case <-quiet: // the expected event possibly never comes
					leave()
				case <-visit.Done():
				}
			}()
		}
		err := a.follow(visit, replicas[random.IntN(len(replicas))].url, events)
		if err != nil && visit.Err() == nil {
			assert.NoError(a.t, err)
		}
		leave()
	}
}

func (r *replica) get(path string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	require.NoError(r.t, err)
	req.SetBasicAuth("agent", "secret")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode, string(body))
	return string(body)
}

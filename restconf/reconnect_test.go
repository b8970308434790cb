package restconf

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/changes"
)

// reader follows the stream of pods and knows what there is of them.
type reader struct {
	t        *testing.T
	id       string
	at       string // the replica that told it last, and the time of what it told
	time     string
	revision int
	pods     map[string]string
	groups   int
	// resumed says that the group to come may repeat the last one: its time was asked for.
	resumed bool
}

// follow takes that many groups at one replica, or less where it is cut off after so many
// lines, at whatever place that is.
func (r *reader) follow(ctx context.Context, at string, since bool, groups, lines int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := ""
	if r.resumed = since && r.time != "" && at == r.at; r.resumed {
		query = "?start-time=" + url.QueryEscape(r.time)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/rests/streams/changes=pod:coe"+query, nil)
	if !assert.NoError(r.t, err) {
		return
	}
	req.SetBasicAuth("admin", "admin")
	if r.id != "" && !r.resumed {
		req.Header.Set("Last-Event-ID", r.id)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	var group []string
	id := ""
	for scan := bufio.NewScanner(resp.Body); groups > 0 && lines > 0 && scan.Scan(); lines-- {
		name, text, _ := strings.Cut(scan.Text(), ": ")
		switch name {
		case "id":
			id = text
		case "data":
			group = append(group, text)
		case "":
			if id != "" {
				r.take(id, group)
				r.at = at
				id, group = "", nil
				groups--
			}
		}
	}
}

func (r *reader) take(id string, group []string) {
	var revision int
	_, err := fmt.Sscanf(id, "%d@", &revision)
	assert.NoError(r.t, err)
	if r.resumed {
		assert.GreaterOrEqual(r.t, revision, r.revision, "an event at the start time is skipped")
	} else {
		assert.Greater(r.t, revision, r.revision, "a revision is repeated")
	}
	r.resumed = false
	for _, text := range group {
		r.change(text)
	}
	r.id, r.revision = id, revision
	r.groups++
	r.consistent()
}

// change takes one event.
func (r *reader) change(text string) {
	var body map[string]map[string]json.RawMessage
	if !assert.NoError(r.t, json.Unmarshal([]byte(text), &body)) {
		return
	}
	e := body["ietf-restconf:notification"]
	assert.NoError(r.t, json.Unmarshal(e["eventTime"], &r.time))
	if e[changes.Begin] != nil {
		r.pods = map[string]string{}
	}
	var c struct {
		Operation, Target string
		Value             map[string]struct{ Pods []struct{ Name string } }
	}
	if e[changes.Changed] == nil || !assert.NoError(r.t, json.Unmarshal(e[changes.Changed], &c)) {
		return
	}
	delete(r.pods, c.Target)
	if pods := c.Value["pod:coe"].Pods; len(pods) > 0 {
		r.pods[c.Target] = pods[0].Name
	}
}

// consistent checks that both pods of each pair have the same name: every write sets both.
func (r *reader) consistent() {
	for target, name := range r.pods {
		pair := target[:len(target)-1] + map[byte]string{'0': "1", '1': "0"}[target[len(target)-1]]
		assert.Equal(r.t, name, r.pods[pair], "the stream has half a write: %s at %s", target, r.id)
	}
}

// Followers that are cut off again and again, between groups and within, and come back at
// one replica or the other, after an event or from a time on, see every state of the
// container whole, none twice, and at the end the last.
func TestNoRevisionIsSkippedOrRepeated(t *testing.T) {
	b := newBed(t)
	other, err := New(b.cfg)
	require.NoError(t, err)
	replicas := []string{served(t, b.Server), served(t, other)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.Equal(t, 201, b.do("PUT", coeRFC, `{"pod:coe":{}}`).status)
	write := func(pair, name string) {
		body := fmt.Sprintf(`{"pod:coe":{"pods":[{"uid":"%[1]s00","name":"%[2]s"},{"uid":"%[1]s01","name":"%[2]s"}]}}`, pair, name)
		assert.Equal(t, 204, b.do("PATCH", coeRFC, body, header("Content-Type", "application/yang-data+json")).status)
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range 60 {
				write(fmt.Sprintf("%08d-0000-4000-8000-0000%06d", w, random.IntN(5)), fmt.Sprintf("w%d-%d", w, i))
			}
		})
	}
	var last atomic.Int64
	var readers sync.WaitGroup
	all := make([]*reader, 8)
	for i := range all {
		all[i] = &reader{t: t, pods: map[string]string{}}
		readers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 8))
			for ctx.Err() == nil && (last.Load() == 0 || int64(all[i].revision) < last.Load()) {
				lines := 1000
				if random.IntN(2) == 0 {
					lines = 1 + random.IntN(20)
				}
				all[i].follow(ctx, replicas[random.IntN(2)], random.IntN(3) == 0, 1+random.IntN(4), lines)
			}
		})
	}
	writers.Wait()
	last.Store(b.store.Revision())
	ended := make(chan struct{})
	writers.Go(func() { // who waits for more groups gets one
		for {
			select {
			case <-ended:
				return
			default:
				write("99999999-0000-4000-8000-0000000000", "last")
			}
		}
	})
	readers.Wait()
	close(ended)
	writers.Wait()
	require.NoError(t, ctx.Err())
	stored := map[string]string{}
	for _, u := range b.store.Tree(b.cfg.Schema.Module("pod").Child("coe")) {
		if d, err := u.Parse(); err == nil && len(u.Key) > 0 {
			stored["/pod:coe/pods="+u.Key[0]] = d.Leaf("name")
		}
	}
	isLast := func(_, name string) bool { return name == "last" }
	maps.DeleteFunc(stored, isLast)
	for _, r := range all {
		maps.DeleteFunc(r.pods, isLast)
		require.Equal(t, stored, r.pods)
		require.Greater(t, r.groups, 1)
	}
}

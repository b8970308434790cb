package agentstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// bed is a datastore with a leader that has listed every source, and replicas that serve its
// streams.
type bed struct {
	t                 testing.TB
	schema            *yang.Schema
	data              *datastore.Datastore
	chosen, confirmed *datastore.Records
}

func newBed(t testing.TB) *bed {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	data, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, data.Close()) })
	leader, err := data.Campaign(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leader.Resign(context.Background())) })
	prefix, name, _ := strings.Cut(CompleteRecord, "/")
	require.NoError(t, leader.Records(prefix).Commit(t.Context(), map[string][]byte{name: []byte(data.Identity())}, nil))
	return &bed{t, schema, data, leader.Records("chosen"), leader.Records("confirmed")}
}

// replica is a replica that serves streams, and may be behind.
type replica struct {
	*bed
	hub *Hub
	url string
	// turn is held while a batch is applied; a test that holds it pauses the replica.
	turn sync.Mutex
	stop func()
}

func (b *bed) replica() *replica {
	r := &replica{bed: b, hub: New(Config{Identity: b.data.Identity(), Log: slog.New(slog.DiscardHandler)})}
	r.start()
	b.t.Cleanup(func() { r.stop() })
	server, err := restconf.New(restconf.Config{
		Config: tree.Config{
			Schema: b.schema, Datastore: b.data,
			ReadOnly: map[string]tree.ReadOnly{"coe-agent:interfaces": {Source: hubTree{r.hub}, Says: "the bridge writes it for the agents"}},
		},
		Auth:    restconf.FixedUsers{"agent": "secret"},
		Streams: map[string]stream.Kind{"node-interfaces": {Source: r.hub, Description: "The pods' interfaces on a node."}},
	})
	require.NoError(b.t, err)
	web := httptest.NewServer(server)
	b.t.Cleanup(web.Close)
	r.url = web.URL
	return r
}

// hubTree serves the records of a Hub.
type hubTree struct{ hub *Hub }

func (s hubTree) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	raw, err := s.hub.Tree()
	if err != nil || raw == nil {
		return nil, err
	}
	return yang.DecodeObject(raw, asked.Top)
}

// start follows the records. A second call lists them again, as after a compaction.
func (r *replica) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := r.data.FollowRecords(ctx, "", func(b datastore.RecordBatch) error {
			r.turn.Lock()
			defer r.turn.Unlock()
			r.hub.Apply(Batch(b))
			return nil
		})
		assert.ErrorIs(r.t, err, context.Canceled)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
}

// told is the content of an event for an agent.
type told struct {
	Operation string `json:"operation"`
	Pod       string `json:"pod-uid"`
	Interface string `json:"interface-uid"`
	MAC       string `json:"mac-address"`
	Node      string `json:"node"`
	Confirmed bool   `json:"confirmed"`
}

func (o told) key() string { return o.Pod + "/" + o.Interface }

// agent follows the stream of its node in complete groups.
type agent struct {
	t    testing.TB
	node string
	hear func(told) // if not nil, with every record, as it comes

	mu    sync.Mutex
	id    string
	state map[string]told
}

func newAgent(t testing.TB, node string) *agent {
	return &agent{t: t, node: node, state: map[string]told{}}
}

// follow follows one replica until the connection ends, or for a number of events.
func (a *agent) follow(ctx context.Context, url string, events int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/rests/streams/node-interfaces="+a.node, nil)
	if err != nil {
		return err
	}
	r.SetBasicAuth("agent", "secret")
	r.Header.Set("Accept", "text/event-stream")
	if a.id != "" {
		r.Header.Set("Last-Event-ID", a.id)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return a.read(bufio.NewScanner(resp.Body), events)
}

func (a *agent) read(scan *bufio.Scanner, events int) error {
	var group []map[string]json.RawMessage
	id := ""
	for events > 0 && scan.Scan() {
		name, value, _ := strings.Cut(scan.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			var body map[string]map[string]json.RawMessage
			if err := json.Unmarshal([]byte(value), &body); err != nil {
				return err
			}
			group = append(group, body["ietf-restconf:notification"])
			events--
			if id != "" {
				a.take(id, group)
				id, group = "", nil
			}
		}
	}
	return scan.Err()
}

func (a *agent) take(id string, group []map[string]json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range group {
		if e[beginEvent] != nil {
			a.state = map[string]told{}
		}
		var c told
		if e[changedEvent] == nil || !assert.NoError(a.t, json.Unmarshal(e[changedEvent], &c)) {
			continue
		}
		delete(a.state, c.key())
		if c.Operation == "put" {
			assert.Equal(a.t, a.node, c.Node)
			a.state[c.key()] = c
		}
		if a.hear != nil {
			a.hear(c)
		}
	}
	assert.GreaterOrEqual(a.t, revision(id), revision(a.id), "the revision must not decrease")
	a.id = id
}

func revision(id string) int {
	text, _, _ := strings.Cut(id, "@")
	n, _ := strconv.Atoi(text)
	return n
}

func (a *agent) now() map[string]told {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.state)
}

// at is the ID of the last group.
func (a *agent) at() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

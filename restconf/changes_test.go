package restconf

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// served serves s until the test ends, and returns its URL.
func served(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return "http://" + l.Addr().String()
}

// Events of coe-changes, as follower.event writes them.
const (
	snapshotBegin = " coe-changes:snapshot-begin{}"
	snapshotEnd   = " coe-changes:snapshot-complete{}"
)

func putEvent(target, value string) string {
	return ` coe-changes:entry-changed{"operation":"put","target":"` + target + `","value":{` + value + `}}`
}

func deleteEvent(target string) string {
	return ` coe-changes:entry-changed{"operation":"deleted","target":"` + target + `"}`
}

// id takes the ID from an event, and the revision that b is at has to be in it.
func (b *bed) id(event string) (id, rest string) {
	b.t.Helper()
	history, err := b.store.History(b.t.Context())
	require.NoError(b.t, err)
	id = fmt.Sprintf("%d@%s.%s", b.store.Revision(), b.store.Identity(), history)
	rest, found := strings.CutPrefix(event, "id: "+id)
	require.True(b.t, found, "%s of %s", event, id)
	return id, rest
}

func TestChangesOfAContainer(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	followed := at + "/rests/streams/changes=pod:coe"
	f := followIt(t, http.DefaultClient, followed)
	require.Equal(t, snapshotBegin, f.event())
	of1 := `"pod:coe":` + pod(uid1)
	ofAll := putEvent("/pod:coe", `"pod:coe":{}`)
	require.Equal(t, ofAll, f.event())
	require.Equal(t, putEvent("/pod:coe/pods="+uid1, of1), f.event())
	id, end := b.id(f.event())
	require.Equal(t, snapshotEnd, end)

	// Nothing of other containers, and of a write all that it changed.
	require.Equal(t, 204, b.do("POST", services, `{"services":[{"uid":"`+uid1+`"}]}`).status)
	require.Equal(t, 200, b.do("PUT", coe, `{"coe":{"pods":[{"uid":"`+uid2+`"}]}}`).status)
	second := []string{f.event(), f.event(), f.event()}
	require.Equal(t, []string{ofAll, deleteEvent("/pod:coe/pods=" + uid1)}, second[:2])
	id2, put := b.id(second[2])
	require.Equal(t, putEvent("/pod:coe/pods="+uid2, `"pod:coe":{"pods":[{"uid":"`+uid2+`"}]}`), put)

	// Back again, after either group.
	f = followIt(t, http.DefaultClient, followed, header("Last-Event-ID", id))
	require.Equal(t, second, []string{f.event(), f.event(), f.event()})
	f = followIt(t, http.DefaultClient, at+"/restconf/streams/stream/changes=pod:coe/events", header("Last-Event-ID", id2))
	require.Equal(t, 200, b.do("DELETE", coe, "").status)
	last := []string{f.event(), f.event()}
	_, last[1] = b.id(last[1])
	require.Equal(t, []string{deleteEvent("/pod:coe"), deleteEvent("/pod:coe/pods=" + uid2)}, last)
}

func TestChangesInXML(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	f := followIt(t, http.DefaultClient, at+"/rests/streams/xml/changes=service:endpoints-info")
	next := func() string {
		for {
			if block := f.next(); block != ":" {
				_, data, _ := strings.Cut(block, "data: ")
				head, rest, _ := strings.Cut(data, "<eventTime>")
				when, rest, _ := strings.Cut(rest, "</eventTime>")
				_, err := time.Parse(time.RFC3339Nano, when)
				require.NoError(t, err, block)
				return head + rest
			}
		}
	}
	const head = `<notification xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0">`
	require.Equal(t, head+`<snapshot-begin xmlns="urn:coe-bridge:changes"/></notification>`, next())
	require.Equal(t, head+`<snapshot-complete xmlns="urn:coe-bridge:changes"/></notification>`, next())
	require.Equal(t, 201, b.do("PUT", "/rests/data/service:endpoints-info/endpoints="+uid1,
		`{"service:endpoints":[{"uid":"`+uid1+`","name":"a<\n"}]}`).status)
	got := []string{next(), next()}
	require.Contains(t, got, head+`<entry-changed xmlns="urn:coe-bridge:changes"><operation>put</operation>`+
		`<target>/service:endpoints-info/endpoints=`+uid1+`</target><value><endpoints-info xmlns="urn:opendaylight:coe:northbound:service">`+
		`<endpoints><uid>`+uid1+`</uid><name>a&lt;&#xA;</name></endpoints></endpoints-info></value></entry-changed></notification>`)
}

func TestStreamQuery(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Streams = map[string]stream.Kind{"things": {Source: newLogs()}} })
	day := func(d time.Duration) string { return url.QueryEscape(time.Now().Add(d).Format(time.RFC3339)) }
	const hour = time.Hour
	for _, c := range []struct{ stream, query, says string }{
		{"changes=pod:coe", "start-time=" + day(hour), "future"},
		{"changes=pod:coe", "start-time=today", "date and time"},
		{"changes=pod:coe", "stop-time=" + day(hour), "needs a start-time"},
		{"changes=pod:coe", "start-time=" + day(-hour) + "&stop-time=" + day(-2*hour), "not after"},
		{"changes=pod:coe", "start-time=" + day(-hour) + "&start-time=" + day(-hour), "more than once"},
		{"changes=pod:coe", "filter=%5B", "filter"},
		{"changes=pod:coe", "depth=1", "no query parameter depth"},
		{"things", "start-time=" + day(-hour), "no replay"},
	} {
		got := b.do("GET", "/rests/streams/"+c.stream+"?"+c.query, "")
		require.Equal(t, 400, got.status, c.query)
		require.Equal(t, "invalid-value", got.tag(), c.query)
		require.Contains(t, got.firstError()["error-message"], c.says, c.query)
	}
	require.Equal(t, 404, b.do("GET", "/rests/streams/things=none?start-time="+day(-hour), "").status)
}

// The events between two times are sent, and then the stream ends.
func TestReplay(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	followed := at + "/rests/streams/changes=pod:coe"
	f := followIt(t, http.DefaultClient, followed)
	require.Equal(t, snapshotBegin, f.event())
	f.event()
	between := make([]string, 0, 4)
	for _, uid := range []string{uid1, uid2, uid3} {
		between = append(between, url.QueryEscape(time.Now().Format(time.RFC3339Nano)))
		require.Equal(t, 201, b.do("PUT", podsRFC+uid, `{"pod:pods":[{"uid":"`+uid+`"}]}`).status)
		for told := ""; !strings.Contains(told, uid); told = f.event() {
			require.NotEqual(t, "end", told)
		}
	}
	between = append(between, url.QueryEscape(time.Now().Format(time.RFC3339Nano)))
	told := func(query string) (uids []string, snapshot bool) {
		f := followIt(t, http.DefaultClient, followed+query)
		require.Equal(t, 200, f.resp.StatusCode)
		for event := f.event(); event != ""; event = f.event() {
			snapshot = snapshot || strings.Contains(event, "snapshot-begin")
			for _, uid := range []string{uid1, uid2, uid3} {
				if strings.Contains(event, "pods="+uid) {
					uids = append(uids, uid)
				}
			}
		}
		return uids, snapshot
	}
	uids, snapshot := told("?start-time=" + between[1] + "&stop-time=" + between[2])
	require.Equal(t, []string{uid2}, uids)
	require.False(t, snapshot)
	uids, snapshot = told("?start-time=" + between[1] + "&stop-time=" + between[3])
	require.Equal(t, []string{uid2, uid3}, uids)
	require.False(t, snapshot)
	uids, snapshot = told("?start-time=2020-01-01T00:00:00Z&stop-time=" + between[1])
	require.Equal(t, []string{uid1}, uids)
	require.True(t, snapshot, "the log does not reach back so far")

	f = followIt(t, http.DefaultClient, followed+"?start-time="+between[2])
	require.Contains(t, f.event(), uid3)
	require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status)
	require.Contains(t, f.event(), deleteEvent("/pod:coe/pods="+uid1))
	soon := url.QueryEscape(time.Now().Add(300 * time.Millisecond).Format(time.RFC3339Nano))
	uids, _ = told("?start-time=" + between[3] + "&stop-time=" + soon)
	require.Equal(t, []string{uid1}, uids, "it ends by itself")
	require.Contains(t, b.do("GET", "/rests/data/"+discovery.MonitoringTop+"/streams/stream=changes%3Dpod:coe/replay-log-creation-time", "").body, "Z")
}

func TestFilteredStream(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	f := followIt(t, http.DefaultClient, at+"/rests/streams/changes=pod:coe?filter="+
		url.QueryEscape(`/coe-changes:entry-changed[operation='deleted' or value/pod:coe/pods/name='wanted']`))
	require.Equal(t, snapshotBegin, f.event())
	f.event()
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, `{"pod:pods":[{"uid":"`+uid1+`","name":"other"}]}`).status)
	id, _ := b.id(f.next())
	require.NotEmpty(t, id, "the stream sends its position although the filter removed the event")
	require.Equal(t, 201, b.do("PUT", podsRFC+uid2, `{"pod:pods":[{"uid":"`+uid2+`","name":"wanted"}]}`).status)
	require.Contains(t, f.event(), uid2)
	require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status)
	require.Contains(t, f.event(), deleteEvent("/pod:coe/pods="+uid1))
}

// changing is a Source that a test changes.
type changing struct {
	mu   sync.Mutex
	text string
}

func (c *changing) set(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = text
}

func (c *changing) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.text == "" {
		return nil, nil
	}
	return yang.DecodeObject([]byte(c.text), asked.Top)
}

func TestFollowedTree(t *testing.T) {
	source := &changing{}
	source.set(`{"in-sync":false,"scope":[{"name":"a","in-sync":true},{"name":"b"}]}`)
	b := newBed(t, func(c *Config) {
		c.ReadOnly["coe-status:status"] = tree.ReadOnly{Source: source, Says: "it is state", Followed: true}
	})
	at := served(t, b.Server)
	followed := at + "/rests/streams/changes=coe-status:status"
	f := followIt(t, http.DefaultClient, followed)
	require.Equal(t, snapshotBegin, f.event())
	status := `"coe-status:status":`
	require.Equal(t, putEvent("/coe-status:status", status+`{"in-sync":false}`), f.event())
	require.Equal(t, putEvent("/coe-status:status/scope=a", status+`{"scope":[{"name":"a","in-sync":true}]}`), f.event())
	require.Equal(t, putEvent("/coe-status:status/scope=b", status+`{"scope":[{"name":"b"}]}`), f.event())
	first := f.event()
	require.Contains(t, first, snapshotEnd)
	source.set(`{"in-sync":true,"scope":[{"name":"a","in-sync":true}],"problem":[{"reason":"x"}]}`)
	require.Equal(t, putEvent("/coe-status:status", status+`{"in-sync":true,"problem":[{"reason":"x"}]}`), f.event())
	require.Contains(t, f.event(), deleteEvent("/coe-status:status/scope=b"))

	second := followIt(t, http.DefaultClient, followed, header("Last-Event-ID", strings.TrimSuffix(strings.TrimPrefix(first, "id: "), snapshotEnd)))
	require.Contains(t, second.event(), `"reason":"x"`)
	require.Contains(t, second.event(), deleteEvent("/coe-status:status/scope=b"))
	for _, one := range []*follower{f, second} {
		require.NoError(t, one.resp.Body.Close())
	}
	require.Eventually(t, func() bool { return b.shares.followed() == 0 }, patience.Patience, 10*time.Millisecond)
	source.set("")
	f = followIt(t, http.DefaultClient, followed, header("Last-Event-ID", "1@x"))
	require.Equal(t, snapshotBegin, f.event())
	require.Contains(t, f.event(), snapshotEnd)
	require.Equal(t, 400, b.do("GET", "/rests/streams/changes=coe-status:status?start-time=2020-01-01T00:00:00Z", "").status)
	require.Equal(t, 404, b.do("GET", "/rests/streams/changes=ietf-interfaces:interfaces", "").status)
}

// TestEventWithoutSchema: an event that the schema does not define cannot be encoded in XML.
// The stream ends, and the log says why.
func TestEventWithoutSchema(t *testing.T) {
	var log bytes.Buffer
	source := newLogs()
	source.Reset(1, nil)
	b := newBed(t, func(c *Config) {
		c.Streams = map[string]stream.Kind{"things": {Source: source}}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	at := served(t, b.Server)
	require.Empty(t, followIt(t, http.DefaultClient, at+"/rests/streams/xml/things").event())
	require.Equal(t, snapshotBegin, followIt(t, http.DefaultClient, at+"/rests/streams/changes=pod:coe").event())
	require.Contains(t, log.String(), "no such notification")
}

func TestServeEndsWithTheDatastore(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Dir: t.TempDir()})
	require.NoError(t, err)
	s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), l) }()
	require.Equal(t, snapshotBegin, followIt(t, http.DefaultClient, "http://"+l.Addr().String()+"/rests/streams/changes=pod:coe").event())
	require.NoError(t, store.Close())
	require.ErrorIs(t, <-done, datastore.ErrClosed)
}

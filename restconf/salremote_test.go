package restconf

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/changes"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	subscribePath = "/restconf/operations/sal-remote:create-data-change-event-subscription"
	salRemote     = "urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote"
)

// subscribeTo names the stream of a path.
func (b *bed) subscribeTo(path, scope, output string) string {
	b.t.Helper()
	got := b.do("POST", subscribePath, `{"input":{"path":"`+path+`","sal-remote-augment:datastore":"CONFIGURATION",
		"sal-remote-augment:scope":"`+scope+`","sal-remote-augment:notification-output-type":"`+output+`"}}`, header("Accept", "application/json"))
	require.Equal(b.t, 200, got.status, got.body)
	var body struct {
		Output struct {
			Name string `json:"stream-name"`
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(got.body), &body))
	return body.Output.Name
}

const podPath = "/pod:coe/pod:pods[pod:uid='" + uid1 + "']"

func TestSubscribe(t *testing.T) {
	b := newBed(t)
	require.Equal(t, "data-change-event-subscription/pod:coe/datastore=CONFIGURATION/scope=SUBTREE", b.subscribeTo("/pod:coe", "SUBTREE", "XML"))
	require.Equal(t, "data-change-event-subscription/pod:coe/pods/"+uid1+"/datastore=CONFIGURATION/scope=ONE/JSON", b.subscribeTo(podPath, "ONE", "JSON"))

	asXML := []option{header("Content-Type", "application/xml"), header("Accept", "application/xml")}
	got := b.do("POST", subscribePath, `<input xmlns="`+salRemote+`">
		<path xmlns:a="urn:opendaylight:coe:northbound:pod">/a:coe/a:pods[a:uid="`+strings.ToUpper(uid1)+`"]/a:name</path></input>`, asXML...)
	require.Equal(t, `<output xmlns="`+salRemote+`"><stream-name>data-change-event-subscription/pod:coe/pods/`+uid1+
		`/name/datastore=CONFIGURATION/scope=BASE</stream-name></output>`, got.body)
	require.Equal(t, 200, got.status)
	require.JSONEq(t, `{"operations":{"sal-remote:create-data-change-event-subscription":[null]}}`, b.do("GET", "/restconf/operations", "").body)

	for name, c := range map[string]struct {
		body    string
		status  int
		tag     string
		options []option
	}{
		"no path":         {`{"input":{}}`, 400, "invalid-value", nil},
		"no list's key":   {`{"input":{"path":"/pod:coe/pods"}}`, 400, "invalid-value", nil},
		"unknown key":     {`{"input":{"path":"/pod:coe/pods[name='x']"}}`, 400, "invalid-value", nil},
		"bad key":         {`{"input":{"path":"/pod:coe/pods[uid='x']"}}`, 400, "invalid-value", nil},
		"unclosed":        {`{"input":{"path":"/pod:coe/pods[uid='x"}}`, 400, "invalid-value", nil},
		"unknown module":  {`{"input":{"path":"/nope:coe"}}`, 400, "unknown-element", nil},
		"no slash":        {`{"input":{"path":"pod:coe"}}`, 400, "invalid-value", nil},
		"unknown node":    {`{"input":{"path":"/pod:nope"}}`, 400, "invalid-value", nil},
		"unknown scope":   {`{"input":{"path":"/pod:coe","scope":"ALL"}}`, 400, "invalid-value", nil},
		"unknown store":   {`{"input":{"path":"/pod:coe","datastore":"candidate"}}`, 400, "invalid-value", nil},
		"unknown output":  {`{"input":{"path":"/pod:coe","notification-output-type":"CBOR"}}`, 400, "invalid-value", nil},
		"unknown leaf":    {`{"input":{"path":"/pod:coe","x":"y"}}`, 400, "malformed-message", nil},
		"number":          {`{"input":{"path":7}}`, 400, "malformed-message", nil},
		"no JSON":         {`{`, 400, "malformed-message", nil},
		"other outer":     {`{"output":{}}`, 400, "malformed-message", nil},
		"too big":         {`{"input":{"path":"` + strings.Repeat("/", maxInput) + `"}}`, 413, "too-big", nil},
		"no media":        {`x`, 415, "invalid-value", []option{header("Content-Type", "text/plain")}},
		"XML entity":      {`<!DOCTYPE input [<!ENTITY a "b">]><input><path>&a;</path></input>`, 400, "malformed-message", asXML[:1]},
		"XML too deep":    {`<input><path><x/></path></input>`, 400, "malformed-message", asXML[:1]},
		"XML not closed":  {`<input><path>`, 400, "malformed-message", asXML[:1]},
		"XML other outer": {`<output/>`, 400, "malformed-message", asXML[:1]},
	} {
		got := b.do("POST", subscribePath, c.body, c.options...)
		require.Equal(t, c.status, got.status, name)
		if c.options == nil {
			require.Equal(t, c.tag, got.tag(), name)
		}
	}
	require.Equal(t, 405, b.do("GET", subscribePath, "").status)
	require.Equal(t, "OPTIONS, POST", b.do("OPTIONS", subscribePath, "").header.Get("Allow"))
	require.Equal(t, 406, b.do("POST", subscribePath, `{"input":{"path":"/pod:coe"}}`, header("Accept", "image/png")).status)
}

func TestWhereAStreamsEventsAre(t *testing.T) {
	b := newBed(t)
	at := "/restconf/streams/stream/" + b.subscribeTo("/pod:coe", "SUBTREE", "XML")
	got := b.do("GET", at+"?odl-leaf-nodes-only=true", "", header("Accept", "application/json"))
	require.Equal(t, 200, got.status)
	location, err := url.Parse(got.header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, "ws://127.0.0.1:8181"+at, location.Scheme+"://"+location.Host+location.Path)
	require.Equal(t, "true", location.Query().Get("odl-leaf-nodes-only"))
	var body struct{ Location string }
	require.NoError(t, json.Unmarshal([]byte(got.body), &body))
	require.Equal(t, location.String(), body.Location)
	got = b.do("GET", at, "", header("Accept", "application/xml"))
	require.Contains(t, got.body, `<location xmlns="subscribe:to:notification">ws://127.0.0.1:8181`)

	secure := httptest.NewTLSServer(b)
	t.Cleanup(secure.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, secure.URL+at, nil)
	require.NoError(t, err)
	r.SetBasicAuth("admin", "admin")
	resp, err := secure.Client().Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "wss"+strings.TrimPrefix(secure.URL, "https")+at, resp.Header.Get("Location"), "no ticket is wasted on HEAD")

	for path, status := range map[string]int{
		at + "?depth=1":                                                                                                 400,
		at + "?start-time=2999-01-01T00:00:00Z":                                                                         400,
		at + "?odl-leaf-nodes-only=a&odl-leaf-nodes-only":                                                               400,
		"/restconf/streams/stream/data-change-event-subscription/pod:coe":                                               404,
		"/restconf/streams/stream/data-change-event-subscription/pod:coe/datastore=X/scope=BASE":                        404,
		"/restconf/streams/stream/data-change-event-subscription/datastore=OPERATIONAL/scope=BASE":                      404,
		"/restconf/streams/stream/data-change-event-subscription/pod:coe/datastore=OPERATIONAL/scope=BASE":              404,
		"/restconf/streams/stream/data-change-event-subscription/elan:elan-instances/datastore=CONFIGURATION/scope=ONE": 404,
		"/restconf/streams/stream/data-change-event-subscription/pod:nope/datastore=CONFIGURATION/scope=ONE":            400,
	} {
		require.Equal(t, status, b.do("GET", path, "").status, path)
	}
	require.Equal(t, 405, b.do("POST", at, "{}").status)
}

// told is one event as a client reads it.
type told struct {
	Path      string          `json:"path"`
	Operation string          `json:"operation"`
	Data      json.RawMessage `json:"data"`
}

// dataClient reads messages in JSON.
type dataClient struct {
	t    *testing.T
	conn *websocket.Conn
}

// dial opens the websocket at the location in a stream's answer, without changing it.
func (b *bed) dial(at, stream string) *dataClient {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, at+"/restconf/streams/stream/"+stream, nil)
	require.NoError(b.t, err)
	r.SetBasicAuth("admin", "admin")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	require.Equal(b.t, 200, resp.StatusCode)
	conn, _, err := websocket.Dial(b.t.Context(), resp.Header.Get("Location"), nil) //nolint:bodyclose // the library takes it
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(4 << 20)
	return &dataClient{b.t.(*testing.T), conn}
}

func (c *dataClient) message() []byte {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience.Patience)
	defer cancel()
	kind, message, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	require.Equal(c.t, websocket.MessageText, kind)
	return message
}

// next is the next message, each event on a line.
func (c *dataClient) next() string {
	c.t.Helper()
	return readJSONMessage(c.t, c.message())
}

func readJSONMessage(t *testing.T, message []byte) string {
	t.Helper()
	var body struct {
		Notification struct {
			Space string    `json:"xmlns"`
			Time  time.Time `json:"eventTime"`
			Data  struct {
				Space  string `json:"xmlns"`
				Events []told `json:"data-change-event"`
			} `json:"data-changed-notification"`
		}
	}
	require.NoError(t, json.Unmarshal(message, &body), string(message))
	require.Equal(t, stream.NotificationSpace, body.Notification.Space)
	require.Equal(t, salRemote, body.Notification.Data.Space)
	require.WithinDuration(t, time.Now(), body.Notification.Time, time.Minute)
	var lines []string
	for _, e := range body.Notification.Data.Events {
		lines = append(lines, strings.TrimSpace(e.Operation+" "+e.Path+" "+string(e.Data)))
	}
	return strings.Join(lines, "\n")
}

// The events of each scope for the same changes.
func TestScopes(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid2, `{"pod:pods":[{"uid":"`+uid2+`"}]}`).status)
	clients := map[string]*dataClient{}
	for name, path := range map[string]string{
		"container BASE": "/pod:coe", "container ONE": "/pod:coe", "container SUBTREE": "/pod:coe",
		"pod BASE": podPath, "pod ONE": podPath, "pod SUBTREE": podPath, "leaf BASE": podPath + "/pod:name",
	} {
		_, scope, _ := strings.Cut(name, " ")
		clients[name] = b.dial(at, b.subscribeTo(path, scope, "JSON"))
	}
	const (
		ifPath = podPath + "/pod:interface[pod:uid='" + uid2 + "']"
		first  = `{"pods":[{"uid":"` + uid1 + `","name":"a"}]}`
		second = `{"pods":[{"uid":"` + uid1 + `","name":"b","interface":[{"uid":"` + uid2 + `"}]}]}`
	)
	steps := []struct {
		method, path, body string
		want               map[string]string // nothing: no event
	}{
		{"PUT", podsRFC + uid1, `{"pod:pods":[{"uid":"` + uid1 + `","name":"a"}]}`, map[string]string{
			"container ONE":     "created " + podPath + " " + first,
			"container SUBTREE": "created " + podPath + " " + first + "\ncreated " + podPath + `/pod:uid {"uid":"` + uid1 + `"}` + "\ncreated " + podPath + `/pod:name {"name":"a"}`,
			"pod BASE":          "created " + podPath + " " + first,
			"pod ONE":           "created " + podPath + " " + first + "\ncreated " + podPath + `/pod:uid {"uid":"` + uid1 + `"}` + "\ncreated " + podPath + `/pod:name {"name":"a"}`,
			"pod SUBTREE":       "created " + podPath + " " + first + "\ncreated " + podPath + `/pod:uid {"uid":"` + uid1 + `"}` + "\ncreated " + podPath + `/pod:name {"name":"a"}`,
			"leaf BASE":         "created " + podPath + `/pod:name {"name":"a"}`,
		}},
		{"PUT", podsRFC + uid1, `{"pod:pods":[{"uid":"` + uid1 + `","name":"b","interface":[{"uid":"` + uid2 + `"}]}]}`, map[string]string{
			"container ONE": "updated " + podPath + " " + second,
			"container SUBTREE": "updated " + podPath + " " + second + "\nupdated " + podPath + `/pod:name {"name":"b"}` +
				"\ncreated " + ifPath + ` {"interface":[{"uid":"` + uid2 + `"}]}` + "\ncreated " + ifPath + `/pod:uid {"uid":"` + uid2 + `"}`,
			"pod BASE": "updated " + podPath + " " + second,
			"pod ONE": "updated " + podPath + " " + second + "\nupdated " + podPath + `/pod:name {"name":"b"}` +
				"\ncreated " + ifPath + ` {"interface":[{"uid":"` + uid2 + `"}]}`,
			"pod SUBTREE": "updated " + podPath + " " + second + "\nupdated " + podPath + `/pod:name {"name":"b"}` +
				"\ncreated " + ifPath + ` {"interface":[{"uid":"` + uid2 + `"}]}` + "\ncreated " + ifPath + `/pod:uid {"uid":"` + uid2 + `"}`,
			"leaf BASE": "updated " + podPath + `/pod:name {"name":"b"}`,
		}},
		{"DELETE", podsRFC + uid1 + "/interface=" + uid2, "", map[string]string{
			"container SUBTREE": "updated " + podPath + ` {"pods":[{"uid":"` + uid1 + `","name":"b"}]}` + "\ndeleted " + ifPath + "\ndeleted " + ifPath + "/pod:uid",
			"pod ONE":           "deleted " + ifPath,
			"pod SUBTREE":       "updated " + podPath + ` {"pods":[{"uid":"` + uid1 + `","name":"b"}]}` + "\ndeleted " + ifPath + "\ndeleted " + ifPath + "/pod:uid",
		}},
		{"DELETE", podsRFC + uid1, "", map[string]string{
			"container ONE":     "deleted " + podPath,
			"container SUBTREE": "deleted " + podPath + "\ndeleted " + podPath + "/pod:uid\ndeleted " + podPath + "/pod:name",
			"pod BASE":          "deleted " + podPath,
			"pod ONE":           "deleted " + podPath + "\ndeleted " + podPath + "/pod:uid\ndeleted " + podPath + "/pod:name",
			"pod SUBTREE":       "deleted " + podPath + "\ndeleted " + podPath + "/pod:uid\ndeleted " + podPath + "/pod:name",
			"leaf BASE":         "deleted " + podPath + "/pod:name",
		}},
		{"DELETE", "/rests/data/pod:coe", "", map[string]string{
			"container BASE":    "deleted /pod:coe",
			"container ONE":     "deleted /pod:coe\ndeleted /pod:coe/pod:pods[pod:uid='" + uid2 + "']",
			"container SUBTREE": "deleted /pod:coe\ndeleted /pod:coe/pod:pods[pod:uid='" + uid2 + "']\ndeleted /pod:coe/pod:pods[pod:uid='" + uid2 + "']/pod:uid",
		}},
	}
	for _, step := range steps {
		require.Less(t, b.do(step.method, step.path, step.body).status, 300)
		for name, want := range step.want {
			require.Equal(t, want, clients[name].next(), "%s: %s %s", name, step.method, step.path)
		}
	}
	leaves := b.dial(at, b.subscribeTo("/pod:coe", "SUBTREE", "JSON")+"?odl-leaf-nodes-only=true")
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, `{"pod:pods":[{"uid":"`+uid1+`"}]}`).status)
	require.Equal(t, "created "+podPath+`/pod:uid {"uid":"`+uid1+`"}`, leaves.next())
}

func TestDataChangesInXML(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	client := b.dial(at, b.subscribeTo("/pod:coe", "ONE", "XML"))
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, `{"pod:pods":[{"uid":"`+uid1+`","name":"a<\n"}]}`).status)
	message := client.message()
	require.NoError(t, xml.Unmarshal(message, new(struct {
		XMLName xml.Name `xml:"urn:ietf:params:xml:ns:netconf:notification:1.0 notification"`
	})))
	_, rest, found := bytes.Cut(message, []byte("</eventTime>"))
	require.True(t, found, string(message))
	require.Equal(t, `<data-changed-notification xmlns="`+salRemote+`"><data-change-event>`+
		`<path xmlns:pod="urn:opendaylight:coe:northbound:pod">/pod:coe</path><operation>created</operation><data><coe xmlns="urn:opendaylight:coe:northbound:pod"/></data></data-change-event>`+
		`<data-change-event><path xmlns:pod="urn:opendaylight:coe:northbound:pod">/pod:coe/pod:pods[pod:uid=&#39;`+uid1+`&#39;]</path>`+
		`<operation>created</operation><data><pods xmlns="urn:opendaylight:coe:northbound:pod"><uid>`+uid1+`</uid><name>a&lt;&#xA;</name></pods></data>`+
		`</data-change-event></data-changed-notification></notification>`, string(rest))
}

func TestDataChangesAsServerSentEvents(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	f := followIt(t, http.DefaultClient, at+"/restconf/streams/stream/"+b.subscribeTo("/service:endpoints-info", "ONE", "JSON"))
	require.Equal(t, "text/event-stream", f.resp.Header.Get("Content-Type"))
	require.Equal(t, ":", f.next())
	require.Equal(t, 201, b.do("PUT", "/rests/data/service:endpoints-info/endpoints="+uid1, `{"service:endpoints":[{"uid":"`+uid1+`"}]}`).status)
	data, found := strings.CutPrefix(f.next(), "data: ")
	require.True(t, found)
	require.Equal(t, "created /service:endpoints-info {\"endpoints-info\":{}}\ncreated /service:endpoints-info/service:endpoints[service:uid='"+uid1+
		`'] {"endpoints":[{"uid":"`+uid1+`"}]}`, readJSONMessage(t, []byte(data)))
}

// A tree that is looked at is followed in the same way.
func TestDataChangesOfState(t *testing.T) {
	source := &changing{}
	source.set(`{"in-sync":false,"scope":[{"name":"a","in-sync":true}]}`)
	b := newBed(t, func(c *Config) {
		c.ReadOnly["coe-status:status"] = tree.ReadOnly{Source: source, Says: "it is state", Followed: true}
	})
	client := b.dial(served(t, b.Server), "data-change-event-subscription/coe-status:status/datastore=OPERATIONAL/scope=ONE/JSON")
	source.set(`{"in-sync":true,"scope":[{"name":"a","in-sync":true}]}`)
	require.Equal(t, `updated /coe-status:status {"status":{"in-sync":true}}`+"\n"+`updated /coe-status:status/coe-status:in-sync {"in-sync":true}`, client.next())
}

// Many events are divided, and none is lost.
func TestManyDataChanges(t *testing.T) {
	b := newBed(t)
	client := b.dial(served(t, b.Server), b.subscribeTo("/pod:coe", "ONE", "JSON"))
	const n = 3000
	entries := make([]string, n)
	for i := range entries {
		entries[i] = `{"uid":"` + uid1[:len(uid1)-4] + hex4(i) + `","name":"` + strings.Repeat("x", 100) + `"}`
	}
	require.Equal(t, 204, b.do("POST", coe, `{"pods":[`+strings.Join(entries, ",")+`]}`).status)
	seen := map[string]bool{}
	messages := 0
	for ; len(seen) < n+1; messages++ {
		message := client.message()
		require.Less(t, len(message), 260<<10)
		for line := range strings.SplitSeq(readJSONMessage(t, message), "\n") {
			path, _, _ := strings.Cut(line, " {")
			require.False(t, seen[path], path)
			seen[path] = true
		}
	}
	require.Greater(t, messages, 2)
}

func hex4(n int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15]})
}

// The callers that may open a stream's websocket.
func TestTickets(t *testing.T) {
	b := newBed(t)
	at := served(t, b.Server)
	stream := "/restconf/streams/stream/" + b.subscribeTo("/pod:coe", "ONE", "XML")
	open := func(url string, h http.Header) int {
		conn, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: h}) //nolint:bodyclose // the library takes it
		if err == nil {
			require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
			return 101
		}
		require.NotNil(t, resp, err)
		return resp.StatusCode
	}
	location := func(stream string) string {
		return strings.Replace(b.do("GET", stream, "").header.Get("Location"), "http", "ws", 1)
	}
	moved := func(location string) string {
		return strings.Replace(location, "ws://127.0.0.1:8181", "ws"+strings.TrimPrefix(at, "http"), 1)
	}
	plain := "ws" + strings.TrimPrefix(at, "http") + stream
	ticket := moved(location(stream))
	require.Equal(t, 401, open(plain, nil))
	require.Equal(t, 101, open(ticket, nil))
	require.Equal(t, 401, open(ticket, nil), "once")
	require.Equal(t, 401, open(plain+"?ticket=guess", nil))
	other := moved(location("/restconf/streams/stream/" + b.subscribeTo("/pod:coe", "BASE", "XML")))
	require.Equal(t, 401, open(strings.Replace(other, "scope=BASE", "scope=ONE", 1), nil), "another stream")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+strings.TrimPrefix(moved(location(stream)), "ws"), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 401, resp.StatusCode, "for websockets alone")
	own := http.Header{"Authorization": {"Basic YWRtaW46YWRtaW4="}}
	require.Equal(t, 101, open(plain, own))
	own.Set("Origin", "http://elsewhere.example")
	require.Equal(t, 403, open(plain, own), "a page from elsewhere")
}

// Streams take places, end with the server, and leave nothing behind.
func TestSocketsEnd(t *testing.T) {
	b := newBed(t, func(c *Config) { c.MaxStreams = 2 })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, l) }()
	at := "http://" + l.Addr().String()
	stream := b.subscribeTo("/pod:coe", "ONE", "JSON")
	first, second := b.dial(at, stream), b.dial(at, stream)
	require.Equal(t, 503, b.do("GET", "/restconf/streams/stream/"+stream, "", header("Accept", "text/event-stream")).status)
	require.NoError(t, first.conn.Write(t.Context(), websocket.MessageText, []byte("hello"))) // means nothing
	require.NoError(t, first.conn.Close(websocket.StatusNormalClosure, ""))
	require.Eventually(t, func() bool { return b.shares.followed() == 1 }, patience.Patience, 10*time.Millisecond)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, `{"pod:pods":[{"uid":"`+uid1+`"}]}`).status)
	require.Contains(t, second.next(), podPath)

	begin := time.Now()
	cancel()
	bounded, done := context.WithTimeout(t.Context(), patience.Patience)
	defer done()
	_, _, err = second.conn.Read(bounded)
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err), err)
	require.NoError(t, <-ended)
	require.Less(t, time.Since(begin), stopTimeout)
	require.Zero(t, b.shares.followed())
	require.NotContains(t, ourGoroutines(), "Socket")
}

// A client that does not read is disconnected.
func TestSocketOfADeadReader(t *testing.T) {
	var changed *stream.Log
	inTime(t, func(t *testing.T, _ logs, server *Server, l *pipes) {
		conn, err := l.dial(t.Context(), "", "")
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /restconf/streams/stream/data-change-event-subscription/pod:coe/datastore=CONFIGURATION/scope=ONE HTTP/1.1\r\n"+
			"Host: x\r\nAuthorization: Basic YWRtaW46YWRtaW4=\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 101, resp.StatusCode)
		require.Equal(t, 1, server.shares.followed())
		changed.Apply(2, []stream.Change{{Stream: "pod:coe", Key: "/pod:coe", Name: changes.Changed, Content: []byte(`{"operation":"put","target":"/pod:coe","value":{"pod:coe":{}}}`)}})
		<-time.After(stream.WriteTimeout + 10*time.Second) // and what closing takes
		synctest.Wait()
		require.Zero(t, server.shares.followed())
	}, func(c *Config) {
		changed = stream.NewLog(stream.Config{Identity: "x", Begin: changes.Begin, Complete: changes.Complete})
		changed.Reset(1, nil)
		c.Streams[changes.Kind] = stream.Kind{Source: replayed{logs{changed}}}
	})
}

// replayed is a Replayer over a Log.
type replayed struct{ logs }

func (r replayed) Since(string) (time.Time, bool) { return time.Time{}, true }

func (r replayed) OpenAt(key string, start time.Time) stream.Subscription {
	return r.Log.OpenAt(key, start)
}

// A client that was written for OpenDaylight, in Python, as it is.
func TestPythonClient(t *testing.T) {
	if testing.Short() {
		t.Skip("needs python3-websocket")
	}
	b := newBed(t)
	at := served(t, b.Server)
	const script = `
import base64, json, sys, urllib.request, websocket
base = sys.argv[1]
def ask(method, path, body=None, accept="application/json"):
    r = urllib.request.Request(base + path, method=method, data=body and body.encode(), headers={
        "Authorization": "Basic " + base64.b64encode(b"admin:admin").decode(), "Content-Type": "application/json", "Accept": accept})
    return urllib.request.urlopen(r, timeout=20)
out = ask("POST", "/restconf/operations/sal-remote:create-data-change-event-subscription", json.dumps({"input": {
    "path": "/pod:coe", "sal-remote-augment:datastore": "CONFIGURATION", "sal-remote-augment:scope": "SUBTREE"}}))
name = json.load(out)["output"]["stream-name"]
location = ask("GET", "/restconf/streams/stream/" + name).headers["Location"]
ws = websocket.create_connection(location, timeout=20)
ask("PUT", "/restconf/config/pod:coe/pods/` + uid1 + `", '{"pods":[{"uid":"` + uid1 + `"}]}')
print(ws.recv())
ws.close()
`
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", script, at)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s; install the Debian package python3-websocket", out)
	require.Contains(t, string(out), "<operation>created</operation>")
	require.Contains(t, string(out), uid1)
}

package restconf

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// logs is a Source over a Log: every key but "none" is a stream.
type logs struct{ *stream.Log }

func newLogs() logs {
	return logs{stream.NewLog(stream.Config{Identity: "x", Begin: "m:begin", Complete: "m:complete"})}
}

func (l logs) Keys() []string { return l.Streams() }

func (l logs) Open(key, after string) (stream.Subscription, bool) {
	if key == "none" {
		return nil, false
	}
	return l.Log.Open(key, after), true
}

func (l logs) put(revision int64, key, value string) {
	l.Apply(revision, []stream.Change{{Stream: key, Key: value, Name: "m:changed", Content: fmt.Appendf(nil, `{"is":%q}`, value)}})
}

// follower reads server-sent events.
type follower struct {
	t    *testing.T
	resp *http.Response
	scan *bufio.Scanner
}

func followIt(t *testing.T, client *http.Client, url string, options ...option) *follower {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.SetBasicAuth("admin", "admin")
	r.Header.Set("Accept", "text/event-stream")
	for _, o := range options {
		o(r)
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &follower{t, resp, bufio.NewScanner(resp.Body)}
}

// next is the next block, its lines joined with "|"; empty at the end.
func (f *follower) next() string {
	var block []string
	for f.scan.Scan() {
		if f.scan.Text() == "" {
			break
		}
		block = append(block, f.scan.Text())
	}
	return strings.Join(block, "|")
}

// event is the next event: its id, and the notification without its time.
func (f *follower) event() string {
	f.t.Helper()
	block := f.next()
	for block == ":" {
		block = f.next()
	}
	id, data, found := strings.Cut(block, "data: ")
	if !found {
		return ""
	}
	var body map[string]map[string]json.RawMessage
	require.NoError(f.t, json.Unmarshal([]byte(data), &body), block)
	var at time.Time
	require.NoError(f.t, json.Unmarshal(body["ietf-restconf:notification"]["eventTime"], &at))
	require.WithinDuration(f.t, time.Now(), at, time.Hour)
	delete(body["ietf-restconf:notification"], "eventTime")
	require.Len(f.t, body["ietf-restconf:notification"], 1)
	for name, content := range body["ietf-restconf:notification"] {
		return strings.TrimSuffix(id, "|") + " " + name + string(content)
	}
	return ""
}

func TestStreamOfEvents(t *testing.T) {
	source := newLogs()
	source.Reset(1, nil)
	b := newBed(t, func(c *Config) {
		c.Streams = map[string]stream.Kind{"things": {Source: source, Description: "Things of a key."}, "idle": {Source: newLogs()}}
	})
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	const state = "/rests/data/ietf-restconf-monitoring:restconf-state"
	require.NotContains(t, b.do("GET", state, "").body, "things")
	source.put(2, "10.0.0.1", "a")

	require.JSONEq(t, `{"ietf-restconf-monitoring:stream":[{"name":"things=10.0.0.1","description":"Things of a key.","replay-support":false,"access":[
		{"encoding":"json","location":"http://127.0.0.1:8181/rests/streams/things=10.0.0.1"},
		{"encoding":"xml","location":"http://127.0.0.1:8181/rests/streams/xml/things=10.0.0.1"}]}]}`,
		b.do("GET", state+"/streams/stream=things%3D10.0.0.1", "").body)
	require.Contains(t, b.do("GET", state+"/streams/stream=things%3D10.0.0.1/access=json/location", "").body, "/rests/streams/things=10.0.0.1")
	require.Contains(t, b.do("GET", state+"/streams/stream=changes%3Dpod:coe", "").body, `"http://127.0.0.1:8181/rests/streams/changes=pod:coe"`)
	require.Contains(t, b.do("GET", state+"/capabilities", "").body, "basic-mode=explicit")
	require.Equal(t, 405, b.do("DELETE", state, "").status)
	require.Equal(t, 404, b.do("GET", state+"?content=config", "").status)

	f := followIt(t, server.Client(), server.URL+"/rests/streams/things=10.0.0.1")
	require.Equal(t, "text/event-stream", f.resp.Header.Get("Content-Type"))
	require.Equal(t, " m:begin{}", f.event())
	require.Equal(t, ` m:changed{"is":"a"}`, f.event())
	require.Equal(t, "id: 2@x m:complete{}", f.event())
	source.put(3, "10.0.0.1", "b")
	require.Equal(t, `id: 3@x m:changed{"is":"b"}`, f.event())

	source.put(4, "10.0.0.1", "c")
	f = followIt(t, server.Client(), server.URL+"//rests/streams/things%3D10.0.0.1", header("Last-Event-ID", "3@x"), header("Accept", "*/*"))
	require.Equal(t, `id: 4@x m:changed{"is":"c"}`, f.event())
	f = followIt(t, server.Client(), server.URL+"/rests/streams/idle", header("Accept", ""))
	require.Equal(t, ":", f.next(), "there is a stream, though nothing is known yet")
}

func TestStreamRefusals(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Streams = map[string]stream.Kind{"things": {Source: newLogs()}} })
	const path = "/rests/streams/things=1"
	for _, c := range []struct {
		method, path string
		option       option
		status       int
		tag          string
	}{
		{"GET", path, func(r *http.Request) { r.SetBasicAuth("admin", "wrong") }, 401, "access-denied"},
		{"GET", "/rests/streams/things=none", nil, 404, "invalid-value"},
		{"GET", "/rests/streams/others=1", nil, 404, "invalid-value"},
		{"GET", "/rests/streams/", nil, 404, "invalid-value"},
		{"POST", path, nil, 405, "operation-not-supported"},
		{"HEAD", path, nil, 200, ""},
		{"OPTIONS", path, nil, 200, ""},
		{"GET", path, header("Accept", "application/yang-data+json"), 406, "invalid-value"},
		{"GET", path, header("Accept", "text/event-stream;q=0"), 406, "invalid-value"},
		{"GET", path + "?start-time=2026-11-21T00:00:00Z", nil, 400, "invalid-value"},
	} {
		options := []option{}
		if c.option != nil {
			options = append(options, c.option)
		}
		got := b.do(c.method, c.path, "", options...)
		require.Equal(t, c.status, got.status, "%s %s", c.method, c.path)
		require.Equal(t, c.tag, got.tag(), "%s %s", c.method, c.path)
		if c.status == 405 || c.method == "OPTIONS" {
			require.Equal(t, "OPTIONS, HEAD, GET", got.header.Get("Allow"))
		}
	}
}

func TestTooManyStreams(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.Streams, c.MaxStreams = map[string]stream.Kind{"things": {Source: newLogs()}}, 2
	})
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	url := server.URL + "/rests/streams/things"
	first := followIt(t, server.Client(), url)
	require.Equal(t, 200, followIt(t, server.Client(), url).resp.StatusCode)
	third := followIt(t, server.Client(), url)
	require.Equal(t, 503, third.resp.StatusCode)
	require.NotEmpty(t, third.resp.Header.Get("Retry-After"))
	require.NoError(t, first.resp.Body.Close())
	require.Eventually(t, func() bool { return followIt(t, server.Client(), url).resp.StatusCode == 200 }, patience.Patience, 10*time.Millisecond)
}

// A server that ends does not wait for streams, over either version of HTTP.
func TestStreamsEndWithTheServer(t *testing.T) {
	known := httptest.NewUnstartedServer(http.NotFoundHandler()) // for its certificate
	known.EnableHTTP2 = true
	known.StartTLS()
	defer known.Close()
	for protocol, negotiated := range map[string]string{"HTTP/1.1": "http/1.1", "HTTP/2.0": "h2"} {
		t.Run(protocol, func(t *testing.T) {
			source := newLogs()
			source.Reset(1, nil)
			b := newBed(t, func(c *Config) {
				c.Streams = map[string]stream.Kind{"things": {Source: source}}
				c.TLS = &tls.Config{Certificates: known.TLS.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{negotiated}}
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- b.Serve(ctx, l) }()
			transport := known.Client().Transport.(*http.Transport).Clone()
			transport.TLSClientConfig.NextProtos = []string{negotiated}
			defer transport.CloseIdleConnections()
			f := followIt(t, &http.Client{Transport: transport}, "https://"+l.Addr().String()+"/rests/streams/things")
			require.Equal(t, protocol, f.resp.Proto)
			require.Equal(t, " m:begin{}", f.event())
			require.Equal(t, "id: 1@x m:complete{}", f.event())
			begin := time.Now()
			cancel()
			require.NoError(t, <-served)
			require.Less(t, time.Since(begin), stopTimeout, "it waits for no stream")
			require.Empty(t, f.event())
		})
	}
}

// pipes is a listener without a network, for tests whose time is not real.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// inTime runs a test against a server of one kind of streams, in a time of its own.
func inTime(t *testing.T, test func(t *testing.T, source logs, server *Server, l *pipes), change ...func(*Config)) {
	b := newBed(t)
	synctest.Test(t, func(t *testing.T) {
		source := newLogs()
		source.Reset(1, nil)
		cfg := Config{Config: tree.Config{Schema: b.cfg.Schema}, Auth: b.cfg.Auth, Streams: map[string]stream.Kind{"things": {Source: source}}}
		for _, c := range change {
			c(&cfg)
		}
		s, err := New(cfg)
		require.NoError(t, err)
		l := newPipes()
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		test(t, source, s, l)
		cancel()
		require.NoError(t, <-served)
	})
}

// A stream outlives every bound of a request, and is heard of every 15 seconds.
func TestStreamOfAnHour(t *testing.T) {
	inTime(t, func(t *testing.T, source logs, _ *Server, l *pipes) {
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		defer client.CloseIdleConnections()
		f := followIt(t, client, "http://server/rests/streams/things")
		require.Equal(t, ":", f.next())
		require.Equal(t, " m:begin{}", f.event())
		require.Equal(t, "id: 1@x m:complete{}", f.event())
		for range 240 {
			begin := time.Now()
			require.Equal(t, ":", f.next())
			require.Equal(t, stream.Beat, time.Since(begin).Round(time.Second))
		}
		source.put(2, "", "late")
		require.Equal(t, `id: 2@x m:changed{"is":"late"}`, f.event())
		require.NoError(t, f.resp.Body.Close())
	})
}

// A client that does not read is disconnected, and delays no other.
func TestStreamOfADeadReader(t *testing.T) {
	inTime(t, func(t *testing.T, source logs, server *Server, l *pipes) {
		conn, err := l.dial(t.Context(), "", "")
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /rests/streams/things HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YWRtaW46YWRtaW4=\r\n\r\n")
		require.NoError(t, err)
		one := make([]byte, 1)
		_, err = conn.Read(one)
		require.NoError(t, err)
		require.Equal(t, 1, server.shares.followed())
		for i := range int64(1000) {
			source.put(i+2, "", "x")
		}
		<-time.After(stream.WriteTimeout + time.Second)
		synctest.Wait()
		require.Zero(t, server.shares.followed())
	})
}

// A write at once is bounded, and loses nothing.
func TestLargeGroup(t *testing.T) {
	source := newLogs()
	var all []stream.Change
	long := strings.Repeat("x", 1000)
	for i := range 500 {
		all = append(all, stream.Change{Key: fmt.Sprint(i), Name: "m:changed", Content: fmt.Appendf(nil, `{"is":"%s%d"}`, long, i)})
	}
	source.Reset(9, all)
	b := newBed(t, func(c *Config) { c.Streams = map[string]stream.Kind{"things": {Source: source}} })
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	f := followIt(t, server.Client(), server.URL+"/rests/streams/things")
	require.Equal(t, " m:begin{}", f.event())
	for i := range 500 {
		require.Equal(t, fmt.Sprintf(` m:changed{"is":"%s%d"}`, long, i), f.event())
	}
	require.Equal(t, "id: 9@x m:complete{}", f.event())
}

// brokenWriter can't be written to any more, or has no deadlines.
type brokenWriter struct {
	*httptest.ResponseRecorder
	deadlines error
}

func (b brokenWriter) SetReadDeadline(time.Time) error  { return b.deadlines }
func (b brokenWriter) SetWriteDeadline(time.Time) error { return b.deadlines }
func (b brokenWriter) FlushError() error                { return errors.New("gone") }

func TestStreamThatCannotBegin(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Streams = map[string]stream.Kind{"things": {Source: newLogs()}} })
	for _, c := range []struct {
		deadlines error
		status    int
	}{{http.ErrNotSupported, 500}, {nil, 200}} {
		w := brokenWriter{httptest.NewRecorder(), c.deadlines}
		r := httptest.NewRequest(http.MethodGet, "/rests/streams/things", nil)
		r.SetBasicAuth("admin", "admin")
		b.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code)
		require.Zero(t, b.shares.followed())
	}
}
